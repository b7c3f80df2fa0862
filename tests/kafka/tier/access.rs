//! How a cluster is named and reached, and what is said when it is not.

use std::fs;

use serde_json::json;

use super::{Cluster, variable};
use crate::support::metadata_topic::records;
use crate::support::program::{Scratch, command, finish, run};

#[test]
fn what_is_wrong_with_a_cluster_is_said_without_secrets() {
    let cluster = Cluster::mock();
    let scratch = Scratch::new();
    let config = scratch.path("client.properties");
    let path = config.to_str().unwrap();
    let dump = cluster.arguments(&["metadata", "dump"]);
    let with_config = |text: &str| {
        fs::write(&config, text).unwrap();
        let mut by_option = dump.clone();
        by_option.extend(["--kafka-config", path]);
        let by_option = run(&by_option);
        let by_variable = finish(command(&dump).env("KRABKA_KAFKA_CONFIG", path));
        assert_eq!(by_option.stderr, by_variable.stderr);
        by_option
    };
    let secret = "hunter2-of-all";
    let login = format!(
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
         username=\"u\" password=\"{secret}\";"
    );
    for (text, says) in [
        (
            "acks.of=all".to_owned(),
            "line 1: acks.of is not understood here",
        ),
        (format!("{login}\n"), "sasl.mechanism is missing"),
        (
            format!("\nssl.keystore.password={secret}"),
            "line 2: ssl.keystore.password",
        ),
        (
            format!("password=\"{secret}\";"),
            "line 1 is not understood here",
        ),
    ] {
        let run = with_config(&text).fails(1, &["client.properties does not hold: ", says]);
        assert!(!run.stderr.contains(secret), "{}", run.stderr);
    }
    let truststore = "security.protocol=SSL\nssl.truststore.type=PEM\n\
                      ssl.truststore.location=/no/such/roots.pem\n";
    with_config(truststore).fails(1, &["the file /no/such/roots.pem", "cannot be read"]);
    with_config("# nothing\nsecurity.protocol=PLAINTEXT\n").ok();
    fs::remove_file(&config).unwrap();
    finish(command(&dump).env("KRABKA_KAFKA_CONFIG", path)).fails(1, &["cannot read", path]);

    let no_topic = [
        "--bootstrap",
        &cluster.bootstrap,
        "--metadata-topic",
        "no such topic",
    ];
    run(&[&["metadata", "stats"], &no_topic[..]].concat())
        .fails(2, &["topic is \"no such topic\""]);
    run(&["metadata", "stats", "--bootstrap", "localhost"]).fails(2, &["`host:port`"]);
    // Nobody listens there.
    let nobody = [
        "metadata",
        "stats",
        "--bootstrap",
        "127.0.0.1:9",
        "--retry-timeout",
        "1",
    ];
    run(&nobody).fails(
        1,
        &["cannot open topic __remote_log_metadata at 127.0.0.1:9"],
    );
    run(&["metadata", "dump"]).fails(2, &["--bootstrap"]);
    let url = scratch.url();
    fs::create_dir(scratch.path("tier")).unwrap();
    let read = [
        "read",
        &url,
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "0",
    ];
    run(&[&read[..], &["--kafka-config", "x"]].concat()).fails(2, &["--bootstrap"]);
    cluster.run(&read).fails(
        1,
        &["topic \"t\" partition 0 is not in the metadata in topic "],
    );
}

/// A listener with TLS, where a broker is meant to be there, and client properties for it.
struct Secured {
    bootstrap: String,
    authority: String,
    user: String,
    password: String,
}

impl Secured {
    fn new() -> Option<Self> {
        let variable = |name: &str| variable(&format!("SECURE_{name}"));
        Some(Self {
            bootstrap: variable("BOOTSTRAP_SERVERS")?,
            authority: variable("CA")?,
            user: variable("USER")?,
            password: variable("PASSWORD")?,
        })
    }

    fn properties(&self, mechanism: &str, password: &str) -> String {
        let module = if mechanism == "PLAIN" {
            "plain.Plain"
        } else {
            "scram.Scram"
        };
        format!(
            "security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n\
             sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required \\\n  \
             username=\"{}\" password=\"{password}\";\nssl.truststore.type=PEM\n",
            self.user
        )
    }
}

#[test]
fn a_secured_cluster_is_reached_with_client_properties() {
    let (Some(cluster), Some(secured)) = (Cluster::kafka(), Secured::new()) else {
        return;
    };
    let cluster = cluster.with_kafkas_events();
    let scratch = Scratch::new();
    let config = scratch.path("client.properties");
    let stats = |text: &str| {
        fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let mut stats = vec!["metadata", "stats", "--json", "--retry-timeout", "5"];
        stats.extend([
            "--bootstrap",
            &secured.bootstrap,
            "--metadata-topic",
            &cluster.topic,
        ]);
        stats.extend(["--kafka-config", config]);
        run(&stats)
    };
    let file = format!("ssl.truststore.location={}\n", secured.authority);
    let inline = fs::read_to_string(&secured.authority).unwrap();
    let inline = format!(
        "ssl.truststore.certificates={}\n",
        inline.trim_end().replace('\n', " \\\n")
    );
    for (mechanism, authority) in [
        ("PLAIN", &file),
        ("SCRAM-SHA-256", &inline),
        ("SCRAM-SHA-512", &file),
    ] {
        let text = secured.properties(mechanism, &secured.password) + authority;
        let total = stats(&text).ok().json().pop().unwrap();
        assert_eq!(total["records"], json!(records().len()), "{mechanism}");
    }
    let wrong = "no-such-secret";
    let refused = stats(&(secured.properties("PLAIN", wrong) + &file));
    let refused = refused.fails(1, &["cannot open topic metadata-"]);
    assert!(!refused.stderr.contains(wrong), "{}", refused.stderr);
}
