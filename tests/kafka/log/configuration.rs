//! What a configuration may say, and what it shows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use krabka_remote_storage::metadata::topic::{
    ClientIdentity, ClientSecurity, DEFAULT_METADATA_EVENT_QUEUE_CAPACITY,
    DEFAULT_METADATA_FETCH_MAX_BYTES, DEFAULT_METADATA_FETCH_MAX_WAIT,
    DEFAULT_METADATA_FETCH_RETRY_BACKOFF, DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT, DEFAULT_MIN_ISR,
    DEFAULT_NUM_PARTITIONS, DEFAULT_REPLICATION, KafkaMetadataEventLog, KafkaMetadataLogConfig,
    METADATA_TOPIC, MetadataEventQueueCapacity, MetadataLogError, Pem, SaslCredentials,
    SaslMechanism, SecurityProtocol,
};

use super::mock::within;
use crate::support::with;

fn config() -> KafkaMetadataLogConfig {
    KafkaMetadataLogConfig::new("broker:9092")
}

fn config_with(change: impl FnOnce(&mut KafkaMetadataLogConfig)) -> Result<(), String> {
    let mut config = config();
    change(&mut config);
    config.validate()
}

fn sasl() -> SaslCredentials {
    SaslCredentials {
        mechanism: SaslMechanism::ScramSha512,
        username: "user".to_owned(),
        password: "MARKED-password".to_owned(),
    }
}

#[test]
fn the_defaults_are_those_of_the_table_and_hold() {
    assert_eq!(METADATA_TOPIC, "__remote_log_metadata");
    assert_eq!(DEFAULT_NUM_PARTITIONS, 50);
    assert_eq!(DEFAULT_REPLICATION, 3);
    assert_eq!(DEFAULT_MIN_ISR, 2);
    assert_eq!(
        DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT,
        Duration::from_secs(30)
    );
    assert_eq!(DEFAULT_METADATA_FETCH_MAX_WAIT, Duration::from_millis(500));
    assert_eq!(DEFAULT_METADATA_FETCH_MAX_BYTES, 1_048_576);
    assert_eq!(
        DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
        Duration::from_millis(200)
    );
    assert_eq!(DEFAULT_METADATA_EVENT_QUEUE_CAPACITY, 1024);

    let config = config();
    config.validate().unwrap();
    assert_eq!(config.bootstrap, "broker:9092");
    assert_eq!(config.topic, METADATA_TOPIC);
    assert_eq!(config.num_partitions, DEFAULT_NUM_PARTITIONS);
    assert_eq!(config.replication, DEFAULT_REPLICATION);
    assert_eq!(config.min_isr, Some(DEFAULT_MIN_ISR));
    assert_eq!(config.client_id, "krabka-rlmm");
    assert!(!config.compacted);
    assert!(config.provision_topic);
    assert_eq!(config.security, None);
    assert_eq!(config.event_queue_capacity.capacity(), 1024);
}

#[test]
fn a_queue_holds_at_least_one_record() {
    assert_eq!(MetadataEventQueueCapacity::new(1).unwrap().capacity(), 1);
    let fault = MetadataEventQueueCapacity::new(0).unwrap_err();
    assert!(fault.contains("event_queue_capacity"), "{fault}");
}

#[test]
fn every_field_that_does_not_hold_is_named() {
    type Change = Box<dyn FnOnce(&mut KafkaMetadataLogConfig)>;
    fn change(change: impl FnOnce(&mut KafkaMetadataLogConfig) + 'static) -> Change {
        Box::new(change)
    }
    let nanos = Duration::from_micros(1_500);
    let long = Duration::from_millis(1 << 31);
    let mut changes: Vec<(&str, Change)> = Vec::new();
    for bootstrap in [
        "",
        "broker",
        "broker:",
        ":9092",
        "broker:0",
        "a:1,",
        "a:1,b",
        "http://a:1",
    ] {
        changes.push((
            "bootstrap",
            change(move |one| one.bootstrap = bootstrap.to_owned()),
        ));
    }
    for topic in ["", ".", "..", "a/b", "a b", "é"] {
        changes.push(("topic", change(move |one| one.topic = topic.to_owned())));
    }
    changes.push(("topic", change(|one| one.topic = "a".repeat(250))));
    changes.push(("num_partitions", change(|one| one.num_partitions = 0)));
    changes.push(("replication", change(|one| one.replication = 0)));
    changes.push(("replication", change(|one| one.replication = 32768)));
    changes.push(("min_isr", change(|one| one.min_isr = Some(0))));
    changes.push(("min_isr", change(|one| one.min_isr = Some(4))));
    changes.push(("client_id", change(|one| one.client_id = "a\0".to_owned())));
    changes.push((
        "topic_configs",
        change(|one| {
            one.topic_configs = BTreeMap::from([(String::new(), None)]);
        }),
    ));
    for time in [Duration::ZERO, nanos, long] {
        changes.push((
            "topic_create_timeout",
            change(move |one| one.topic_create_timeout = time),
        ));
        changes.push((
            "fetch_max_wait",
            change(move |one| one.fetch_max_wait = time),
        ));
        changes.push((
            "publish_timeout",
            change(move |one| one.publish_timeout = time),
        ));
        changes.push((
            "request_timeout",
            change(move |one| one.request_timeout = time),
        ));
    }
    for bytes in [0, 1 << 31] {
        changes.push((
            "fetch_max_bytes",
            change(move |one| one.fetch_max_bytes = bytes),
        ));
    }
    changes.push((
        "fetch_retry_backoff",
        change(|one| one.fetch_retry_backoff = Duration::ZERO),
    ));
    changes.push((
        "stall_check_interval",
        change(|one| one.stall_check_interval = Duration::ZERO),
    ));
    for (field, change) in changes {
        let fault = config_with(change).expect_err(field);
        assert!(fault.contains(field), "{fault} names {field}");
    }
}

