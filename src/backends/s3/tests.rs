use super::*;

fn valid() -> S3Config {
    S3Config {
        bucket: "bucket".to_owned(),
        region: "eu-west-1".to_owned(),
        access_key_id: Some("idMARKED".to_owned()),
        secret_access_key: Some("secretMARKED".to_owned()),
        ..S3Config::default()
    }
}

fn refused(change: impl FnOnce(&mut S3Config)) -> String {
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
    let config = S3Config::default();
    assert_eq!((config.bucket.as_str(), config.region.as_str()), ("", ""));
    assert_eq!(config.prefix, None);
    assert!(!config.allow_http && !config.virtual_hosted_style);
    assert!(config.conditional_put && config.checksum_sha256);
    assert_eq!(config.limits(), RequestLimits::default());
    valid().validate().unwrap();
}

#[test]
fn what_the_client_would_take_without_a_word_is_refused() {
    type Change = fn(&mut S3Config);
    let rows: [(&str, Change); 24] = [
        ("`bucket`", |c| c.bucket.clear()),
        ("`bucket`", |c| c.bucket = "a b".to_owned()),
        ("`bucket`", |c| c.bucket = "a/b".to_owned()),
        ("prefix", |c| c.prefix = Some("a//b".to_owned())),
        ("`region`", |c| c.region.clear()),
        ("`region`", |c| c.region = "eu west".to_owned()),
        ("`secret_access_key`", |c| c.secret_access_key = None),
        ("`access_key_id`", |c| c.access_key_id = None),
        ("`session_token`", |c| {
            c.session_token = Some("tokenMARKED".to_owned());
            (c.access_key_id, c.secret_access_key) = (None, None);
        }),
        ("`session_token`", |c| {
            c.session_token = Some("tokenMARKED\n".to_owned());
        }),
        ("`access_key_id`", |c| c.access_key_id = Some(String::new())),
        ("`secret_access_key`", |c| {
            c.secret_access_key = Some("MARKED\n".to_owned());
        }),
        ("`storage_class`", |c| {
            c.storage_class = Some("A\nB".to_owned());
        }),
        ("`sse_kms_key_id`", |c| {
            c.sse_kms_key_id = Some("MARKED key".to_owned());
        }),
        ("`allow_http`", |c| {
            c.endpoint = Some("http://MARKED.example".to_owned());
        }),
        ("no URL", |c| c.endpoint = Some("MARKED".to_owned())),
        ("user info", |c| {
            c.endpoint = Some("https://a:MARKED@b.example".to_owned());
        }),
        ("virtual_hosted_style", |c| {
            c.endpoint = Some("https://127.0.0.1".to_owned());
            c.virtual_hosted_style = true;
        }),
        ("`multipart_chunk_size`", |c| c.multipart_chunk_size = 0),
        ("`multipart_chunk_size`", |c| {
            c.multipart_chunk_size = 5 * 1024 * 1024 - 1;
        }),
        ("`request_timeout`", |c| c.request_timeout = Duration::ZERO),
        ("`retry_timeout`", |c| c.retry_timeout = c.request_timeout),
        ("`aws_region`", |c| {
            c.options = [("aws_region".to_owned(), "MARKED".to_owned())].into();
        }),
        ("`unknown`", |c| {
            c.options = [("unknown".to_owned(), "MARKED".to_owned())].into();
        }),
    ];
    for (what, change) in rows {
        let text = refused(change);
        assert!(text.contains(what), "{what}: {text}");
    }
}

