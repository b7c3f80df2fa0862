//! What the stores' clients send, as a server in this process sees it.

mod completion;
mod open_uploads;
mod retention;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Method, StatusCode};
use object_store::PutPayload;
use object_store::path::Path;
use sha2::{Digest, Sha256};

#[cfg(feature = "azure")]
use crate::backends::AzureConfig;
#[cfg(feature = "gcp")]
use crate::backends::GcsConfig;
use crate::backends::config::env::Environment;
use crate::backends::http::recorder::{Recorder, Seen, answer, everything_of};
use crate::backends::{Backend, ObjectStoreConfig, S3Config, StoreClient, StoreKind};
use crate::error::RemoteStorageError;
use crate::ops::{
    AbortUpload, ByteRange, CompleteUpload, Create, Delete, Get, Head, ListUploads, Put, PutPart,
    StartUpload, StoreTarget, UploadId, WriteMode,
};

const CHECKSUM: &str = "x-amz-checksum-sha256";

fn target(key: &str) -> StoreTarget {
    StoreTarget::object(Path::parse(key).unwrap())
}

fn put(key: &str, body: &'static [u8]) -> Put {
    Put {
        target: target(key),
        payload: PutPayload::from_static(body),
    }
}

fn get(key: &str) -> Get {
    Get {
        target: target(key),
        range: ByteRange::Whole,
    }
}

fn sha256(body: &[u8]) -> String {
    BASE64_STANDARD.encode(Sha256::digest(body))
}

fn s3(server: &Recorder) -> S3Config {
    S3Config {
        bucket: "bucket".to_owned(),
        endpoint: Some(server.url().to_owned()),
        allow_http: true,
        access_key_id: Some("AKIAMARKED".to_owned()),
        secret_access_key: Some("secretMARKED".to_owned()),
        ..S3Config::default()
    }
}

fn open(config: S3Config) -> Backend {
    ObjectStoreConfig::S3(config).open().unwrap()
}

fn query(seen: &Seen) -> Vec<(String, String)> {
    ::url::form_urlencoded::parse(seen.query().as_bytes())
        .into_owned()
        .collect()
}

/// Answers as S3 would.
fn playing_s3(seen: &Seen) -> Response {
    let xml = |body: &str| {
        answer(
            StatusCode::OK,
            &[("content-type", "application/xml")],
            body.to_owned(),
        )
    };
    match (seen.method.as_str(), seen.query()) {
        ("POST", query) if query.starts_with("uploads") => xml(
            "<InitiateMultipartUploadResult><UploadId>upload 1</UploadId>\
             </InitiateMultipartUploadResult>",
        ),
        ("POST", _) => xml(
            "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>",
        ),
        ("PUT", _) => {
            let checksum = seen.header(CHECKSUM).unwrap_or("none");
            answer(
                StatusCode::OK,
                &[("etag", "\"tag\""), (CHECKSUM, checksum)],
                "",
            )
        }
        ("DELETE", _) => answer(StatusCode::NO_CONTENT, &[], ""),
        _ => answer(StatusCode::NOT_FOUND, &[], ""),
    }
}

#[tokio::test]
async fn a_put_has_its_length_its_checksum_and_a_signature() {
    let server = Recorder::start(playing_s3).await;
    let backend = open(s3(&server));
    let written = backend
        .client
        .put(put("tier/a.index", b"bytes"))
        .await
        .unwrap();
    assert_eq!(written.e_tag.as_deref(), Some("\"tag\""));

    let seen = server.only();
    assert_eq!(
        (seen.method.as_str(), seen.uri.path()),
        ("PUT", "/bucket/tier/a.index")
    );
    assert_eq!(seen.body, "bytes");
    assert_eq!(seen.header("content-length"), Some("5"));
    assert_eq!(seen.header("transfer-encoding"), None);
    assert_eq!(seen.header(CHECKSUM).unwrap(), sha256(b"bytes"));
    assert_eq!(seen.header("if-none-match"), None);
    let signature = seen.header("authorization").unwrap();
    assert!(
        signature.starts_with("AWS4-HMAC-SHA256 Credential=AKIAMARKED/"),
        "{signature}"
    );
    assert!(
        signature.contains("/us-east-1/s3/aws4_request"),
        "{signature}"
    );
}

