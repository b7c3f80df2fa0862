//! SASL over TLS: what is let in, what is not, and that no secret is shown.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use krabka_remote_storage::topic::{
    ClientSecurity, KafkaMetadataEventLog, KafkaMetadataLogConfig, MetadataEventLog as _,
    MetadataLogError, Pem, SaslCredentials, SaslMechanism, SecurityProtocol, TopicFinding,
};

use super::cluster::{Cluster, a_moment, log, within};
use crate::support::with;

const MECHANISMS: [SaslMechanism; 3] = [
    SaslMechanism::Plain,
    SaslMechanism::ScramSha256,
    SaslMechanism::ScramSha512,
];
const WRONG_PASSWORD: &str = "never-to-be-shown";

/// A topic of a test's own over the secured listener.
fn secured(
    kafka: &Cluster,
    mechanism: SaslMechanism,
    username: &str,
    password: &str,
) -> KafkaMetadataLogConfig {
    let mut config = kafka.own_topic(1);
    kafka
        .secure("BOOTSTRAP_SERVERS")
        .clone_into(&mut config.bootstrap);
    config.request_timeout = Duration::from_secs(10);
    config.security = Some(with(ClientSecurity::default(), |it| {
        it.protocol = SecurityProtocol::SaslSsl;
        it.trust_roots = Some(Pem::File(kafka.secure("CA").into()));
        it.sasl = Some(SaslCredentials {
            mechanism,
            username: username.to_owned(),
            password: password.to_owned(),
        });
    }));
    config
}

fn of_the_user(kafka: &Cluster, mechanism: SaslMechanism) -> KafkaMetadataLogConfig {
    let (user, password) = (kafka.secure("USER"), kafka.secure("PASSWORD"));
    secured(kafka, mechanism, user, password)
}

/// Everything that an error may be printed as.
fn everything(error: &MetadataLogError) -> String {
    let mut text = format!("{error}\n{error:?}\n{error:#?}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        writeln!(text, "{error}\n{error:?}").unwrap();
        cause = error.source();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_right_password_reads_and_writes() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    for mechanism in MECHANISMS {
        let config = of_the_user(&kafka, mechanism);
        let log = log(&config).await;
        let event = Bytes::from_static(b"event");
        let offset = within("a publish", log.publish(0, event.clone())).await;
        assert_eq!(offset.unwrap(), 0, "{mechanism:?}");
        let read = within("a read", log.read_range(0, 0, 1)).await.unwrap();
        assert_eq!(read[0].payload, event);
        let text = format!("{log:?}\n{config:?}");
        assert!(!text.contains(kafka.secure("PASSWORD")), "{text}");
        log.shutdown().await;
        kafka.delete_topic(&config.topic).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_error_that_says_so_and_does_not_show_it() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    for mechanism in MECHANISMS {
        let config = secured(&kafka, mechanism, kafka.secure("USER"), WRONG_PASSWORD);
        for start in [true, false] {
            let error = if start {
                within("an error", KafkaMetadataEventLog::start(config.clone())).await
            } else {
                let opened = KafkaMetadataEventLog::open_read_only(config.clone());
                within("an error", opened).await
            };
            let error = error.unwrap_err();
            assert!(
                matches!(error, MetadataLogError::Rejected { .. }),
                "{mechanism:?}: {error:?}"
            );
            let text = error.to_string();
            assert!(text.contains("credentials"), "{text}");
            let shown = everything(&error) + &format!("{config:?}");
            assert!(!shown.contains(WRONG_PASSWORD), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_another_authority_is_not_spoken_to() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let mut config = of_the_user(&kafka, SaslMechanism::Plain);
    let security = config.security.as_mut().unwrap();
    security.trust_roots = Some(Pem::File(kafka.secure("WRONG_CA").into()));
    let started = KafkaMetadataEventLog::start(config.clone());
    let error = within("an error", started).await.unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("TLS") && text.contains("trust_roots"),
        "{text}"
    );
    let shown = everything(&error) + &format!("{config:?}");
    assert!(!shown.contains(kafka.secure("PASSWORD")), "{shown}");
}

/// Gives the stranger a right to the topic.
fn allow(kafka: &Cluster, topic: &str, operations: &[&str]) {
    let principal = format!("User:{}", kafka.secure("STRANGER"));
    let mut arguments = vec!["--add", "--allow-principal", &principal, "--topic", topic];
    for operation in operations {
        arguments.extend(["--operation", operation]);
    }
    kafka.tool("org.apache.kafka.tools.AclCommand", &arguments);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_named_and_take_effect_when_they_are_given() {
    let Some(kafka) = Cluster::shared() else {
        return;
    };
    let owner = of_the_user(&kafka, SaslMechanism::ScramSha512);
    let writer = log(&owner).await;
    let event = Bytes::from_static(b"event");
    within("a publish", writer.publish(0, event.clone()))
        .await
        .unwrap();
    let (stranger, password) = (kafka.secure("STRANGER"), kafka.secure("STRANGER_PASSWORD"));
    let mut config = secured(&kafka, SaslMechanism::ScramSha256, stranger, password);
    config.topic.clone_from(&owner.topic);
    config.publish_timeout = Duration::from_secs(10);

    for start in [true, false] {
        let error = if start {
            within("an error", KafkaMetadataEventLog::start(config.clone())).await
        } else {
            let opened = KafkaMetadataEventLog::open_read_only(config.clone());
            within("an error", opened).await
        };
        let error = error.unwrap_err();
        assert!(
            matches!(error, MetadataLogError::Rejected { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("no right"), "{text}");
        let shown = everything(&error);
        assert!(!shown.contains(password), "{shown}");
    }

    allow(&kafka, &config.topic, &["Describe", "Read"]);
    let log = within("the right to read", async {
        loop {
            match KafkaMetadataEventLog::start(config.clone()).await {
                Ok(log) => return log,
                // Brokers learn of it a little later.
                Err(MetadataLogError::Rejected { .. }) => a_moment().await,
                Err(error) => panic!("{error:?}"),
            }
        }
    })
    .await;
    let findings = &log.topic_report().findings;
    assert!(
        matches!(findings[..], [TopicFinding::SettingsNotReadable { .. }]),
        "{findings:?}"
    );
    let read = within("a read", log.read_range(0, 0, 1)).await.unwrap();
    assert_eq!(read[0].payload, event);
    let error = within("an error", log.publish(0, event.clone()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, MetadataLogError::Rejected { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("no right"), "{text}");

    // The same log writes as soon as it may.
    allow(&kafka, &config.topic, &["Write"]);
    within("the right to write", async {
        while log.publish(0, event.clone()).await.is_err() {
            a_moment().await;
        }
    })
    .await;
    assert_eq!(
        within("the marks", log.high_water_marks()).await.unwrap(),
        [2]
    );
    for log in [&writer, &log] {
        log.shutdown().await;
    }
    kafka.delete_topic(&config.topic).await;
}
