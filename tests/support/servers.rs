//! The stores that the conformance tests run against, one prefix a test.

use std::env;

use krabka_remote_storage::{AzureConfig, GcsConfig, ObjectStoreConfig, S3Config};
use uuid::Uuid;

/// A variable that `tests/run.sh` exports when it has started the servers. Without the servers
/// the answer is `None` and the test is skipped; with them a missing variable is a failure.
pub fn variable(name: &str) -> Option<String> {
    let value = env::var(name).ok();
    assert!(
        value.is_some() || env::var_os("KRABKA_TEST_SERVERS").is_none(),
        "the servers are meant to be there, but {name} is not set"
    );
    if value.is_none() {
        eprintln!("skipped: {name} is not set; tests/run.sh starts the servers");
    }
    value
}

/// A prefix that no other test uses.
fn own_prefix() -> String {
    format!("conformance/{}", Uuid::new_v4())
}

pub fn s3(server: &str, bucket: &str) -> Option<S3Config> {
    let variable = |name: &str| variable(&format!("KRABKA_TEST_{server}_{name}"));
    let mut it = S3Config::default();
    it.bucket = bucket.to_owned();
    it.prefix = Some(own_prefix());
    it.region = variable("REGION")?;
    it.endpoint = Some(variable("ENDPOINT")?);
    it.access_key_id = Some(variable("ACCESS_KEY_ID")?);
    it.secret_access_key = Some(variable("SECRET_ACCESS_KEY")?);
    it.allow_http = true;
    Some(it)
}

pub fn azurite() -> Option<AzureConfig> {
    let mut it = AzureConfig::default();
    it.account = variable("KRABKA_TEST_AZURITE_ACCOUNT")?;
    it.container = "krabka-plain".to_owned();
    it.prefix = Some(own_prefix());
    it.endpoint = Some(variable("KRABKA_TEST_AZURITE_ENDPOINT")?);
    it.access_key = Some(variable("KRABKA_TEST_AZURITE_ACCESS_KEY")?);
    it.use_emulator = true;
    it.allow_http = true;
    Some(it)
}

pub fn gcs() -> Option<GcsConfig> {
    let mut it = GcsConfig::default();
    it.bucket = "krabka-plain".to_owned();
    it.prefix = Some(own_prefix());
    it.endpoint = Some(variable("KRABKA_TEST_GCS_ENDPOINT")?);
    it.service_account_key = Some(variable("KRABKA_TEST_GCS_SERVICE_ACCOUNT_KEY")?);
    it.allow_http = true;
    Some(it)
}

/// The store with this name; `None` when its server is not meant to be there.
pub fn store(name: &str, dir: &std::path::Path) -> Option<ObjectStoreConfig> {
    Some(match name {
        "memory" => ObjectStoreConfig::InMemory,
        "local" => ObjectStoreConfig::Local {
            root: dir.join("tier"),
        },
        "seaweedfs" => ObjectStoreConfig::S3(s3("SEAWEEDFS", "krabka-plain")?),
        "seaweedfs_versioned" => ObjectStoreConfig::S3(s3("SEAWEEDFS", "krabka-versioned")?),
        "rgw" => ObjectStoreConfig::S3(s3("RGW", "krabka-plain")?),
        "azurite" => ObjectStoreConfig::Azure(azurite()?),
        "gcs" => ObjectStoreConfig::Gcs(gcs()?),
        other => panic!("no store is called {other}"),
    })
}