#[test]
fn the_ends_of_every_range_hold() {
    let most = Duration::from_millis((1 << 31) - 1);
    let least = Duration::from_millis(1);
    for time in [least, most] {
        config_with(|one| {
            one.topic_create_timeout = time;
            one.fetch_max_wait = time;
            one.publish_timeout = time;
            one.request_timeout = time;
        })
        .unwrap();
    }
    for bytes in [1, (1 << 31) - 1] {
        config_with(|one| one.fetch_max_bytes = bytes).unwrap();
    }
    config_with(|one| one.bootstrap = "a:1, b:65535,[::1]:9092".to_owned()).unwrap();
    config_with(|one| (one.min_isr, one.replication) = (Some(3), 3)).unwrap();
    config_with(|one| one.min_isr = None).unwrap();
}

#[test]
fn security_that_contradicts_itself_is_refused() {
    let pem = || Some(Pem::Bytes(b"pem".to_vec()));
    let of = |protocol| with(ClientSecurity::default(), |it| it.protocol = protocol);
    let faulty = [
        of(SecurityProtocol::SaslSsl),
        of(SecurityProtocol::SaslPlaintext),
        with(of(SecurityProtocol::Ssl), |it| it.sasl = Some(sasl())),
        with(of(SecurityProtocol::Plaintext), |it| it.trust_roots = pem()),
        with(of(SecurityProtocol::Ssl), |it| {
            it.trust_roots = Some(Pem::Bytes(vec![0xff]));
        }),
        with(of(SecurityProtocol::SaslSsl), |it| {
            it.sasl = Some(SaslCredentials {
                password: "a\0b".to_owned(),
                ..sasl()
            });
        }),
    ];
    for security in faulty {
        let fault = config_with(|one| one.security = Some(security.clone())).unwrap_err();
        assert!(fault.contains("security"), "{fault}");
        assert!(!fault.contains("a\0b"), "{fault:?}");
    }
    let holds = with(of(SecurityProtocol::SaslSsl), |it| {
        it.trust_roots = pem();
        it.sasl = Some(sasl());
    });
    config_with(|one| one.security = Some(holds)).unwrap();
}

#[test]
fn debug_shows_no_secret() {
    let mut config = config();
    config.security = Some(with(ClientSecurity::default(), |it| {
        it.protocol = SecurityProtocol::SaslSsl;
        it.identity = Some(ClientIdentity {
            certificate: Pem::File(PathBuf::from("/certificate.pem")),
            key: Pem::Bytes(b"MARKED-key".to_vec()),
            key_password: Some("MARKED-key-password".to_owned()),
        });
        it.sasl = Some(sasl());
    }));
    let shown = format!("{config:?}");
    assert!(!shown.contains("MARKED"), "{shown}");
    assert!(!shown.contains("77, 65"), "bytes neither: {shown}");
    assert!(
        shown.contains("/certificate.pem") && shown.contains("\"user\""),
        "{shown}"
    );
    config.bootstrap = "MARKED@broker:9092".to_owned();
    assert!(!format!("{config:?}").contains("MARKED"));
    assert!(!config.validate().unwrap_err().contains("MARKED"));
}

#[tokio::test]
async fn a_key_that_the_client_refuses_is_named_and_not_shown() {
    let mut config = config();
    config.security = Some(with(ClientSecurity::default(), |it| {
        it.protocol = SecurityProtocol::Ssl;
        it.identity = Some(ClientIdentity {
            certificate: Pem::Bytes(b"MARKED-certificate".to_vec()),
            key: Pem::Bytes(b"MARKED-key".to_vec()),
            key_password: None,
        });
    }));
    let error = within(KafkaMetadataEventLog::start(config))
        .await
        .unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    let shown = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
    assert!(!shown.contains("MARKED"), "{shown}");
    assert!(shown.contains("certificate"), "{shown}");
}
