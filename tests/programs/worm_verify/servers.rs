//! The program over real servers, which `tests/run.sh` starts.

use std::sync::Arc;

use krabka_remote_storage::ops::{StartUpload, StoreTarget};
use krabka_remote_storage::{
    AzureConfig, GcsConfig, ObjectStoreConfig, RemoteStorage, S3Config, WormChainRecord,
    manifest_head,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::auditor::Auditor;
use crate::support::archive::{Archive, Key};
use crate::support::program::{Run, finish};
use crate::support::servers;

type Variables = Vec<(&'static str, String)>;

fn s3(config: &S3Config) -> Variables {
    vec![
        ("AWS_ENDPOINT_URL", config.endpoint.clone().unwrap()),
        ("AWS_REGION", config.region.clone()),
        ("AWS_ACCESS_KEY_ID", config.access_key_id.clone().unwrap()),
        (
            "AWS_SECRET_ACCESS_KEY",
            config.secret_access_key.clone().unwrap(),
        ),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
    ]
}

fn gcs(config: &GcsConfig) -> Variables {
    vec![
        ("GOOGLE_BASE_URL", config.endpoint.clone().unwrap()),
        (
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            config.service_account_key.clone().unwrap(),
        ),
        ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
    ]
}

fn azure(config: &AzureConfig) -> Variables {
    vec![
        ("AZURE_STORAGE_ACCOUNT_NAME", config.account.clone()),
        ("AZURE_STORAGE_ENDPOINT", config.endpoint.clone().unwrap()),
        (
            "AZURE_STORAGE_ACCESS_KEY",
            config.access_key.clone().unwrap(),
        ),
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ("AZURE_ALLOW_HTTP", "true".to_owned()),
    ]
}

/// Seals the archive anew below a prefix of the store, and answers with the keys of its manifests.
async fn seal_below(archive: &Archive, store: &dyn ObjectStore, prefix: &str) -> Vec<String> {
    let mut manifests = Vec::new();
    let mut before: Option<WormChainRecord> = None;
    for sealed in &archive.segments {
        let mut body = sealed.manifest.body.clone();
        for object in &mut body.objects {
            let bytes = archive.get(&object.key).await;
            object.key = format!("{prefix}/{}", object.key);
            let key = Path::parse(&object.key).unwrap();
            store.put(&key, bytes.into()).await.unwrap();
        }
        if let Some(stamp) = before.as_ref().and_then(WormChainRecord::next_stamp) {
            body.chain = stamp;
        }
        before = Some(WormChainRecord::request(body.chain).with_head(manifest_head(&body)));
        let key = format!("{prefix}/{}", sealed.manifest_key);
        let bytes = Key::usual().sign(body).encode().unwrap();
        store
            .put(&Path::parse(&key).unwrap(), bytes.into())
            .await
            .unwrap();
        manifests.push(key);
    }
    manifests
}

/// Verifies an archive in the store, and finds what was done to it.
async fn tampering_is_found(config: ObjectStoreConfig, url: &str, variables: Variables) {
    let archive = Archive::one_run(2).await;
    let auditor = Auditor::of(&archive).await;
    let backend = config.open().unwrap();
    let store: Arc<dyn ObjectStore> = backend.object_store.clone().unwrap();
    let prefix = backend.prefix.as_path().to_string();
    let manifests = seal_below(&archive, store.as_ref(), &prefix).await;
    let url = format!("{url}/{prefix}/archive");
    let verify = |arguments: &[&str]| -> Run {
        let mut command = auditor.trusting(&["--deep", "--url", &url]);
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        tokio::task::block_in_place(|| finish(&mut command))
    };
    let pins = auditor.path("pins.json");
    let pins = pins.to_str().unwrap();
    let run = verify(&["--write-pins", pins]).ok();
    assert!(
        run.text()
            .starts_with("OK: 2 manifests over 1 partition(s)"),
        "{}",
        run.text()
    );
    verify(&["--pins", pins, "--strict-orphans"]).ok();

    let key = |at: usize, suffix: &str| manifests[at].replace(".manifest", suffix);
    let path = |key: &str| Path::parse(key).unwrap();
    let lists_uploads = {
        let storage = RemoteStorage::builder(backend.clone()).build().unwrap();
        let target = StoreTarget::object(path(&key(1, ".txnindex")));
        let started = storage.send(StartUpload::new(target)).await;
        started.is_ok() && !matches!(config, ObjectStoreConfig::Azure(_))
    };
    if lists_uploads {
        let says = format!("INCOMPLETE MULTIPART UPLOADS: 1: {}", key(1, ".txnindex"));
        verify(&["--strict-orphans"]).fails(6, &[&says]);
        verify(&["--topic", "orders"]).fails(0, &[&format!("note: {says}")]);
    }

    let foreign = format!("{prefix}/archive/note.txt");
    store.put(&path(&foreign), "x".into()).await.unwrap();
    verify(&[]).fails(
        6,
        &[&format!(
            "ORPHAN OBJECTS (outside of every partition): 1: {foreign}"
        )],
    );
    store.delete(&path(&foreign)).await.unwrap();

    store.delete(&path(&key(1, ".index"))).await.unwrap();
    verify(&[]).fails(8, &[&format!("MISSING at {} (seq 1)", manifests[1])]);

    let log = path(&key(0, ".log"));
    let mut bytes = store
        .get(&log)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec();
    bytes[0] ^= 1;
    store.put(&log, bytes.into()).await.unwrap();
    verify(&[]).fails(
        1,
        &[&format!(
            "TAMPER DETECTED at {} (seq 0): digest",
            manifests[0]
        )],
    );

    for suffix in [
        ".log",
        ".timeindex",
        ".leader_epoch_checkpoint",
        ".manifest",
    ] {
        store.delete(&path(&key(1, suffix))).await.unwrap();
    }
    verify(&["--pins", pins]).fails(1, &["TAMPER DETECTED at "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_in_seaweedfs() {
    if let Some(config) = servers::s3("SEAWEEDFS", "krabka-plain") {
        let variables = s3(&config);
        tampering_is_found(
            ObjectStoreConfig::S3(config),
            "s3://krabka-plain",
            variables,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_in_ceph() {
    if let Some(config) = servers::s3("RGW", "krabka-plain") {
        let variables = s3(&config);
        tampering_is_found(
            ObjectStoreConfig::S3(config),
            "s3://krabka-plain",
            variables,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_in_google_cloud_storage() {
    if let Some(config) = servers::gcs() {
        let variables = gcs(&config);
        tampering_is_found(
            ObjectStoreConfig::Gcs(config),
            "gs://krabka-plain",
            variables,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_in_azure() {
    if let Some(config) = servers::azurite() {
        let variables = azure(&config);
        tampering_is_found(
            ObjectStoreConfig::Azure(config),
            "az://krabka-plain",
            variables,
        )
        .await;
    }
}
