//! An archive in a bucket whose owner answers as he likes.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::TryStreamExt as _;
use object_store::ObjectStore as _;
use parking_lot::Mutex;

use super::auditor::Auditor;
use crate::support::archive::{Archive, PREFIX};
use crate::support::program::{Run, finish};

/// A bucket: what its objects are, and for which of them it answers with a status.
struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    statuses: Mutex<HashMap<String, u16>>,
    /// How often each is not to be had now.
    busy: Mutex<HashMap<String, usize>>,
    uploads: Mutex<Result<Vec<String>, u16>>,
    endpoint: Mutex<String>,
}

impl Bucket {
    async fn of(archive: &Archive) -> Arc<Self> {
        let bucket = Arc::new(Self {
            objects: Mutex::default(),
            statuses: Mutex::default(),
            busy: Mutex::default(),
            uploads: Mutex::new(Ok(Vec::new())),
            endpoint: Mutex::default(),
        });
        let objects: Vec<_> = archive.memory.list(None).try_collect().await.unwrap();
        for object in objects {
            let key = object.location.to_string();
            let bytes = archive.get(&key).await.to_vec();
            bucket.objects.lock().insert(key, bytes);
        }
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&bucket));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        *bucket.endpoint.lock() = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        bucket
    }

    fn verify(&self, auditor: &Auditor, arguments: &[&str]) -> Run {
        let endpoint = self.endpoint.lock().clone();
        let mut command = auditor.trusting(&["--bucket", "bucket", "--prefix", PREFIX]);
        command
            .args(["--endpoint", &endpoint, "--allow-http"])
            .args(arguments);
        command
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "marked-secret");
        let run = tokio::task::block_in_place(|| finish(&mut command));
        assert!(!run.stderr.contains("marked-secret"), "{}", run.stderr);
        run
    }
}