#[test]
fn an_option_whose_value_cannot_be_read_is_refused_when_the_client_is_made() {
    for (name, value) in [
        ("aws_request_payer", "MARKED"),
        ("aws_skip_signature", "MARKED"),
        ("aws_server_side_encryption", "MARKED"),
        ("aws_pool_idle_timeout", "MARKED"),
        ("aws_proxy_url", "http://user:MARKED@"),
    ] {
        let config = S3Config {
            options: [(name.to_owned(), value.to_owned())].into(),
            ..valid()
        };
        config.validate().unwrap();
        let error = config.open(&Environment::default()).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(
            text.starts_with("`options` of the S3 store") || text.contains("AWS_"),
            "{text}"
        );
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[test]
fn small_parts_are_valid_where_no_segment_is_cut() {
    let config = S3Config {
        multipart_threshold: u64::MAX,
        multipart_chunk_size: 1,
        ..valid()
    };
    config.validate().unwrap();
}

#[test]
fn the_bucket_stands_in_the_path_or_in_the_host_name() {
    let url = |endpoint: Option<&str>, virtual_hosted_style, region: &str| {
        let config = S3Config {
            endpoint: endpoint.map(str::to_owned),
            virtual_hosted_style,
            allow_http: true,
            region: region.to_owned(),
            ..valid()
        };
        checks::base_of(&config.bucket_url().unwrap())
    };
    let aws = "eu-west-1";
    assert_eq!(
        url(None, false, aws),
        "https://s3.eu-west-1.amazonaws.com/bucket"
    );
    assert_eq!(
        url(None, true, aws),
        "https://bucket.s3.eu-west-1.amazonaws.com"
    );
    for endpoint in ["http://127.0.0.1:8333", "http://127.0.0.1:8333/"] {
        assert_eq!(
            url(Some(endpoint), false, ""),
            "http://127.0.0.1:8333/bucket"
        );
    }
    assert_eq!(
        url(Some("http://[::1]:1/base/"), false, ""),
        "http://[::1]:1/base/bucket"
    );
    for endpoint in ["https://s3.example/", "https://bucket.s3.example"] {
        assert_eq!(url(Some(endpoint), true, ""), "https://bucket.s3.example");
    }
}

#[test]
fn a_backend_shows_where_it_is_and_no_secret() {
    let config = S3Config {
        prefix: Some("/tier/".to_owned()),
        ..valid()
    };
    let backend = config.open(&Environment::default()).unwrap();
    assert_eq!(backend.location(), "s3://bucket/tier");
    assert_eq!(backend.prefix.as_path().as_ref(), "tier");
    let text = format!("{backend:?} {:?}", backend.client);
    assert!(!text.contains("MARKED"), "{text}");
}

#[test]
fn without_keys_they_come_from_the_environment() {
    let config = S3Config {
        access_key_id: None,
        secret_access_key: None,
        ..valid()
    };
    let environment = |secret: &str| -> Environment {
        [
            ("AWS_ACCESS_KEY_ID", "idMARKED"),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ]
        .into_iter()
        .collect()
    };
    config.open(&environment("secretMARKED")).unwrap();
    for secret in ["", "secretMARKED\n"] {
        let text = format!("{:?}", config.open(&environment(secret)).unwrap_err());
        assert!(text.contains("AWS_"), "{text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[test]
fn the_name_of_a_token_file_is_no_header() {
    let config = S3Config {
        access_key_id: None,
        secret_access_key: None,
        ..valid()
    };
    let environment: Environment = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/with blank/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
    ]
    .into_iter()
    .collect();
    config.open(&environment).unwrap();
}

#[test]
fn the_bucket_is_asked_by_its_path_unless_the_endpoint_names_it() {
    for (endpoint, expected) in [
        (None, "https://s3.eu-west-1.amazonaws.com/bucket"),
        (
            Some("https://store.example/base"),
            "https://store.example/base/bucket",
        ),
        (
            Some("https://bucket.store.example"),
            "https://bucket.store.example/",
        ),
    ] {
        let config = S3Config {
            bucket: "bucket".to_owned(),
            region: "eu-west-1".to_owned(),
            endpoint: endpoint.map(str::to_owned),
            virtual_hosted_style: true,
            ..S3Config::default()
        };
        assert_eq!(config.policy_url().unwrap().as_str(), expected);
    }
}