#[tokio::test]
async fn what_the_configuration_says_of_uploads_is_sent() {
    let server = Recorder::start(playing_s3).await;
    let backend = open(S3Config {
        region: "eu-west-1".to_owned(),
        session_token: Some("token".to_owned()),
        checksum_sha256: false,
        sse_kms_key_id: Some("kms-key".to_owned()),
        storage_class: Some("GLACIER_IR".to_owned()),
        options: [("aws_request_payer".to_owned(), "requester".to_owned())].into(),
        ..s3(&server)
    });
    for key in ["a.log", "a.index"] {
        backend
            .client
            .clone()
            .put(put(key, b"bytes"))
            .await
            .unwrap();
        let start = StartUpload {
            target: target(key),
        };
        backend.client.clone().start_upload(start).await.unwrap();
    }
    for seen in server.seen() {
        assert_eq!(seen.header("x-amz-security-token"), Some("token"));
        assert_eq!(seen.header(CHECKSUM), None);
        assert_eq!(seen.header("x-amz-checksum-algorithm"), None);
        assert_eq!(seen.header("x-amz-server-side-encryption"), Some("aws:kms"));
        let kms = "x-amz-server-side-encryption-aws-kms-key-id";
        assert_eq!(seen.header(kms), Some("kms-key"));
        assert_eq!(seen.header("x-amz-request-payer"), Some("requester"));
        assert!(
            seen.header("authorization")
                .unwrap()
                .contains("/eu-west-1/s3/")
        );
        // Indexes are small and read often: they stay in the standard class.
        let log = seen.uri.path().ends_with(".log");
        assert_eq!(
            seen.header("x-amz-storage-class"),
            log.then_some("GLACIER_IR")
        );
    }
}

#[tokio::test]
async fn each_part_has_its_length_and_its_checksum() {
    let server = Recorder::start(playing_s3).await;
    let client = open(s3(&server)).client;
    let target = target("a.log");
    let start = StartUpload {
        target: target.clone(),
    };
    let upload = client.clone().start_upload(start).await.unwrap();
    assert_eq!(&*upload, "upload 1");
    let bodies: [&'static [u8]; 2] = [b"first", b"second part"];
    let mut tags = Vec::new();
    for (number, body) in (1..).zip(bodies) {
        let part = PutPart {
            target: target.clone(),
            upload: UploadId::clone(&upload),
            number,
            offset: 0,
            payload: PutPayload::from_static(body),
        };
        tags.push(client.clone().put_part(part).await.unwrap());
    }
    let complete = CompleteUpload {
        target: target.clone(),
        upload: UploadId::clone(&upload),
        parts: tags.into(),
        mode: WriteMode::Overwrite,
    };
    let written = client.clone().complete_upload(complete).await.unwrap();
    assert_eq!(written.e_tag.as_deref(), Some("\"whole\""));
    let abort = AbortUpload { target, upload };
    client.abort_upload(abort).await.unwrap();

    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[0].header("x-amz-checksum-algorithm"), Some("SHA256"));
    for (at, body) in bodies.into_iter().enumerate() {
        let part = &seen[at + 1];
        assert_eq!(part.method, Method::PUT);
        assert_eq!(part.body, body);
        assert_eq!(
            part.header("content-length").unwrap(),
            body.len().to_string()
        );
        assert_eq!(part.header("transfer-encoding"), None);
        assert_eq!(part.header(CHECKSUM).unwrap(), sha256(body));
        let asked = [
            ("partNumber", (at + 1).to_string()),
            ("uploadId", "upload 1".to_owned()),
        ];
        assert_eq!(
            query(part),
            asked.map(|(name, value)| (name.to_owned(), value))
        );
        let listed = format!("<ChecksumSHA256>{}</ChecksumSHA256>", sha256(body));
        let completion = std::str::from_utf8(&seen[3].body).unwrap();
        assert!(completion.contains(&listed), "{completion}");
    }
    let length = seen[3].body.len().to_string();
    assert_eq!(seen[3].header("content-length"), Some(length.as_str()));
    assert_eq!(seen[4].method, Method::DELETE);
}

