//! How the topic is found, created and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use krabka_remote_storage::metadata::topic::{
    KafkaMetadataEventLog, MetadataEventLog as _, MetadataLogError, TopicFinding,
};

use super::fake_broker::{
    FakeBroker, INVALID_REPLICATION_FACTOR, Script, TOPIC_AUTHORIZATION_FAILED,
};
use super::mock::within;

async fn started(
    broker: &FakeBroker,
) -> Result<std::sync::Arc<KafkaMetadataEventLog>, MetadataLogError> {
    within(KafkaMetadataEventLog::start(broker.config.clone())).await
}

fn removed(setting: &str, found: &str) -> TopicFinding {
    TopicFinding::RecordsAreRemoved {
        setting: setting.to_owned(),
        found: found.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_created_with_the_settings_of_the_table() {
    let mut broker = FakeBroker::new(Script::default()).await;
    broker.config.num_partitions = 50;
    broker.config.replication = 3;
    broker.config.min_isr = Some(2);
    let log = started(&broker).await.unwrap();
    assert_eq!(log.partition_count(), 50);
    assert!(log.topic_report().was_created);
    assert_eq!(log.topic_report().findings, []);

    let created = broker.script.lock().created.remove(0);
    assert_eq!(created.name.as_str(), "__remote_log_metadata");
    assert_eq!(
        (created.num_partitions, created.replication_factor),
        (50, 3)
    );
    let settings: BTreeMap<_, _> = created
        .configs
        .iter()
        .map(|setting| {
            (
                setting.name.as_str(),
                setting.value.as_ref().unwrap().as_str(),
            )
        })
        .collect();
    let expected = [
        ("cleanup.policy", "delete"),
        ("min.insync.replicas", "2"),
        ("remote.storage.enable", "false"),
        ("retention.bytes", "-1"),
        ("retention.ms", "-1"),
    ];
    assert_eq!(settings, BTreeMap::from(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_can_be_added_replaced_and_left_out() {
    let mut broker = FakeBroker::new(Script::default()).await;
    broker.config.compacted = true;
    broker.config.topic_configs = BTreeMap::from([
        ("remote.storage.enable".to_owned(), None),
        ("retention.bytes".to_owned(), Some("7".to_owned())),
        ("segment.bytes".to_owned(), Some("1048576".to_owned())),
    ]);
    started(&broker).await.unwrap();
    let created = broker.script.lock().created.remove(0);
    let settings: BTreeMap<_, _> = created
        .configs
        .iter()
        .map(|setting| {
            (
                setting.name.as_str(),
                setting.value.as_ref().unwrap().as_str(),
            )
        })
        .collect();
    let expected = [
        ("cleanup.policy", "compact"),
        ("retention.bytes", "7"),
        ("retention.ms", "-1"),
        ("segment.bytes", "1048576"),
    ];
    assert_eq!(settings, BTreeMap::from(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_another_client_creates_first_is_taken_as_it_is() {
    let broker = FakeBroker::new(Script {
        created_by_another: Some(7),
        settings: BTreeMap::from([("cleanup.policy", "delete")]),
        ..Script::default()
    })
    .await;
    let log = started(&broker).await.unwrap();
    assert_eq!(log.partition_count(), 7);
    assert!(!log.topic_report().was_created);
    let finding = TopicFinding::PartitionCount {
        configured: 1,
        found: 7,
    };
    assert_eq!(log.topic_report().findings, [finding]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_removes_events_is_used_and_reported() {
    let broker = FakeBroker::new(Script {
        partitions: Some(1),
        settings: BTreeMap::from([
            ("cleanup.policy", "compact"),
            ("retention.ms", "604800000"),
            ("retention.bytes", "1073741824"),
            ("min.insync.replicas", "2"),
            ("remote.storage.enable", "true"),
        ]),
        ..Script::default()
    })
    .await;
    let log = started(&broker).await.unwrap();
    let expected = [
        removed("cleanup.policy", "compact"),
        TopicFinding::Setting {
            setting: "remote.storage.enable".to_owned(),
            configured: "false".to_owned(),
            found: "true".to_owned(),
        },
        removed("retention.bytes", "1073741824"),
        removed("retention.ms", "604800000"),
        TopicFinding::MinIsrAboveReplicas {
            min_isr: 2,
            replicas: 1,
        },
    ];
    assert_eq!(log.topic_report().findings, expected);
    assert!(broker.script.lock().created.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_must_not_be_read_are_a_finding_and_no_failure() {
    let broker = FakeBroker::new(Script {
        partitions: Some(1),
        settings_error: TOPIC_AUTHORIZATION_FAILED,
        ..Script::default()
    })
    .await;
    let log = started(&broker).await.unwrap();
    let findings = &log.topic_report().findings;
    assert!(
        matches!(&findings[..], [TopicFinding::SettingsNotReadable { reason }] if reason.contains("DescribeConfigs")),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_only_asks_for_no_settings_and_creates_nothing() {
    let silent = [
        ApiKey::DescribeConfigs,
        ApiKey::CreateTopics,
        ApiKey::InitProducerId,
    ];
    let broker = FakeBroker::new(Script {
        partitions: Some(3),
        silent: silent.into_iter().map(|key| key as i16).collect(),
        ..Script::default()
    })
    .await;
    let opened = within(KafkaMetadataEventLog::open_read_only(broker.config.clone())).await;
    let log = opened.unwrap();
    assert_eq!(log.partition_count(), 3);
    let error = log.publish(0, "event".into()).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Publish { .. }),
        "{error:?}"
    );

    broker.script.lock().partitions = None;
    let opened = within(KafkaMetadataEventLog::open_read_only(broker.config.clone())).await;
    let error = opened.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_that_must_not_be_created_is_named() {
    let mut broker = FakeBroker::new(Script::default()).await;
    broker.config.provision_topic = false;
    let error = started(&broker).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("__remote_log_metadata does not exist")
    );
    assert!(broker.script.lock().created.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_is_refused_says_what_to_change() {
    for (code, words) in [
        (TOPIC_AUTHORIZATION_FAILED, "Create"),
        (INVALID_REPLICATION_FACTOR, "fewer brokers"),
    ] {
        let broker = FakeBroker::new(Script {
            create_error: code,
            ..Script::default()
        })
        .await;
        let error = started(&broker).await.unwrap_err();
        assert!(
            matches!(error, MetadataLogError::Rejected { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_must_not_be_described_is_rejected_at_once() {
    let broker = FakeBroker::new(Script {
        partitions: Some(1),
        metadata_error: TOPIC_AUTHORIZATION_FAILED,
        ..Script::default()
    })
    .await;
    let error = started(&broker).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("Describe"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_answer_is_given_up_in_time() {
    for (api, script) in [
        (ApiKey::Metadata, Script::default()),
        (ApiKey::CreateTopics, Script::default()),
    ] {
        let mut broker = FakeBroker::new(Script {
            silent: BTreeSet::from([api as i16]),
            ..script
        })
        .await;
        broker.config.request_timeout = Duration::from_millis(500);
        broker.config.topic_create_timeout = Duration::from_millis(500);
        let error = started(&broker).await.unwrap_err();
        assert!(
            matches!(error, MetadataLogError::Unavailable { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("__remote_log_metadata"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_not_told_do_not_hold_up_the_start_for_ever() {
    let mut broker = FakeBroker::new(Script {
        partitions: Some(1),
        silent: BTreeSet::from([ApiKey::DescribeConfigs as i16]),
        ..Script::default()
    })
    .await;
    broker.config.request_timeout = Duration::from_millis(500);
    let log = started(&broker).await.unwrap();
    let findings = &log.topic_report().findings;
    assert!(
        matches!(&findings[..], [TopicFinding::SettingsNotReadable { .. }]),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_hold_is_refused_before_any_request() {
    let mut broker = FakeBroker::new(Script::default()).await;
    broker.config.min_isr = Some(2);
    let error = started(&broker).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("min_isr"), "{error}");
    assert!(broker.script.lock().created.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_at_the_address_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut config =
        krabka_remote_storage::metadata::topic::KafkaMetadataLogConfig::new(address.to_string());
    config.request_timeout = Duration::from_millis(500);
    let error = within(KafkaMetadataEventLog::start(config))
        .await
        .unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("refused"),
        "the reason is in it: {error}"
    );
}
