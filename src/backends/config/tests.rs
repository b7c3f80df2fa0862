//! The URL form, and what a configuration shows of itself.

use std::sync::Arc;

use super::*;
use crate::backends::RequestLimits;
use crate::layout::KeyPrefix;
#[cfg(feature = "aws")]
use std::time::Duration;

fn from_url(url: &str, environment: &[(&str, &str)]) -> Result<ObjectStoreConfig, String> {
    let environment: Environment = environment.iter().copied().collect();
    ObjectStoreConfig::from_url_in(url, &environment).map_err(|error| {
        assert!(
            matches!(error, RemoteStorageError::InvalidArgument(_)),
            "{error:?}"
        );
        format!("{error} {error:?}")
    })
}

#[cfg(feature = "aws")]
fn s3(url: &str, environment: &[(&str, &str)]) -> S3Config {
    match from_url(url, environment).unwrap() {
        ObjectStoreConfig::S3(config) => config,
        other => panic!("{other:?}"),
    }
}

#[cfg(feature = "gcp")]
fn gcs(url: &str, environment: &[(&str, &str)]) -> GcsConfig {
    match from_url(url, environment).unwrap() {
        ObjectStoreConfig::Gcs(config) => config,
        other => panic!("{other:?}"),
    }
}

#[cfg(feature = "azure")]
fn azure(url: &str, environment: &[(&str, &str)]) -> AzureConfig {
    match from_url(url, environment).unwrap() {
        ObjectStoreConfig::Azure(config) => config,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_url_names_an_absolute_directory() {
    for (url, root) in [
        ("file:///var/tier", "/var/tier"),
        ("file://localhost/var/tier", "/var/tier"),
        ("FILE:///var/tier/", "/var/tier/"),
        (
            "file:///with%20blank/100%25/%C3%BC/a%3Fb",
            "/with blank/100%/ü/a?b",
        ),
        ("file:///a@b", "/a@b"),
    ] {
        let ObjectStoreConfig::Local { root: read } = from_url(url, &[]).unwrap() else {
            panic!("{url}");
        };
        assert_eq!(read, PathBuf::from(root));
    }
}

#[test]
fn a_memory_url_is_no_more_than_its_scheme() {
    for url in ["memory:///", "memory://"] {
        assert!(matches!(
            from_url(url, &[]).unwrap(),
            ObjectStoreConfig::InMemory
        ));
    }
}

#[test]
fn what_is_no_tier_url_is_refused_and_not_repeated() {
    for (url, why) in [
        ("", "begins with"),
        ("MARKED", "begins with"),
        ("/var/MARKED", "begins with"),
        ("file:MARKED", "begins with"),
        ("http://MARKED/x", "begins with"),
        ("s3a://MARKED/x", "begins with"),
        ("file://MARKED/dir", "absolute path"),
        ("file://", "absolute path"),
        ("file://MARKED", "absolute path"),
        ("file:///a%00MARKED", "NUL"),
        ("memory:///MARKED", "no more"),
        ("memory://MARKED/", "no more"),
        ("s3://AKIA:MARKED@bucket/prefix", "user info"),
        ("s3://MARKED@bucket", "user info"),
        ("s3://AKIA:MARKED/secret@bucket/prefix", "user info"),
        ("s3://MARKED:9000/prefix", "port"),
        ("file://MARKED@localhost/dir", "user info"),
        ("az://container/p?sig=MARKED", "query"),
        ("gs://bucket?MARKED", "query"),
        ("file:///dir?MARKED", "query"),
        ("s3://bucket/p#MARKED", "fragment"),
    ] {
        let text = from_url(url, &[]).unwrap_err();
        assert!(text.contains(why), "{url}: {text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
#[test]
fn bucket_and_prefix_come_from_the_url_and_are_checked() {
    let account = [("AZURE_STORAGE_ACCOUNT_NAME", "account")];
    for (path, prefix) in [
        ("", None),
        ("/", None),
        ("///", None),
        ("/tier", Some("tier")),
        ("/tier/", Some("tier")),
        ("/a/b%20c/%C3%BC", Some("a/b c/ü")),
        ("/a%2Fb", Some("a/b")),
        ("/a@b:c", Some("a@b:c")),
    ] {
        let config = s3(&format!("s3://my-bucket.1{path}"), &[]);
        assert_eq!(config.bucket, "my-bucket.1");
        assert_eq!(config.prefix.as_deref(), prefix, "{path}");
        let config = gcs(&format!("gs://my_bucket{path}"), &[]);
        assert_eq!(config.bucket, "my_bucket");
        assert_eq!(config.prefix.as_deref(), prefix, "{path}");
        let config = azure(&format!("az://$root{path}"), &account);
        assert_eq!(config.container, "$root");
        assert_eq!(config.prefix.as_deref(), prefix, "{path}");
    }
    for (url, why) in [
        ("s3://", "`bucket`"),
        ("s3:///prefix", "`bucket`"),
        ("gs://", "`bucket`"),
        ("az:///prefix", "`container`"),
        ("s3://AKIA MARKED/x", "`bucket`"),
        ("s3://bucket/%FF", "UTF-8"),
        ("s3://bucket/MARKED//b", "prefix"),
        ("gs://bucket/a/%2E%2E/b", "prefix"),
        ("az://container/a%0Ab", "prefix"),
    ] {
        let text = from_url(url, &account).unwrap_err();
        assert!(text.contains(why), "{url}: {text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
    let text = from_url("az://container", &[]).unwrap_err();
    assert!(text.contains("`account`"), "{text}");
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_store_whose_feature_is_off_is_refused_by_the_name_of_the_feature() {
    assert!(from_url("s3://bucket", &[]).unwrap_err().contains("`aws`"));
}

#[cfg(not(feature = "gcp"))]
#[test]
fn gcs_without_its_feature_is_refused_by_the_name_of_the_feature() {
    assert!(from_url("gs://bucket", &[]).unwrap_err().contains("`gcp`"));
}

#[cfg(not(feature = "azure"))]
#[test]
fn azure_without_its_feature_is_refused_by_the_name_of_the_feature() {
    assert!(
        from_url("az://container", &[])
            .unwrap_err()
            .contains("`azure`")
    );
}

#[cfg(feature = "aws")]
#[test]
fn the_rest_of_an_s3_url_comes_from_the_aws_variables() {
    let config = s3(
        "s3://bucket/p",
        &[
            ("AWS_BUCKET", "another"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_SESSION_TOKEN", "token"),
            ("AWS_DEFAULT_REGION", "eu-west-1"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:8333"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "no"),
            ("AWS_CONDITIONAL_PUT", "disabled"),
            ("AWS_CHECKSUM_ALGORITHM", "crc64nvme"),
            ("AWS_REQUEST_PAYER", "requester"),
            ("AWS_CONNECT_TIMEOUT", "2s"),
            ("AWS_TIMEOUT", "1m"),
            ("AWS_PROFILE", "unknown to object_store"),
            ("AWS_ROLE_ARN", ""),
            ("HOME", "/root"),
        ],
    );
    assert_eq!(config.bucket, "bucket");
    assert_eq!(config.access_key_id.as_deref(), Some("id"));
    assert_eq!(config.secret_access_key.as_deref(), Some("secret"));
    assert_eq!(config.session_token.as_deref(), Some("token"));
    assert_eq!(config.region, "eu-west-1");
    assert_eq!(config.endpoint.as_deref(), Some("http://127.0.0.1:8333"));
    assert!(config.allow_http);
    assert!(!config.virtual_hosted_style);
    assert!(!config.conditional_put);
    assert!(!config.checksum_sha256);
    assert_eq!(config.connect_timeout, Duration::from_secs(2));
    assert_eq!(config.request_timeout, Duration::from_mins(1));
    let options: Vec<_> = config.options.iter().collect();
    let (checksum, payer) = ("crc64nvme".to_owned(), "requester".to_owned());
    assert_eq!(
        options,
        [
            (&"aws_checksum_algorithm".to_owned(), &checksum),
            (&"aws_request_payer".to_owned(), &payer)
        ]
    );

    let config = s3(
        "s3://bucket",
        &[
            ("AWS_REGION", "us-west-2"),
            ("AWS_DEFAULT_REGION", "eu-west-1"),
            ("AWS_ENDPOINT_URL", "https://store.example"),
            ("AWS_ENDPOINT_URL_S3", "https://s3.store.example"),
            ("AWS_CHECKSUM_ALGORITHM", "SHA256"),
        ],
    );
    assert_eq!(config.region, "us-west-2");
    assert_eq!(config.endpoint.as_deref(), Some("https://s3.store.example"));
    assert!(config.checksum_sha256 && config.conditional_put);

    // As `object_store` does, where nothing is said.
    assert_eq!(s3("s3://bucket", &[]).region, "us-east-1");
}

#[cfg(feature = "aws")]
#[test]
fn a_variable_that_cannot_be_read_is_refused_by_name() {
    for (variable, value, why) in [
        ("AWS_ALLOW_HTTP", "MARKED", "AWS_ALLOW_HTTP"),
        ("AWS_CONNECT_TIMEOUT", "MARKED", "AWS_CONNECT_TIMEOUT"),
        ("AWS_CONDITIONAL_PUT", "MARKED", "AWS_CONDITIONAL_PUT"),
        (
            "AWS_ENDPOINT_URL",
            "https://user:MARKED@store.example",
            "user info",
        ),
        ("AWS_ENDPOINT_URL", "http://MARKED.example", "allow_http"),
        ("AWS_ACCESS_KEY_ID", "MARKED", "`secret_access_key`"),
        ("AWS_S3_EXPRESS", "true", "aws_s3_express"),
        (
            "AWS_HTTP2_MAX_FRAME_SIZE",
            "MARKED",
            "aws_http2_max_frame_size",
        ),
    ] {
        let text = from_url("s3://bucket", &[(variable, value)]).unwrap_err();
        assert!(text.contains(why), "{text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[cfg(feature = "gcp")]
#[test]
fn the_rest_of_a_gcs_url_comes_from_the_google_variables() {
    let config = gcs(
        "gs://bucket/p",
        &[
            ("GOOGLE_BUCKET", "another"),
            ("GOOGLE_SERVICE_ACCOUNT", "/etc/key.json"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/adc.json"),
            ("GOOGLE_BASE_URL", "https://gcs.example"),
            ("GOOGLE_PROXY_URL", "http://proxy.example"),
        ],
    );
    assert_eq!(config.bucket, "bucket");
    assert_eq!(
        config.service_account_path.as_deref(),
        Some("/etc/key.json")
    );
    assert_eq!(
        config.application_credentials_path.as_deref(),
        Some("/etc/adc.json")
    );
    assert_eq!(config.endpoint.as_deref(), Some("https://gcs.example"));
    assert!(!config.allow_http);
    assert!(config.options.contains_key("google_proxy_url"));

    let config = gcs("gs://bucket", &[("SERVICE_ACCOUNT", "/etc/key.json")]);
    assert_eq!(
        config.service_account_path.as_deref(),
        Some("/etc/key.json")
    );

    // An emulator is named in the key alone, as `object_store` has it.
    let key = r#"{"gcs_base_url":"http://127.0.0.1:4443","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}"#;
    let config = gcs("gs://bucket", &[("GOOGLE_SERVICE_ACCOUNT_KEY", key)]);
    assert!(config.allow_http);
    let denied = [
        ("GOOGLE_SERVICE_ACCOUNT_KEY", key),
        ("GOOGLE_ALLOW_HTTP", "false"),
    ];
    let text = from_url("gs://bucket", &denied).unwrap_err();
    assert!(text.contains("allow_http"), "{text}");
}

#[cfg(feature = "azure")]
#[test]
fn the_rest_of_an_azure_url_comes_from_the_azure_variables() {
    let config = azure(
        "az://container/p",
        &[
            ("AZURE_CONTAINER_NAME", "another"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_STORAGE_ENDPOINT", "https://blob.example"),
            ("AZURE_STORAGE_ACCESS_KEY", "a2V5"),
            ("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=2"),
            ("AZURE_CLIENT_ID", "of something else"),
        ],
    );
    assert_eq!(config.container, "container");
    assert_eq!(config.account, "account");
    assert_eq!(config.endpoint.as_deref(), Some("https://blob.example"));
    // The one of several that `object_store` would take.
    assert_eq!(config.access_key.as_deref(), Some("a2V5"));
    assert_eq!(config.sas_token, None);
    assert!(config.options.is_empty());

    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "account");
    let client = [
        account,
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "secret"),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_STORAGE_SAS_KEY", "sv=1&sig=2"),
    ];
    let config = azure("az://container", &client);
    assert_eq!(config.client_id.as_deref(), Some("client"));
    assert_eq!(config.client_secret.as_deref(), Some("secret"));
    assert_eq!(config.tenant_id.as_deref(), Some("tenant"));
    assert_eq!(config.sas_token, None);

    let config = azure("az://container", &[account, client[4], client[1]]);
    assert_eq!(config.sas_token.as_deref(), Some("sv=1&sig=2"));
    assert_eq!(config.client_id, None);

    // A workload's identity stays with the surroundings.
    let file = ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token");
    let config = azure("az://container", &[account, client[1], client[3], file]);
    assert_eq!(config.client_id, None);
    assert_eq!(config.options.len(), 3);

    let config = azure(
        "az://container",
        &[
            ("AZURE_STORAGE_USE_EMULATOR", "true"),
            ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10001"),
            ("AZURE_STORAGE_ENDPOINT", "https://blob.example"),
        ],
    );
    assert!(config.use_emulator);
    assert_eq!(config.endpoint.as_deref(), Some("http://127.0.0.1:10001"));
}

#[cfg(all(feature = "aws", feature = "gcp", feature = "azure"))]
#[test]
fn no_debug_shows_a_secret() {
    let marked = || Some("MARKED".to_owned());
    let options = [(
        "proxy_url".to_owned(),
        "http://user:MARKED@proxy".to_owned(),
    )];
    for endpoint in ["https://user:MARKED@host", "https://host?sig=MARKED"] {
        let endpoint = Some(endpoint.to_owned());
        let configs = [
            ObjectStoreConfig::S3(S3Config {
                bucket: "bucket".to_owned(),
                endpoint: endpoint.clone(),
                access_key_id: marked(),
                secret_access_key: marked(),
                session_token: marked(),
                sse_kms_key_id: marked(),
                options: options.clone().into(),
                ..S3Config::default()
            }),
            ObjectStoreConfig::Gcs(GcsConfig {
                bucket: "bucket".to_owned(),
                endpoint: endpoint.clone(),
                service_account_path: marked(),
                service_account_key: marked(),
                application_credentials_path: marked(),
                options: options.clone().into(),
                ..GcsConfig::default()
            }),
            ObjectStoreConfig::Azure(AzureConfig {
                container: "bucket".to_owned(),
                endpoint: endpoint.clone(),
                access_key: marked(),
                sas_token: marked(),
                client_id: marked(),
                client_secret: marked(),
                tenant_id: marked(),
                options: options.clone().into(),
                ..AzureConfig::default()
            }),
        ];
        for config in configs {
            for text in [format!("{config:?}"), format!("{config:#?}")] {
                assert!(!text.contains("MARKED"), "{text}");
                assert!(text.contains("***"), "{text}");
                assert!(
                    text.contains("\"bucket\"") && text.contains("proxy_url"),
                    "{text}"
                );
            }
            let text = format!("{:?}", config.validate().unwrap_err());
            assert!(!text.contains("MARKED"), "{text}");
        }
    }
}

#[test]
fn opening_a_local_tier_makes_its_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("a/b");
    let config = ObjectStoreConfig::Local { root: root.clone() };
    config.validate().unwrap();
    assert!(!root.exists());
    for _ in 0..2 {
        let backend = config.open().unwrap();
        assert!(root.is_dir());
        let expected = format!("file://{}", root.canonicalize().unwrap().display());
        assert_eq!(backend.location(), expected);
        assert!(backend.object_store.is_some());
    }

    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for root in [file.clone(), file.join("below")] {
        let error = ObjectStoreConfig::Local { root }.open().unwrap_err();
        assert!(matches!(error, RemoteStorageError::Io(_)), "{error:?}");
        assert!(error.to_string().contains("file"), "{error}");
    }
    let error = ObjectStoreConfig::Local {
        root: PathBuf::new(),
    }
    .open()
    .unwrap_err();
    assert!(
        matches!(error, RemoteStorageError::InvalidArgument(_)),
        "{error:?}"
    );
}

#[test]
fn a_store_made_elsewhere_takes_a_prefix_and_the_default_limits() {
    let store = || Arc::new(object_store::memory::InMemory::new());
    let backend = Backend::from_object_store(store(), Some(" /tier/ ")).unwrap();
    assert_eq!(backend.prefix.as_path().as_ref(), "tier");
    assert_eq!(backend.limits, RequestLimits::default());
    assert_eq!(backend.location(), "InMemory/tier");
    assert!(format!("{backend:?}").contains("InMemory/tier"));

    let backend = Backend::from_object_store(store(), None).unwrap();
    assert_eq!(backend.prefix, KeyPrefix::default());
    Backend::from_object_store(store(), Some("a//b")).unwrap_err();
}
