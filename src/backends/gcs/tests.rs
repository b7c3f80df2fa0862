use super::*;

const KEY: &str =
    r#"{"disable_oauth":true,"client_email":"","private_key":"keyMARKED","private_key_id":""}"#;

fn valid() -> GcsConfig {
    GcsConfig {
        bucket: "bucket".to_owned(),
        service_account_key: Some(KEY.to_owned()),
        ..GcsConfig::default()
    }
}

fn refused(change: impl FnOnce(&mut GcsConfig)) -> String {
    let mut config = valid();
    change(&mut config);
    let error = config.validate().unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::InvalidArgument(_)),
        "{error:?}"
    );
    // What cannot be valid cannot be opened.
    config.open(&Environment::default()).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!text.contains("MARKED"), "{text}");
    text
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = GcsConfig::default();
    assert_eq!(config.bucket, "");
    assert_eq!(config.prefix, None);
    assert!(!config.allow_http);
    assert_eq!(config.limits(), RequestLimits::default());
    valid().validate().unwrap();
}

#[test]
fn what_the_client_would_take_without_a_word_is_refused() {
    type Change = fn(&mut GcsConfig);
    let rows: [(&str, Change); 13] = [
        ("`bucket`", |c| c.bucket.clear()),
        ("`bucket`", |c| c.bucket = "a/b".to_owned()),
        ("prefix", |c| c.prefix = Some("..".to_owned())),
        ("`service_account_path`", |c| {
            c.service_account_path = Some("/MARKED".to_owned());
        }),
        ("`service_account_key`", |c| {
            c.service_account_key = Some("MARKED".to_owned());
        }),
        ("`service_account_key`", |c| {
            c.service_account_key = Some("{\"private_key\": \"MARKED".to_owned());
        }),
        ("`allow_http`", |c| {
            let http = "{\"gcs_base_url\":\"http://MARKED\",";
            c.service_account_key = Some(KEY.replacen('{', http, 1));
        }),
        ("`allow_http`", |c| {
            c.endpoint = Some("http://MARKED.example".to_owned());
        }),
        ("no URL", |c| c.endpoint = Some("MARKED".to_owned())),
        ("`multipart_chunk_size`", |c| c.multipart_chunk_size = 0),
        ("`multipart_chunk_size`", |c| {
            c.multipart_chunk_size = 5 * 1024 * 1024 - 1;
        }),
        ("`max_reads`", |c| c.max_reads = 0),
        ("`google_bucket`", |c| {
            c.options = [("google_bucket".to_owned(), "MARKED".to_owned())].into();
        }),
    ];
    for (what, change) in rows {
        let text = refused(change);
        assert!(text.contains(what), "{what}: {text}");
    }
}

#[test]
fn a_key_file_that_is_missing_or_foreign_is_named_and_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.json");
    let config = GcsConfig {
        service_account_key: None,
        service_account_path: Some(path.to_str().unwrap().to_owned()),
        ..valid()
    };
    config.validate().unwrap();
    let error = config.open(&Environment::default()).unwrap_err();
    assert!(matches!(error, RemoteStorageError::Io(_)), "{error:?}");
    assert!(error.to_string().contains("key.json"), "{error}");

    for content in ["MARKED", "{}", "{\"private_key\":7,\"x\":\"MARKED\"}"] {
        std::fs::write(&path, content).unwrap();
        let text = format!("{:?}", config.open(&Environment::default()).unwrap_err());
        assert!(text.contains("`service_account_path`"), "{text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
    // Read, but its private key is none.
    std::fs::write(&path, KEY.replace("true", "false")).unwrap();
    let text = format!("{:?}", config.open(&Environment::default()).unwrap_err());
    assert!(text.contains("`service_account_path`"), "{text}");
    assert!(!text.contains("MARKED"), "{text}");

    std::fs::write(&path, KEY).unwrap();
    let backend = config.open(&Environment::default()).unwrap();
    assert_eq!(backend.location(), "gs://bucket");
    assert!(!format!("{backend:?} {:?}", backend.client).contains("MARKED"));
}

#[test]
fn without_credentials_they_come_from_the_environment() {
    let config = GcsConfig {
        service_account_key: None,
        ..valid()
    };
    let environment =
        |key: &str| -> Environment { [("GOOGLE_SERVICE_ACCOUNT_KEY", key)].into_iter().collect() };
    config.open(&environment(KEY)).unwrap();
    let text = format!("{:?}", config.open(&environment("MARKED")).unwrap_err());
    assert!(!text.contains("MARKED"), "{text}");
}
