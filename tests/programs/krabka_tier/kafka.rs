//! A real Apache Kafka starts on a restored directory. Only where the servers are meant to be there:
//! `tests/servers/kafka.sh` needs Java and Maven.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::consumer::{committed, first_open};
use crate::support::program::{Run, Scratch, run, special_offset};

const TOPIC: &str = "restored";

/// One broker, with data and ports of its own; ended when it is dropped.
struct Kafka {
    state: TempDir,
    port: u16,
}

impl Kafka {
    /// `None` skips the test.
    fn start() -> Option<Self> {
        if env::var_os("KRABKA_TEST_SERVERS").is_none() {
            eprintln!("skipped: KRABKA_TEST_SERVERS is not set; tests/run.sh starts the servers");
            return None;
        }
        let kafka = Self {
            state: tempfile::tempdir().unwrap(),
            port: two_free_ports(),
        };
        kafka.script(&["start"]);
        Some(kafka)
    }

    /// Runs `kafka.sh`, and answers with what it said.
    fn script(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/kafka.sh");
        let output = Command::new("bash")
            .arg(script)
            .args(arguments)
            .env("KRABKA_TEST_STATE", self.state.path())
            .env("KRABKA_TEST_KAFKA_PORT", self.port.to_string())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs one of Kafka's own tools.
    fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let class = format!("org.apache.kafka.tools.{class}");
        self.script(&[&["tool", class.as_str()], arguments].concat())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn log_dir(&self) -> PathBuf {
        self.state.path().join("kafka/node-1/data")
    }

    /// What a consumer reads from the first offset on: `Offset:N`, a tab, and the value, line by line.
    fn consume(&self, isolation: &str) -> String {
        let address = self.address();
        let mut arguments = vec!["--bootstrap-server", &address, "--topic", TOPIC];
        arguments.extend(["--partition", "0", "--offset", "earliest"]);
        arguments.extend(["--isolation-level", isolation]);
        arguments.extend(["--formatter-property", "print.offset=true"]);
        // The end of the log, or of what is decided, is where no more comes.
        arguments.extend(["--timeout-ms", "6000"]);
        self.tool("consumer.ConsoleConsumer", &arguments)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.script(&["stop"]);
    }
}

/// The first of two ports, one after the other, on which nobody listens.
fn two_free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

/// What `read` says, as the consumer writes it.
fn as_consumed(read: &Run) -> String {
    let records = read.json();
    assert!(records.len() > 1_000, "{}", records.len());
    let lines = records.iter().map(|record| {
        let (offset, value) = (&record["offset"], record["value"].as_str().unwrap());
        format!("Offset:{offset}\t{value}\n")
    });
    lines.collect()
}

#[test]
fn a_broker_starts_on_a_restored_directory_and_a_consumer_reads_what_was_tiered() {
    let Some(kafka) = Kafka::start() else {
        return;
    };
    let address = kafka.address();
    let create = ["--bootstrap-server", &address, "--create", "--topic", TOPIC];
    let segments = ["--config", "internal.segment.bytes=200000"];
    kafka.tool("TopicCommand", &[&create[..], &segments].concat());
    let bootstrap = format!("bootstrap.servers={address}");
    // Transactions of many batches each: where the tier ends one is open, unless by chance.
    let produce = ["--topic", TOPIC, "--num-records", "9000"];
    let records = ["--record-size", "200", "--throughput", "3000"];
    let transactions = [
        "--transactional-id",
        "t",
        "--transaction-duration-ms",
        "400",
    ];
    let properties = ["--producer-props", &bootstrap, "batch.size=4000"];
    let produce = [&produce[..], &records, &transactions, &properties].concat();
    kafka.tool("ProducerPerformance", &produce);
    kafka.script(&["halt", "1"]);

    let dir = kafka.log_dir().join(format!("{TOPIC}-0"));
    let tier = kafka.state.path().join("tier");
    let url = format!("file://{}", tier.display());
    run(&["copy", dir.to_str().unwrap(), "--to", &url]).ok();
    // The disk is lost, and with it what the broker knew of a clean stop.
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(kafka.log_dir().join(".kafka_cleanshutdown")).unwrap();
    let partition = ["--topic", TOPIC, "--partition", "0"];
    let to = ["--to", dir.to_str().unwrap()];
    run(&[&["restore", &url], &partition[..], &to].concat()).ok();
    kafka.script(&["resume", "1"]);

    let from = ["--offset", "0", "--values", "text"];
    let read = [&["read", &url], &partition[..], &from].concat();
    let expected = as_consumed(&run(&read).ok());
    assert!(kafka.consume("read_uncommitted") == expected);

    let committed = run(&[&read[..], &["--read-committed"]].concat());
    assert_eq!(committed.code, Some(0), "{committed:?}");
    assert!(kafka.consume("read_committed") == as_consumed(&committed));
}

#[test]
fn a_broker_makes_the_indexes_anew_that_a_restore_left_out() {
    let Some(kafka) = Kafka::start() else {
        return;
    };
    let address = kafka.address();
    let create = ["--bootstrap-server", &address, "--create", "--topic", TOPIC];
    // The records are old.
    let keep = ["--config", "retention.ms=-1"];
    kafka.tool("TopicCommand", &[&create[..], &keep].concat());
    kafka.script(&["halt", "1"]);
    let dir = kafka.log_dir().join(format!("{TOPIC}-0"));
    let of_cluster = fs::read(dir.join("partition.metadata")).unwrap();

    // A tier that has lost its transaction indexes. The broker has stopped cleanly, and so has no other
    // reason to look into the logs.
    assert!(kafka.log_dir().join(".kafka_cleanshutdown").exists());
    let scratch = Scratch::with_tier_of(&["payments-0"]);
    for (path, _) in scratch.tier_files() {
        if path.to_str().unwrap().ends_with(".txnindex") {
            fs::remove_file(scratch.tier().join(path)).unwrap();
        }
    }
    fs::remove_dir_all(&dir).unwrap();
    let partition = ["--topic", "payments", "--partition", "0"];
    let url = scratch.url();
    let more = ["--to", dir.to_str().unwrap(), "--allow-missing"];
    let restored = run(&[&["restore", &url], &partition[..], &more].concat());
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    // This cluster has another topic in its place.
    fs::write(dir.join("partition.metadata"), of_cluster).unwrap();
    kafka.script(&["resume", "1"]);

    let last = special_offset("payments", 0, "latest_tiered");
    let open = first_open("payments", 0, last).unwrap();
    let expected: Vec<i64> = committed("payments", 0, 0, open - 1)
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            record["offset"].as_i64().unwrap()
        })
        .collect();
    let consumed: Vec<i64> = kafka
        .consume("read_committed")
        .lines()
        .filter_map(|line| line.strip_prefix("Offset:")?.split('\t').next())
        .map(|offset| offset.parse().unwrap())
        .collect();
    assert_eq!(consumed, expected);
}
