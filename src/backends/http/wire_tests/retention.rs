//! What buckets say of keeping their objects, and what comes of it.

use super::*;
use crate::ops::{ReadRetention, RetentionPolicy};

const NAME_SPACE: &str = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
const VERSIONED: &str = "<Status>Enabled</Status>";
const LOCKED: &str = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";

fn versioning(content: &str, name_space: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <VersioningConfiguration{name_space}>{content}</VersioningConfiguration>"
    )
}

fn object_lock(content: &str, name_space: &str) -> String {
    format!("<ObjectLockConfiguration{name_space}>{content}</ObjectLockConfiguration>\n")
}

/// An Object Lock with this default retention.
fn retained(retention: &str) -> String {
    format!("{LOCKED}<Rule><DefaultRetention>{retention}</DefaultRetention></Rule>")
}

fn good() -> String {
    retained("<Mode>COMPLIANCE</Mode><Days>1</Days>")
}

/// What a bucket is made of: the two answers, each a status and a body.
type Answers = [(u16, String); 2];

async fn serve(answers: Answers) -> Recorder {
    Recorder::start(move |seen| {
        let (status, body) = match seen.query() {
            "versioning=" => answers[0].clone(),
            "object-lock=" => answers[1].clone(),
            other => panic!("{other}"),
        };
        answer(StatusCode::from_u16(status).unwrap(), &[], body)
    })
    .await
}

async fn read(config: S3Config) -> Result<Option<RetentionPolicy>, RemoteStorageError> {
    ask(open(config)).await
}

async fn ask(backend: Backend) -> Result<Option<RetentionPolicy>, RemoteStorageError> {
    let target = target("bucket");
    backend
        .client
        .read_retention(ReadRetention { target })
        .await
}

#[tokio::test]
async fn a_bucket_that_keeps_its_objects_is_asked_twice_and_signed_for() {
    for name_space in [NAME_SPACE, ""] {
        for period in ["<Days>1</Days>", "<Years>7</Years>", "<Days> 30\n</Days>"] {
            let lock = retained(&format!("<Mode>COMPLIANCE</Mode>{period}"));
            let server = serve([
                (200, versioning(VERSIONED, name_space)),
                (200, object_lock(&lock, name_space)),
            ])
            .await;
            let policy = read(s3(&server)).await.unwrap().unwrap();
            assert_eq!(policy.unmet, [""; 0]);
            assert!(policy.versioned);
            for seen in server.seen() {
                assert_eq!((seen.method.as_str(), seen.uri.path()), ("GET", "/bucket"));
                let signature = seen.header("authorization").unwrap();
                assert!(
                    signature.contains("/us-east-1/s3/aws4_request"),
                    "{signature}"
                );
            }
            assert_eq!(server.seen().len(), 2);
        }
    }
}

#[tokio::test]
async fn elements_are_known_by_their_local_names() {
    let server = serve([
        (
            200,
            "<s3:VersioningConfiguration xmlns:s3=\"urn:s3\"><s3:MfaDelete>Disabled</s3:MfaDelete>\
             <s3:Status>Enabled</s3:Status></s3:VersioningConfiguration>"
                .to_owned(),
        ),
        (
            200,
            "<a:ObjectLockConfiguration xmlns:a=\"urn:s3\"><a:ObjectLockEnabled>Enabled\
             </a:ObjectLockEnabled><a:Rule><a:Later/><a:DefaultRetention><a:Mode>COMPLIANCE</a:Mode>\
             <a:Days>1</a:Days></a:DefaultRetention></a:Rule></a:ObjectLockConfiguration>"
                .to_owned(),
        ),
    ])
    .await;
    let policy = read(s3(&server)).await.unwrap().unwrap();
    assert_eq!(policy.unmet, [""; 0]);
}