#[tokio::test]
async fn with_checksums_every_put_and_every_part_has_one_whatever_was_configured() {
    let crc64 = [("aws_checksum_algorithm".to_owned(), "crc64nvme".to_owned())];
    for (checksum_sha256, options, header) in [
        (true, [].into(), CHECKSUM),
        (false, [].into(), CHECKSUM),
        (false, crc64.into(), "x-amz-checksum-crc64nvme"),
    ] {
        let server = Recorder::start(playing_s3).await;
        let config = S3Config {
            checksum_sha256,
            options,
            ..s3(&server)
        };
        let mut backend = open(config);
        backend.limits.max_writes = 3;
        let backend = backend.with_checksums().unwrap();
        assert_eq!(backend.limits.max_writes, 3, "the rest stays as it was");
        let client = backend.client;
        client.clone().put(put("a.index", b"put")).await.unwrap();
        let create = Create {
            target: target("a.manifest"),
            payload: PutPayload::from_static(b"create"),
            sha256: Sha256::digest(b"create").into(),
        };
        client.clone().create(create).await.unwrap();
        let start = StartUpload {
            target: target("a.log"),
        };
        let upload = client.clone().start_upload(start).await.unwrap();
        for number in 1..=3 {
            let part = PutPart {
                target: target("a.log"),
                upload: UploadId::clone(&upload),
                number,
                offset: 0,
                payload: vec![7; number as usize].into(),
            };
            client.clone().put_part(part).await.unwrap();
        }
        let seen = server.seen();
        let puts: Vec<_> = seen
            .iter()
            .filter(|seen| seen.method == Method::PUT)
            .collect();
        assert_eq!(puts.len(), 5);
        for put in puts {
            assert!(put.header(header).is_some(), "{put:?}");
        }
    }
}

