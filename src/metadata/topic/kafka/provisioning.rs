//! Finds the topic, or creates it, and compares it with what the configuration asks for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rdkafka::Offset;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigEntry, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::log_error::MetadataLogError;
use super::client::{self, ClientEvents, OffThread};
use super::config::KafkaMetadataLogConfig;
use super::faults;
use super::log::blocking;
use super::marks::{Found, TopicClient, TopicState};
use super::report::{TopicFinding, TopicReport};

type Admin = OffThread<AdminClient<ClientEvents>>;

/// Looks the topic up, creates it where it is missing and may be created, and reports.
///
/// The order matters: a lookup never creates a topic, and no other client is made before the topic
/// is there.
pub(super) async fn provision(
    config: &KafkaMetadataLogConfig,
    topics: &Arc<OffThread<TopicClient>>,
) -> Result<TopicReport, MetadataLogError> {
    let admin = admin(config).await?;
    let found = look_up(topics).await?;
    let (state, was_created) = match found.topic {
        Some(state) => (state, false),
        None if config.provision_topic => {
            let was_created = create(config, &admin).await?;
            (wait_until_there(config, topics).await?, was_created)
        }
        None => return Err(missing(config)),
    };
    let findings = if was_created {
        Vec::new()
    } else {
        compare(config, &admin, &found.brokers, state).await
    };
    for finding in &findings {
        tracing::warn!(
            topic = config.topic,
            "the metadata topic is not as it should be: {finding}"
        );
    }
    Ok(report(config, state, was_created, findings))
}

/// Looks the topic up with no rights but Describe.
pub(super) async fn find(
    config: &KafkaMetadataLogConfig,
    topics: &Arc<OffThread<TopicClient>>,
) -> Result<TopicReport, MetadataLogError> {
    let found = look_up(topics).await?;
    let state = found.topic.ok_or_else(|| missing(config))?;
    Ok(report(config, state, false, Vec::new()))
}

fn report(
    config: &KafkaMetadataLogConfig,
    state: TopicState,
    was_created: bool,
    findings: Vec<TopicFinding>,
) -> TopicReport {
    TopicReport {
        topic: config.topic.clone(),
        topic_id: state.id,
        partitions: state.partitions,
        was_created,
        findings,
    }
}

fn missing(config: &KafkaMetadataLogConfig) -> MetadataLogError {
    MetadataLogError::Rejected {
        reason: format!(
            "topic {} does not exist, and this log does not create it",
            config.topic
        ),
        source: None,
    }
}

async fn look_up(topics: &Arc<OffThread<TopicClient>>) -> Result<Found, MetadataLogError> {
    let topics = Arc::clone(topics);
    blocking(move || topics.find()).await
}

async fn admin(config: &KafkaMetadataLogConfig) -> Result<Admin, MetadataLogError> {
    let settings = client::settings(config, "admin");
    let events = ClientEvents::new(&config.topic);
    let runtime = Handle::current();
    let made = blocking(move || Ok(settings.create_with_context(events))).await?;
    Ok(OffThread::new(made.map_err(faults::client)?, &runtime))
}

/// Creates the topic; `false` when another client was faster.
async fn create(config: &KafkaMetadataLogConfig, admin: &Admin) -> Result<bool, MetadataLogError> {
    let settings = config.settings();
    let replication = TopicReplication::Fixed(config.replication);
    let mut topic = NewTopic::new(&config.topic, config.num_partitions, replication);
    for (name, value) in &settings {
        topic = topic.set(name, value);
    }
    let limit = Some(config.topic_create_timeout);
    let options = AdminOptions::new()
        .request_timeout(limit)
        .operation_timeout(limit);
    let error = match admin.create_topics([&topic], &options).await {
        Ok(answers) => match answers.into_iter().next() {
            Some(Ok(_)) => return Ok(true),
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => return Ok(false),
            Some(Err((_, code))) => KafkaError::Global(code),
            None => KafkaError::NoMessageReceived,
        },
        // `AdminOp` keeps its code to itself.
        Err(KafkaError::AdminOp(code)) => KafkaError::Global(code),
        Err(error) => error,
    };
    let what = format!("topic {} cannot be created", config.topic);
    Err(faults::read(what, error))
}