#[tokio::test]
async fn each_condition_of_s3_that_is_not_met_is_named() {
    let retention = |content: &str| object_lock(&retained(content), NAME_SPACE);
    let with_lock = |lock: String| [(200, versioning(VERSIONED, "")), (200, lock)];
    let with_versioning = |document: String| [(200, document), (200, object_lock(&good(), ""))];
    let none =
        "<Error><Code>ObjectLockConfigurationNotFoundError</Code><Message>no</Message></Error>";
    let rows: Vec<(Answers, &[&str])> = vec![
        (
            with_versioning(versioning("", NAME_SPACE)),
            &["its versioning is not enabled"],
        ),
        (
            with_versioning(format!("<VersioningConfiguration{NAME_SPACE}/>")),
            &["its versioning is not enabled"],
        ),
        (
            with_versioning(versioning("<Status>Suspended</Status>", "")),
            &["its versioning is `Suspended`, not `Enabled`"],
        ),
        (
            with_versioning(versioning("<Status/>", "")),
            &["its versioning is ``, not `Enabled`"],
        ),
        (
            with_versioning(versioning("<Status>enabled</Status>", "")),
            &["its versioning is `enabled`, not `Enabled`"],
        ),
        (
            [(200, versioning(VERSIONED, "")), (404, none.to_owned())],
            &["it has no Object Lock configuration"],
        ),
        (
            [(200, versioning("", "")), (404, none.to_owned())],
            &[
                "its versioning is not enabled",
                "it has no Object Lock configuration",
            ],
        ),
        (
            with_lock(object_lock("", "")),
            &[
                "its Object Lock is not enabled",
                "its Object Lock has no default retention",
            ],
        ),
        (
            with_lock(object_lock(&good().replace(LOCKED, ""), "")),
            &["its Object Lock is not enabled"],
        ),
        (
            with_lock(object_lock(&good().replace("Enabled<", "Disabled<"), "")),
            &["its Object Lock is `Disabled`, not `Enabled`"],
        ),
        (
            with_lock(object_lock(LOCKED, NAME_SPACE)),
            &["its Object Lock has no default retention"],
        ),
        (
            with_lock(object_lock(&format!("{LOCKED}<Rule></Rule>"), "")),
            &["its Object Lock has no default retention"],
        ),
        (
            with_lock(retention("<Mode>GOVERNANCE</Mode><Days>1</Days>")),
            &["its default retention has the mode `GOVERNANCE`, not `COMPLIANCE`"],
        ),
        (
            with_lock(retention("<Days>1</Days>")),
            &["its default retention has no mode"],
        ),
        (
            with_lock(retention("<Mode>COMPLIANCE</Mode>")),
            &["its default retention has no period"],
        ),
        (
            with_lock(retention(
                "<Mode>COMPLIANCE</Mode><Days>1</Days><Years>1</Years>",
            )),
            &["its default retention has both days and years"],
        ),
        (
            with_lock(retention("")),
            &[
                "its default retention has no mode",
                "its default retention has no period",
            ],
        ),
    ];
    for (answers, unmet) in rows {
        let shown = format!("{answers:?}");
        let server = serve(answers).await;
        let policy = read(s3(&server)).await.unwrap().unwrap();
        assert_eq!(policy.unmet, unmet, "{shown}");
    }
}