#[tokio::test]
async fn a_create_is_conditional_or_refused_before_it_is_sent() {
    let create = || Create {
        target: target("a.manifest"),
        payload: PutPayload::from_static(b"bytes"),
        sha256: Sha256::digest(b"bytes").into(),
    };
    let server = Recorder::start(playing_s3).await;
    let written = open(s3(&server)).client.create(create()).await.unwrap();
    assert!(written.create_precondition);
    assert_eq!(server.only().header("if-none-match"), Some("*"));

    let server = Recorder::start(playing_s3).await;
    let unconditional = S3Config {
        conditional_put: false,
        ..s3(&server)
    };
    let error = open(unconditional)
        .client
        .create(create())
        .await
        .unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_delete_is_one_delete() {
    let server = Recorder::start(playing_s3).await;
    let delete = Delete {
        target: target("a.log"),
    };
    open(s3(&server)).client.delete(delete).await.unwrap();
    let seen = server.only();
    assert_eq!(
        (seen.method.as_str(), seen.uri.path()),
        ("DELETE", "/bucket/a.log")
    );
    assert_eq!(seen.query(), "");
}

#[tokio::test]
async fn the_client_itself_repeats_nothing() {
    let server = Recorder::start(|_| {
        answer(
            StatusCode::SERVICE_UNAVAILABLE,
            &[],
            "<Code>SlowDown</Code>",
        )
    })
    .await;
    let client = open(s3(&server)).client;
    let error = client.clone().get(get("a.log")).await.unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(503), true));
    assert_eq!(server.seen().len(), 1);
    let error = client
        .clone()
        .put(put("a.log", b"bytes"))
        .await
        .unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(503), true));
    assert_eq!(server.seen().len(), 2);
    let list = ListUploads {
        target: target("tier"),
    };
    let error = client.list_uploads(list).await.unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(503), true));
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_redirect_is_a_final_error_that_names_the_region() {
    let server = Recorder::start(|_| {
        let region = [("x-amz-bucket-region", "eu-central-1")];
        answer(
            StatusCode::MOVED_PERMANENTLY,
            &region,
            "<Code>PermanentRedirect</Code>",
        )
    })
    .await;
    let client = open(s3(&server)).client;
    for error in [
        client.clone().get(get("a.log")).await.unwrap_err(),
        client
            .clone()
            .put(put("a.log", b"bytes"))
            .await
            .unwrap_err(),
    ] {
        assert_eq!((error.status(), error.is_retryable()), (Some(301), false));
        assert!(everything_of(&error).contains("eu-central-1"), "{error:?}");
    }
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn no_secret_comes_back_in_an_error() {
    // What AWS says of a token that has expired, and of a signature that does not match.
    let server = Recorder::start(|_| {
        let body = "<Error><Code>ExpiredToken</Code><Message>The token tokenMARKED of \
                    AKIAMARKED has expired.</Message><Token-0>anotherMARKED</Token-0>\
                    <AWSAccessKeyId>AKIAMARKED</AWSAccessKeyId><StringToSign>MARKED</StringToSign>\
                    </Error>";
        answer(StatusCode::BAD_REQUEST, &[], body)
    })
    .await;
    let config = S3Config {
        session_token: Some("tokenMARKED".to_owned()),
        ..s3(&server)
    };
    let client = open(config).client;
    let list = ListUploads {
        target: target("tier"),
    };
    for error in [
        client.clone().get(get("a.log")).await.unwrap_err(),
        client
            .clone()
            .put(put("a.log", b"bytes"))
            .await
            .unwrap_err(),
        client.clone().list_uploads(list).await.unwrap_err(),
    ] {
        let text = everything_of(&error);
        assert!(text.contains("ExpiredToken"), "{text}");
        assert!(text.contains("The token *** of *** has expired."), "{text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[tokio::test]
async fn credentials_of_the_surroundings_are_read_again_when_they_are_refused() {
    let server = Recorder::start(|_| answer(StatusCode::FORBIDDEN, &[], "")).await;
    let fixed = open(s3(&server)).client;
    let head = || Head {
        target: target("a.log"),
    };
    let error = fixed.head(head()).await.unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(403), false));

    let surroundings: Environment = [
        ("AWS_ACCESS_KEY_ID", "ambient"),
        ("AWS_SECRET_ACCESS_KEY", "secretMARKED"),
    ]
    .into_iter()
    .collect();
    let config = S3Config {
        access_key_id: None,
        secret_access_key: None,
        ..s3(&server)
    };
    let client = config.open(&surroundings).unwrap().client;
    for repeatable in [true, false] {
        let error = client.clone().head(head()).await.unwrap_err();
        assert_eq!(
            (error.status(), error.is_retryable()),
            (Some(403), repeatable)
        );
    }
    for seen in &server.seen()[1..] {
        assert!(
            seen.header("authorization")
                .unwrap()
                .contains("Credential=ambient/")
        );
    }
}

#[cfg(feature = "gcp")]
#[tokio::test]
async fn gcs_is_asked_with_its_token_and_the_same_care() {
    let server = Recorder::start(|seen| match seen.method.as_str() {
        "PUT" => answer(StatusCode::OK, &[("etag", "\"tag\"")], ""),
        "GET" => {
            let body = "<ListMultipartUploadsResult><Upload><Key>tier/a.log</Key><UploadId>1\
                        </UploadId></Upload></ListMultipartUploadsResult>";
            answer(StatusCode::OK, &[], body)
        }
        _ => answer(StatusCode::UNAUTHORIZED, &[], "<Code>tokenMARKED</Code>"),
    })
    .await;
    let config = GcsConfig {
        bucket: "bucket".to_owned(),
        endpoint: Some(server.url().to_owned()),
        allow_http: true,
        options: [("google_bearer_token".to_owned(), "tokenMARKED".to_owned())].into(),
        ..GcsConfig::default()
    };
    let backend = ObjectStoreConfig::Gcs(config).open().unwrap();
    let handles = crate::backends::StoreHandles::opaque(backend.object_store.clone().unwrap());
    let text = format!("{backend:?} {:?} {handles:?}", backend.client);
    assert!(!text.contains("MARKED"), "{text}");
    let client = backend.client;
    client
        .clone()
        .put(put("tier/a.log", b"bytes"))
        .await
        .unwrap();
    let create = Create {
        target: target("tier/a.log"),
        payload: PutPayload::from_static(b"bytes"),
        sha256: Sha256::digest(b"bytes").into(),
    };
    client.clone().create(create).await.unwrap();
    let list = ListUploads {
        target: target("tier"),
    };
    let uploads = client.clone().list_uploads(list).await.unwrap().unwrap();
    assert_eq!(uploads.len(), 1);
    assert_eq!(
        (uploads[0].key.as_ref(), &*uploads[0].upload),
        ("tier/a.log", "1")
    );

    let seen = server.seen();
    assert_eq!(seen[0].header("content-length"), Some("5"));
    assert_eq!(seen[0].header("transfer-encoding"), None);
    assert_eq!(seen[0].header("x-goog-if-generation-match"), None);
    assert_eq!(seen[1].header("x-goog-if-generation-match"), Some("0"));
    assert_eq!(seen[2].uri.path(), "/bucket");
    assert_eq!(seen[2].query(), "uploads&max-uploads=1000&prefix=tier%2F");
    for seen in seen {
        assert_eq!(seen.header("authorization"), Some("Bearer tokenMARKED"));
    }

    let delete = Delete {
        target: target("a"),
    };
    let error = client.delete(delete).await.unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(401), false));
    assert!(!everything_of(&error).contains("MARKED"));
}