async fn answer(State(bucket): State<Arc<Bucket>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let query: HashMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let respond = |status: u16, body: Vec<u8>| {
        Response::builder()
            .status(status)
            .header("ETag", "\"tag\"")
            .header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            .body(Body::from(body))
            .unwrap()
    };
    assert!(
        matches!(request.method().as_str(), "GET" | "HEAD"),
        "a verifier only reads"
    );
    let prefix = query.get("prefix").cloned().unwrap_or_default();
    if query.contains_key("list-type") {
        let mut xml = "<ListBucketResult>".to_owned();
        for (key, body) in bucket
            .objects
            .lock()
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
        {
            let _ = write!(
                xml,
                "<Contents><Key>{key}</Key><Size>{}</Size>\
                 <LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>",
                body.len()
            );
        }
        xml.push_str("</ListBucketResult>");
        return respond(200, xml.into());
    }
    if query.contains_key("uploads") {
        return match &*bucket.uploads.lock() {
            Err(status) => respond(*status, Vec::new()),
            Ok(keys) => {
                let mut xml = "<ListMultipartUploadsResult>".to_owned();
                for key in keys.iter().filter(|key| key.starts_with(&prefix)) {
                    let _ = write!(
                        xml,
                        "<Upload><Key>{key}</Key><UploadId>1</UploadId></Upload>"
                    );
                }
                xml.push_str("</ListMultipartUploadsResult>");
                respond(200, xml.into())
            }
        };
    }
    let key = request
        .uri()
        .path()
        .strip_prefix("/bucket/")
        .unwrap_or_default()
        .to_owned();
    if let Some(status) = bucket.statuses.lock().get(&key) {
        return respond(*status, Vec::new());
    }
    if let Some(times) = bucket.busy.lock().get_mut(&key)
        && *times > 0
    {
        *times -= 1;
        return respond(503, Vec::new());
    }
    match bucket.objects.lock().get(&key) {
        Some(body) => respond(200, body.clone()),
        None => respond(404, Vec::new()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_missing_changed_and_open_are_told_apart() {
    let archive = Archive::one_run(3).await;
    let auditor = Auditor::of(&archive).await;
    let bucket = Bucket::of(&archive).await;
    let log = archive.segments[1].key(".log");
    let run = bucket.verify(&auditor, &["--deep"]).ok();
    assert!(run.text().starts_with("OK: 3 manifests"), "{}", run.text());
    assert!(
        run.text()
            .contains("protection: created under a precondition: "),
        "{}",
        run.text()
    );
    assert!(!run.text().contains("none"), "{}", run.text());

    // Refused: the rest of the report stands.
    bucket.statuses.lock().insert(log.clone(), 403);
    let refused = format!("ERROR: {log} could not be read: ");
    let run = bucket.verify(&auditor, &["--deep"]).fails(3, &[&refused]);
    assert!(run.text().contains("manifests: 3 "), "{}", run.text());
    bucket.verify(&auditor, &[]).ok();

    // Listed, and then not there.
    bucket.statuses.lock().insert(log.clone(), 404);
    bucket
        .verify(&auditor, &["--deep"])
        .fails(8, &["MISSING at ", &log]);

    // Refused here, changed there.
    bucket.statuses.lock().insert(log.clone(), 403);
    let index = archive.segments[2].key(".index");
    bucket.objects.lock().get_mut(&index).unwrap()[0] ^= 1;
    bucket
        .verify(&auditor, &["--deep"])
        .fails(1, &["TAMPER DETECTED at ", &index, &refused]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_busy_for_a_moment_is_asked_again() {
    let archive = Archive::one_run(2).await;
    let auditor = Auditor::of(&archive).await;
    let bucket = Bucket::of(&archive).await;
    let keys = [
        archive.segments[0].key(".log"),
        archive.segments[1].manifest_key.clone(),
    ];
    for key in &keys {
        bucket.busy.lock().insert(key.clone(), 2);
    }
    bucket.verify(&auditor, &["--deep"]).ok();
    assert!(bucket.busy.lock().values().all(|times| *times == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_uploads_of_a_bucket_are_listed_or_it_is_an_error() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let bucket = Bucket::of(&archive).await;
    let log = archive.segments[0].key(".log");
    *bucket.uploads.lock() = Ok(vec![log.clone(), "other/x".to_owned()]);
    let line = format!("INCOMPLETE MULTIPART UPLOADS: 1: {log}\n");
    bucket
        .verify(&auditor, &[])
        .fails(0, &[&format!("note: {line}")]);
    bucket
        .verify(&auditor, &["--strict-orphans"])
        .fails(6, &[&line]);
    bucket
        .verify(&auditor, &["--strict-orphans", "--topic", "orders"])
        .fails(6, &[&line]);
    *bucket.uploads.lock() = Err(403);
    let says = "ERROR: open multipart uploads could not be listed";
    bucket.verify(&auditor, &[]).fails(3, &[says]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_fails_is_an_error_and_not_an_empty_archive() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let bucket = Bucket::of(&archive).await;
    // No store client can name it, so nothing can be said.
    bucket
        .objects
        .lock()
        .insert("archive//x".to_owned(), Vec::new());
    let run = bucket.verify(&auditor, &["--allow-empty", "--format", "json"]);
    let run = run.fails(3, &["cannot verify s3://bucket"]);
    assert_eq!(run.json()[0]["verdict"], "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_key_that_clients_take_for_the_first_is_an_orphan() {
    let archive = Archive::one_run(1).await;
    let auditor = Auditor::of(&archive).await;
    let log = archive.segments[0].key(".log");
    let directory = archive.segments[0].directory();
    for (key, shown) in [
        (format!("{log}/"), format!("{log}/")),
        (format!("{directory}/"), directory.to_owned()),
        (format!("{PREFIX}/x/"), format!("{PREFIX}/x")),
    ] {
        let bucket = Bucket::of(&archive).await;
        bucket.objects.lock().insert(key.clone(), b"other".to_vec());
        let run = bucket.verify(&auditor, &["--deep"]);
        run.fails(6, &["ORPHAN OBJECTS (", &format!(": 1: {shown}\n")]);
        // In place of the object: it cannot be read, which depth shows.
        let body = bucket.objects.lock().remove(&log).unwrap();
        bucket.objects.lock().insert(format!("{log}/"), body);
        bucket
            .verify(&auditor, &["--deep"])
            .fails(8, &["MISSING at ", &log]);
    }
}