#[tokio::test]
async fn a_period_that_is_no_number_above_zero_is_none() {
    let retention = |content: &str| object_lock(&retained(content), NAME_SPACE);
    for period in ["0", "-1", "", "soon", "1.5", "1e3", "18446744073709551616"] {
        for unit in ["Days", "Years"] {
            let content = format!("<Mode>COMPLIANCE</Mode><{unit}>{period}</{unit}>");
            let server =
                serve([(200, versioning(VERSIONED, "")), (200, retention(&content))]).await;
            let policy = read(s3(&server)).await.unwrap().unwrap();
            let expected = format!(
                "the period of its default retention is `{period}`, not a number above zero"
            );
            assert_eq!(policy.unmet, [expected]);
        }
    }
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_is_an_error_that_names_the_request() {
    let page = |code: &str| format!("<Error><Code>{code}</Code><Message>why</Message></Error>");
    let long = |document: String| document + &" ".repeat(64 * 1024);
    let fine: Answers = [
        (200, versioning(VERSIONED, "")),
        (200, object_lock(&good(), "")),
    ];
    let rows = [
        (403, page("AccessDenied"), Some(403), "AccessDenied: why"),
        (404, page("NoSuchBucket"), Some(404), "NoSuchBucket: why"),
        (404, String::new(), Some(404), "not found"),
        (405, page("MethodNotAllowed"), Some(405), "MethodNotAllowed"),
        (501, page("NotImplemented"), Some(501), "NotImplemented"),
        (503, page("SlowDown"), Some(503), "SlowDown"),
        (301, page("PermanentRedirect"), Some(301), "redirects"),
        (204, String::new(), Some(200), "no XML document"),
        (200, String::new(), Some(200), "no XML document"),
        (200, "{}".to_owned(), Some(200), "no XML document"),
        (200, "<Other/>".to_owned(), Some(200), "no XML document"),
        (200, "<html><body>".to_owned(), Some(200), "no XML document"),
        (200, page("InternalError"), Some(200), "no XML document"),
        (
            200,
            long(fine[0].1.clone()),
            Some(200),
            "longer than 65536 bytes",
        ),
        (
            200,
            long(fine[1].1.clone()),
            Some(200),
            "longer than 65536 bytes",
        ),
    ];
    for (status, body, expected, text) in rows {
        for (at, part) in ["versioning", "object-lock"].into_iter().enumerate() {
            let mut answers = fine.clone();
            answers[at] = (status, body.clone());
            let server = serve(answers).await;
            let error = read(s3(&server)).await.unwrap_err();
            assert!(
                matches!(error, RemoteStorageError::Backend { .. }),
                "{status} {part}: {error:?}"
            );
            assert_eq!(error.status(), expected, "{error:?}");
            assert_eq!(error.is_retryable(), status > 500, "{error:?}");
            let all = everything_of(&error);
            assert!(all.contains(text), "{status} {part}: {all}");
            let line = error.to_string();
            assert!(
                line.contains("bucket?") && line.contains(part) || status == 404,
                "{line}"
            );
        }
    }
}

#[tokio::test]
async fn a_document_type_an_entity_or_a_second_value_is_no_policy() {
    let lock = object_lock(&good(), "");
    for bad in [
        format!(
            "<!DOCTYPE a [<!ENTITY e \"Enabled\">]>{}",
            versioning("<Status>&e;</Status>", "")
        ),
        format!(
            "<!DOCTYPE VersioningConfiguration>{}",
            &versioning(VERSIONED, "")[39..]
        ),
        versioning("<Status>&e;</Status>", ""),
        versioning("<Status>Suspended</Status><Status>Enabled</Status>", ""),
        versioning("<Status>Enabled</Status", ""),
    ] {
        let server = serve([(200, bad.clone()), (200, lock.clone())]).await;
        let error = read(s3(&server)).await.unwrap_err();
        assert_eq!(
            (error.status(), error.is_retryable()),
            (Some(200), false),
            "{bad}"
        );
    }
    let twice = good() + &good();
    let server = serve([
        (200, versioning(VERSIONED, "")),
        (200, object_lock(&twice, "")),
    ])
    .await;
    assert!(read(s3(&server)).await.is_err());
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_shows_no_secret() {
    let page = "<Error><Code>InvalidAccessKeyId</Code><Message>The key AKIAMARKED with tokenMARKED\
                </Message><StringToSign>MARKED</StringToSign></Error>";
    let server = serve([(403, page.to_owned()), (403, page.to_owned())]).await;
    let config = S3Config {
        session_token: Some("tokenMARKED".to_owned()),
        ..s3(&server)
    };
    let text = everything_of(&read(config).await.unwrap_err());
    assert!(text.contains("The key *** with ***"), "{text}");
    assert!(!text.contains("MARKED"), "{text}");
    let seen = server.only();
    assert_eq!(seen.header("x-amz-security-token"), Some("tokenMARKED"));
}

#[tokio::test]
async fn stores_without_buckets_promise_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    for (config, kind) in [
        (ObjectStoreConfig::InMemory, StoreKind::Memory),
        (ObjectStoreConfig::Local { root }, StoreKind::Local),
    ] {
        let backend = config.open().unwrap();
        assert_eq!(backend.kind(), &kind);
        assert_eq!(ask(backend).await.unwrap(), None);
    }
    let store = Arc::new(object_store::memory::InMemory::new());
    let backend = Backend::from_object_store(store, None).unwrap();
    assert_eq!(backend.kind(), &StoreKind::Opaque);
    assert_eq!(ask(backend).await.unwrap(), None);
}

#[cfg(feature = "gcp")]
mod google {
    use super::*;

    fn gcs(server: &Recorder, token: &str) -> Backend {
        let config = GcsConfig {
            bucket: "bucket.example_1".to_owned(),
            endpoint: Some(format!("{}/base", server.url())),
            allow_http: true,
            options: [("google_bearer_token".to_owned(), token.to_owned())].into(),
            ..GcsConfig::default()
        };
        ObjectStoreConfig::Gcs(config).open().unwrap()
    }

    async fn serve(status: u16, body: String) -> Recorder {
        Recorder::start(move |_| answer(StatusCode::from_u16(status).unwrap(), &[], body.clone()))
            .await
    }

    fn policy(period: &str, rest: &str) -> String {
        format!(
            r#"{{"retentionPolicy":{{"retentionPeriod":{period},"effectiveTime":"2024-01-01T00:00:00Z"{rest}}}}}"#
        )
    }

    #[tokio::test]
    async fn a_locked_policy_is_enough_with_or_without_versions() {
        const LOCKED: &str = r#","isLocked":true"#;
        let both = r#"{"versioning":{"enabled":true},"retentionPolicy":{"retentionPeriod":"86400","effectiveTime":"2024-01-01T00:00:00Z","isLocked":true}}"#;
        for (body, versioned) in [
            (both.to_owned(), true),
            (policy(r#""1""#, LOCKED), false),
            (policy("86400", LOCKED), false),
            (both.replace("\"enabled\":true", "\"enabled\":false"), false),
            (both.replace("\"enabled\":true", ""), false),
        ] {
            let server = serve(200, body.clone()).await;
            let policy = ask(gcs(&server, "tokenMARKED")).await.unwrap().unwrap();
            assert_eq!(policy.unmet, [""; 0], "{body}");
            assert_eq!(policy.versioned, versioned, "{body}");
            let seen = server.only();
            assert_eq!(seen.uri.path(), "/base/storage/v1/b/bucket.example_1");
            assert_eq!(seen.query(), "fields=versioning,retentionPolicy");
            assert_eq!(seen.header("authorization"), Some("Bearer tokenMARKED"));
        }
    }

    #[tokio::test]
    async fn each_condition_of_google_that_is_not_met_is_named() {
        let unlocked = "its retention policy is not locked";
        let rows: [(String, &[&str]); 7] = [
            ("{}".to_owned(), &["it has no retention policy"]),
            (
                r#"{"versioning":{"enabled":true}}"#.to_owned(),
                &["it has no retention policy"],
            ),
            (
                r#"{"retentionPolicy":null}"#.to_owned(),
                &["it has no retention policy"],
            ),
            (policy(r#""86400""#, ""), &[unlocked]),
            (policy(r#""86400""#, r#","isLocked":false"#), &[unlocked]),
            (
                r#"{"retentionPolicy":{"isLocked":true}}"#.to_owned(),
                &["its retention policy has no period"],
            ),
            (
                r#"{"retentionPolicy":{}}"#.to_owned(),
                &[unlocked, "its retention policy has no period"],
            ),
        ];
        for (body, unmet) in rows {
            let server = serve(200, body.clone()).await;
            let policy = ask(gcs(&server, "token")).await.unwrap().unwrap();
            assert_eq!(policy.unmet, unmet, "{body}");
        }
        for period in [
            "\"0\"", "0", "\"-1\"", "-1", "\"\"", "\"soon\"", "1.5", "1e3",
        ] {
            let server = serve(200, policy(period, r#","isLocked":true"#)).await;
            let policy = ask(gcs(&server, "token")).await.unwrap().unwrap();
            assert_eq!(policy.unmet.len(), 1, "{period}: {policy:?}");
            assert!(
                policy.unmet[0].contains("not a number of seconds above zero"),
                "{policy:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_policy_of_google_that_cannot_be_read_is_an_error_without_secrets() {
        let page = r#"{"error":{"code":403,"message":"tokenMARKED may not"}}"#;
        let long = policy("\"1\"", &format!(",\"x\":\"{}\"", "x".repeat(64 * 1024)));
        for (status, body, expected, text) in [
            (403, page.to_owned(), 403, "*** may not"),
            (401, String::new(), 401, "401"),
            (
                404,
                r#"{"error":{"message":"The specified bucket does not exist."}}"#.to_owned(),
                404,
                "no such bucket",
            ),
            (500, String::new(), 500, "500"),
            (200, "[]".to_owned(), 200, "no JSON document"),
            (200, String::new(), 200, "no JSON document"),
            (200, policy("true", ""), 200, "no JSON document"),
            (
                200,
                policy("1", r#","isLocked":"true""#),
                200,
                "no JSON document",
            ),
            (
                200,
                policy("1", r#","isLocked":false,"isLocked":true"#),
                200,
                "no JSON document",
            ),
            (200, long, 200, "longer than 65536 bytes"),
        ] {
            let server = serve(status, body).await;
            let error = ask(gcs(&server, "tokenMARKED")).await.unwrap_err();
            assert!(
                matches!(error, RemoteStorageError::Backend { .. }),
                "{error:?}"
            );
            assert_eq!(error.status(), Some(expected), "{error:?}");
            let all = everything_of(&error);
            assert!(all.contains(text), "{all}");
            assert!(!all.contains("MARKED"), "{all}");
        }
    }
}
