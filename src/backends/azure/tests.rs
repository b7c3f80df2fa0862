use super::*;

fn valid() -> AzureConfig {
    AzureConfig {
        account: "account".to_owned(),
        container: "container".to_owned(),
        access_key: Some("a2V5TUFSS0VE".to_owned()),
        ..AzureConfig::default()
    }
}

fn refused(change: impl FnOnce(&mut AzureConfig)) -> String {
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
    let config = AzureConfig::default();
    assert_eq!(
        (config.account.as_str(), config.container.as_str()),
        ("", "")
    );
    assert_eq!(config.prefix, None);
    assert!(!config.allow_http && !config.use_emulator);
    assert_eq!(config.limits(), RequestLimits::default());
    valid().validate().unwrap();
}

#[test]
fn what_the_client_would_take_without_a_word_is_refused() {
    type Change = fn(&mut AzureConfig);
    let marked = || Some("MARKED".to_owned());
    let rows: [(&str, Change); 16] = [
        ("`account`", |c| c.account.clear()),
        ("`account`", |c| c.account = "a.b".to_owned()),
        ("`container`", |c| c.container.clear()),
        ("`container`", |c| c.container = "a/b".to_owned()),
        ("prefix", |c| c.prefix = Some("a/./b".to_owned())),
        ("`allow_http`", |c| {
            c.endpoint = Some("http://MARKED.example".to_owned());
        }),
        ("no URL", |c| c.endpoint = Some("MARKED".to_owned())),
        ("query", |c| {
            c.endpoint = Some("https://host/?sig=MARKED".to_owned());
        }),
        ("`access_key`", |c| {
            c.access_key = Some("MARKED\n".to_owned());
        }),
        ("only credential", |c| {
            c.sas_token = Some("sig=MARKED".to_owned());
        }),
        ("`client_secret`", |c| {
            c.access_key = None;
            c.client_id = Some("MARKED".to_owned());
        }),
        ("`tenant_id`", |c| {
            c.access_key = None;
            c.client_id = Some("MARKED".to_owned());
            c.client_secret = Some("MARKED".to_owned());
        }),
        ("only credential", |c| {
            c.options = [("azure_storage_token".to_owned(), "MARKED".to_owned())].into();
        }),
        ("`multipart_chunk_size`", |c| c.multipart_chunk_size = 0),
        // 2 GiB in more than 50,000 blocks.
        ("`multipart_chunk_size`", |c| {
            c.multipart_chunk_size = 42_949;
        }),
        ("`copy_deadline`", |c| c.copy_deadline = Duration::ZERO),
    ];
    for (what, change) in rows {
        let text = refused(change);
        assert!(text.contains(what), "{what}: {text}");
    }
    let text = refused(|c| {
        (c.client_id, c.client_secret, c.tenant_id) = (marked(), marked(), marked());
    });
    assert!(text.contains("only credential"), "{text}");
    let small = AzureConfig {
        multipart_chunk_size: 42_950,
        ..valid()
    };
    small.validate().unwrap();
}

#[test]
fn a_credential_that_cannot_be_read_is_not_repeated() {
    for (access_key, sas_token) in [(Some("no*Base64*MARKED"), None), (None, Some("MARKED"))] {
        let config = AzureConfig {
            access_key: access_key.map(str::to_owned),
            sas_token: sas_token.map(str::to_owned),
            ..valid()
        };
        config.validate().unwrap();
        let text = format!("{:?}", config.open(&Environment::default()).unwrap_err());
        assert!(text.contains("`access_key`"), "{text}");
        assert!(!text.contains("MARKED"), "{text}");
    }
}

#[test]
fn the_account_stands_in_the_host_name_and_for_the_emulator_in_the_path() {
    let url = |config: AzureConfig, azurite: &str| {
        let environment = [("AZURITE_BLOB_STORAGE_URL", azurite)]
            .into_iter()
            .collect();
        checks::base_of(&config.service_url(&environment).unwrap())
    };
    assert_eq!(url(valid(), ""), "https://account.blob.core.windows.net");
    let emulator = || AzureConfig {
        account: String::new(),
        access_key: None,
        use_emulator: true,
        ..valid()
    };
    assert_eq!(
        url(emulator(), ""),
        "http://127.0.0.1:10000/devstoreaccount1"
    );
    assert_eq!(
        url(emulator(), "http://127.0.0.1:10001/"),
        "http://127.0.0.1:10001/devstoreaccount1"
    );
    for endpoint in ["http://127.0.0.1:1", "http://127.0.0.1:1/devstoreaccount1/"] {
        let config = AzureConfig {
            endpoint: Some(endpoint.to_owned()),
            ..emulator()
        };
        assert_eq!(url(config, ""), "http://127.0.0.1:1/devstoreaccount1");
    }
    emulator().validate().unwrap();
    let backend = emulator().open(&Environment::default()).unwrap();
    assert_eq!(backend.location(), "az://container");
}