#[cfg(feature = "azure")]
#[tokio::test]
async fn azure_is_asked_with_its_key_or_its_sas_and_shows_neither() {
    let server = Recorder::start(|seen| match seen.method.as_str() {
        "PUT" => answer(StatusCode::CREATED, &[("etag", "\"tag\"")], ""),
        _ => answer(StatusCode::FORBIDDEN, &[], "sig is MARKEDsignature"),
    })
    .await;
    let config = |access_key: Option<&str>, sas_token: Option<&str>| {
        ObjectStoreConfig::Azure(AzureConfig {
            container: "container".to_owned(),
            endpoint: Some(server.url().to_owned()),
            use_emulator: true,
            access_key: access_key.map(str::to_owned),
            sas_token: sas_token.map(str::to_owned),
            ..AzureConfig::default()
        })
    };
    let with_key = config(None, None).open().unwrap().client;
    with_key
        .clone()
        .put(put("tier/a.log", b"bytes"))
        .await
        .unwrap();
    let seen = server.only();
    assert_eq!(seen.uri.path(), "/devstoreaccount1/container/tier/a.log");
    assert_eq!(seen.header("content-length"), Some("5"));
    assert_eq!(seen.header("transfer-encoding"), None);
    let signature = seen.header("authorization").unwrap();
    assert!(
        signature.starts_with("SharedKey devstoreaccount1:"),
        "{signature}"
    );
    let list = ListUploads {
        target: target("tier"),
    };
    assert_eq!(with_key.list_uploads(list).await.unwrap(), None);

    let with_sas = config(None, Some("sv=2024&sig=MARKEDsignature"))
        .open()
        .unwrap();
    with_sas
        .client
        .clone()
        .put(put("b", b"bytes"))
        .await
        .unwrap();
    let seen = server.seen().pop().unwrap();
    assert!(
        seen.query().contains("sig=MARKEDsignature"),
        "{}",
        seen.query()
    );
    assert_eq!(seen.header("authorization"), None);
    let error = with_sas.client.clone().get(get("b")).await.unwrap_err();
    assert_eq!(error.status(), Some(403));
    let text = everything_of(&error);
    assert!(!text.contains("MARKED"), "{text}");
    let text = format!("{:?} {with_sas:?}", with_sas.client);
    assert!(!text.contains("MARKED"), "{text}");
}