/// Brokers learn of a new topic one after the other, and its leaders begin a little later.
async fn wait_until_there(
    config: &KafkaMetadataLogConfig,
    topics: &Arc<OffThread<TopicClient>>,
) -> Result<TopicState, MetadataLogError> {
    let deadline = Instant::now() + config.topic_create_timeout;
    loop {
        if let Some(state) = look_up(topics).await?.topic
            && has_leaders(topics, state).await
        {
            return Ok(state);
        }
        let next = Instant::now() + config.fetch_retry_backoff;
        if next > deadline {
            return Err(MetadataLogError::Unavailable {
                reason: format!(
                    "topic {} was created, and its brokers did not answer for it within {:?}",
                    config.topic, config.topic_create_timeout
                ),
                source: None,
            });
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Whether every partition answers. A refusal is not waited out: who needs the answer gets it.
async fn has_leaders(topics: &Arc<OffThread<TopicClient>>, state: TopicState) -> bool {
    let topics = Arc::clone(topics);
    let marks = blocking(move || topics.marks(Offset::End, state.partitions)).await;
    !matches!(marks, Err(MetadataLogError::Unavailable { .. }))
}

async fn compare(
    config: &KafkaMetadataLogConfig,
    admin: &Admin,
    brokers: &[i32],
    state: TopicState,
) -> Vec<TopicFinding> {
    let mut findings = Vec::new();
    if state.partitions != config.num_partitions {
        findings.push(TopicFinding::PartitionCount {
            configured: config.num_partitions,
            found: state.partitions,
        });
    }
    match found_settings(config, admin, brokers.first().copied()).await {
        Ok(found) => compare_settings(config, state, &found, &mut findings),
        Err(reason) => findings.push(TopicFinding::SettingsNotReadable { reason }),
    }
    findings
}

async fn found_settings(
    config: &KafkaMetadataLogConfig,
    admin: &Admin,
    broker: Option<i32>,
) -> Result<HashMap<String, ConfigEntry>, String> {
    // Every broker knows the settings of every topic; a controller need not be known.
    let options = AdminOptions::new()
        .request_timeout(Some(config.request_timeout))
        .broker_id(broker);
    let answers = admin
        .describe_configs([&ResourceSpecifier::Topic(&config.topic)], &options)
        .await
        .map_err(|error| error.to_string())?;
    match answers.into_iter().next() {
        // The client keeps to itself that a topic's settings were refused.
        Some(Ok(topic)) if topic.entries.is_empty() => {
            Err("the brokers tell none: the right DescribeConfigs may be missing".to_owned())
        }
        Some(Ok(topic)) => Ok(topic
            .entries
            .into_iter()
            .map(|entry| (entry.name.clone(), entry))
            .collect()),
        Some(Err(code)) => Err(code.to_string()),
        None => Err("the answer is empty".to_owned()),
    }
}

fn compare_settings(
    config: &KafkaMetadataLogConfig,
    state: TopicState,
    found: &HashMap<String, ConfigEntry>,
    findings: &mut Vec<TopicFinding>,
) {
    let value = |name: &str| found.get(name).and_then(|entry| entry.value.as_deref());
    let configured: BTreeMap<&str, String> = config.settings();
    for (&name, configured) in &configured {
        let Some(found) = value(name) else {
            continue;
        };
        if found == configured {
            continue;
        }
        findings.push(if removes_records(name, found) {
            TopicFinding::RecordsAreRemoved {
                setting: name.to_owned(),
                found: found.to_owned(),
            }
        } else {
            TopicFinding::Setting {
                setting: name.to_owned(),
                configured: configured.clone(),
                found: found.to_owned(),
            }
        });
    }
    // Those that the configuration leaves to the cluster matter no less.
    for name in ["cleanup.policy", "retention.ms", "retention.bytes"] {
        if let Some(found) = value(name)
            && !configured.contains_key(name)
            && removes_records(name, found)
        {
            findings.push(TopicFinding::RecordsAreRemoved {
                setting: name.to_owned(),
                found: found.to_owned(),
            });
        }
    }
    let min_isr = value("min.insync.replicas").and_then(|value| value.parse().ok());
    if let Some(min_isr) = min_isr
        && min_isr > state.replicas
    {
        findings.push(TopicFinding::MinIsrAboveReplicas {
            min_isr,
            replicas: state.replicas,
        });
    }
}

fn removes_records(setting: &str, value: &str) -> bool {
    match setting {
        "cleanup.policy" => value != "delete",
        "retention.ms" | "retention.bytes" => value != "-1",
        _ => false,
    }
}
