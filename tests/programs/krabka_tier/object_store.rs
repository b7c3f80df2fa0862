//! The program over real servers, which `tests/run.sh` starts, and over one that never answers.

use crate::support::with;
use std::env;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use krabka_remote_storage::ops::{StartUpload, StoreTarget};
use krabka_remote_storage::{ObjectStoreConfig, RemoteStorage, S3Config};
use serde_json::json;
use uuid::Uuid;

use crate::support::program::{Run, command, finish, test_data};

type Variables = Vec<(&'static str, String)>;

/// A variable of the servers; `None` skips the test where there are none.
fn server(name: &str) -> Option<String> {
    let value = env::var(format!("KRABKA_TEST_{name}")).ok();
    assert!(
        value.is_some() || env::var_os("KRABKA_TEST_SERVERS").is_none(),
        "the servers are meant to be there, but KRABKA_TEST_{name} is not set"
    );
    if value.is_none() {
        eprintln!("skipped: KRABKA_TEST_{name} is not set; tests/run.sh starts the servers");
    }
    value
}

fn seaweedfs() -> Option<Variables> {
    Some(vec![
        ("AWS_ENDPOINT_URL", server("SEAWEEDFS_ENDPOINT")?),
        ("AWS_REGION", server("SEAWEEDFS_REGION")?),
        ("AWS_ACCESS_KEY_ID", server("SEAWEEDFS_ACCESS_KEY_ID")?),
        (
            "AWS_SECRET_ACCESS_KEY",
            server("SEAWEEDFS_SECRET_ACCESS_KEY")?,
        ),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
    ])
}

fn azurite() -> Option<Variables> {
    Some(vec![
        ("AZURE_STORAGE_ACCOUNT_NAME", server("AZURITE_ACCOUNT")?),
        ("AZURE_STORAGE_ENDPOINT", server("AZURITE_ENDPOINT")?),
        ("AZURE_STORAGE_ACCESS_KEY", server("AZURITE_ACCESS_KEY")?),
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ("AZURE_ALLOW_HTTP", "true".to_owned()),
    ])
}

fn gcs() -> Option<Variables> {
    Some(vec![
        ("GOOGLE_BASE_URL", server("GCS_ENDPOINT")?),
        (
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            server("GCS_SERVICE_ACCOUNT_KEY")?,
        ),
        ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
    ])
}

fn run(variables: &Variables, arguments: &[&str]) -> Run {
    finish(command(arguments).envs(variables.iter().map(|(name, value)| (name, value))))
}

/// Copies, lists, reads and removes a partition.
fn the_whole_way_there_and_back(scheme: &str, variables: &Variables) {
    let url = format!("{scheme}://krabka-plain/krabka-tier/{}", Uuid::new_v4());
    let run = |arguments: &[&str]| run(variables, arguments);
    let dir = test_data("partitions/payments-1");
    let dir = dir.to_str().unwrap();
    run(&["copy", dir, "--to", &url]).ok();
    let again = run(&["copy", dir, "--to", &url, "--json"]).ok().json();
    assert_eq!(again.last().unwrap()["segments_skipped"], 3);

    let ls = run(&["ls", &url, "--json"]).ok().json();
    assert_eq!(
        (&ls[0]["first_offset"], &ls[0]["last_offset"]),
        (&json!(0), &json!(182))
    );
    assert_eq!(ls[0]["segments"].as_array().unwrap().len(), 3);

    let read = [
        "read",
        &url,
        "--topic",
        "payments",
        "--partition",
        "1",
        "--offset",
        "0",
    ];
    let records = run(&read).ok().text();
    let expected = test_data("expected/payments-1.records.ndjson");
    let expected = std::fs::read_to_string(expected).unwrap();
    assert!(expected.starts_with(&records));
    assert_eq!(records.lines().count(), 153);

    let restored = tempfile::tempdir().unwrap();
    let to = restored.path().join("payments-1");
    let restore = [&["restore"], &read[1..6], &["--to", to.to_str().unwrap()]].concat();
    run(&restore).ok();
    for name in ["00000000000000000003.log", "00000000000000000183.snapshot"] {
        let source = std::fs::read(test_data("partitions/payments-1").join(name)).unwrap();
        assert!(std::fs::read(to.join(name)).unwrap() == source, "{name}");
    }

    run(&["rm", &url, "--topic", "payments", "--yes"]).ok();
    assert_eq!(run(&["ls", &url, "--json"]).ok().text(), "");
}

#[test]
fn a_partition_goes_to_s3_and_back() {
    if let Some(variables) = seaweedfs() {
        the_whole_way_there_and_back("s3", &variables);
    }
}

#[test]
fn a_partition_goes_to_azure_and_back() {
    if let Some(variables) = azurite() {
        the_whole_way_there_and_back("az", &variables);
    }
}

#[test]
fn a_partition_goes_to_google_and_back() {
    if let Some(variables) = gcs() {
        the_whole_way_there_and_back("gs", &variables);
    }
}

#[tokio::test]
async fn an_open_upload_is_listed_with_the_rule_that_clears_it_and_removed() {
    let Some(variables) = seaweedfs() else {
        return;
    };
    let variable = |name: &str| {
        let (_, value) = variables.iter().find(|(known, _)| *known == name).unwrap();
        value.clone()
    };
    let prefix = format!("krabka-tier/{}", Uuid::new_v4());
    let config = ObjectStoreConfig::S3(with(S3Config::default(), |it| {
        it.bucket = "krabka-plain".to_owned();
        it.prefix = Some(prefix.clone());
        it.region = variable("AWS_REGION");
        it.endpoint = Some(variable("AWS_ENDPOINT_URL"));
        it.access_key_id = Some(variable("AWS_ACCESS_KEY_ID"));
        it.secret_access_key = Some(variable("AWS_SECRET_ACCESS_KEY"));
        it.allow_http = true;
    }));
    let storage = RemoteStorage::open(&config).unwrap();
    let segment = "00000000000000000011-AAAAAAAAAAAAAAAAAAAA_g";
    let key = format!("{prefix}/orders-7-AAAAAAAAAAAAAAAAAAAAAQ/{segment}.log");
    let target = StoreTarget::object(key.as_str().into());
    storage.send(StartUpload::new(target)).await.unwrap();

    let url = format!("s3://krabka-plain/{prefix}");
    let run = |arguments: &[&str]| run(&variables, arguments);
    let left = run(&["ls", &url, "--incomplete", "--json"]).ok().json();
    assert_eq!(left.len(), 1);
    assert_eq!(
        (&left[0]["type"], &left[0]["key"]),
        (&json!("open_upload"), &json!(key))
    );
    assert_eq!(
        (&left[0]["topic"], &left[0]["first_offset"]),
        (&json!("orders"), &json!(11))
    );
    let text = run(&["ls", &url, "--incomplete"]).ok().text();
    assert!(text.contains("AbortIncompleteMultipartUpload"), "{text}");

    let rm = [
        "rm",
        &url,
        "--topic",
        "orders",
        "--segment",
        "AAAAAAAAAAAAAAAAAAAA_g",
    ];
    run(&rm).ok();
    assert_eq!(
        run(&["ls", &url, "--incomplete", "--json"])
            .ok()
            .json()
            .len(),
        1
    );
    let mut yes = rm.to_vec();
    yes.push("--yes");
    run(&yes).ok();
    assert_eq!(run(&["ls", &url, "--incomplete", "--json"]).ok().text(), "");
}

#[test]
fn an_interrupted_program_says_so() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut child = command(&["ls", "s3://bucket"])
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("AWS_ALLOW_HTTP", "true")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its request is here, so it waits for an answer.
    let (mut request, _) = silent.accept().unwrap();
    request.read_exact(&mut [0; 3]).unwrap();
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(said, "error: interrupted\n");
}
