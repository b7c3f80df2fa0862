//! What a metadata log on Kafka is told: where the brokers are, how the topic is made, how it is
//! read and written.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::super::log::METADATA_TOPIC;
use super::security::ClientSecurity;

/// Partitions of the topic when it is created; Kafka's
/// `remote.log.metadata.topic.num.partitions`.
pub const DEFAULT_NUM_PARTITIONS: i32 = 50;
/// Replicas of each partition when the topic is created; Kafka's
/// `remote.log.metadata.topic.replication.factor`.
pub const DEFAULT_REPLICATION: i32 = 3;
/// `min.insync.replicas` of the topic when it is created; Kafka's
/// `remote.log.metadata.topic.min.isr` (KIP-1235).
pub const DEFAULT_MIN_ISR: i32 = 2;
/// How long the creation of the topic may take.
pub const DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a broker may wait for records before it answers a fetch.
pub const DEFAULT_METADATA_FETCH_MAX_WAIT: Duration = Duration::from_millis(500);
/// Bytes of one partition in the answer to a fetch.
pub const DEFAULT_METADATA_FETCH_MAX_BYTES: u64 = 1024 * 1024;
/// How long a partition waits after a failed fetch.
pub const DEFAULT_METADATA_FETCH_RETRY_BACKOFF: Duration = Duration::from_millis(200);
/// Records of one partition that wait for the subscriber; see [`MetadataEventQueueCapacity`].
pub const DEFAULT_METADATA_EVENT_QUEUE_CAPACITY: usize = 1024;

const DEFAULT_PUBLISH_TIMEOUT: Duration = Duration::from_mins(2);
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_STALL_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How many records of one partition wait for a slow subscriber before no more are fetched: at
/// least 1.
///
/// An answer that is on its way when the queue is full still joins it, so a partition may hold the
/// records of [`fetch_max_bytes`](KafkaMetadataLogConfig::fetch_max_bytes) more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataEventQueueCapacity(NonZeroUsize);

impl MetadataEventQueueCapacity {
    /// A capacity of this many records.
    ///
    /// # Errors
    ///
    /// The reason, when it is 0.
    pub fn new(capacity: usize) -> Result<Self, String> {
        NonZeroUsize::new(capacity)
            .map(Self)
            .ok_or_else(|| "event_queue_capacity is 0: at least one record has to fit".to_owned())
    }

    /// The number of records.
    pub fn capacity(self) -> usize {
        self.0.get()
    }
}

impl Default for MetadataEventQueueCapacity {
    fn default() -> Self {
        const DEFAULT: NonZeroUsize =
            NonZeroUsize::new(DEFAULT_METADATA_EVENT_QUEUE_CAPACITY).expect("not 0");
        Self(DEFAULT)
    }
}

/// How a [`KafkaMetadataEventLog`](super::KafkaMetadataEventLog) finds, creates, reads and writes
/// its topic.
///
/// [`new`](Self::new) fills in the defaults, which create the topic as Apache Kafka 4.3 does.
/// `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KafkaMetadataLogConfig {
    /// Brokers to begin with: `host:port`, several with commas between them.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// Partitions of a topic that is created. One that exists keeps its own number.
    pub num_partitions: i32,
    /// Replicas of each partition of a topic that is created.
    pub replication: i32,
    /// `min.insync.replicas` of a topic that is created; `None` leaves it to the cluster.
    pub min_isr: Option<i32>,
    /// What brokers see in their logs and quotas, with a suffix for each kind of client:
    /// `-producer`, `-client`, `-admin`, `-consumer`, `-reader`.
    pub client_id: String,
    /// Whether a topic that is created is compacted. Kafka's own is not.
    pub compacted: bool,
    /// Further settings of a topic that is created, by Kafka's names. A value replaces the default
    /// of this crate, `None` leaves the setting to the cluster.
    pub topic_configs: BTreeMap<String, Option<String>>,
    /// Whether a missing topic is created. If not, it is an error.
    pub provision_topic: bool,
    /// TLS and credentials of every connection; `None` is plain text.
    pub security: Option<ClientSecurity>,
    /// How long the creation of the topic may take.
    pub topic_create_timeout: Duration,
    /// How long a broker may wait for records before it answers a fetch. At most 290 s are used.
    pub fetch_max_wait: Duration,
    /// Bytes of one partition in the answer to a fetch. A larger record still comes, alone. At most
    /// 1,000,000,000 are used.
    pub fetch_max_bytes: u64,
    /// How long a partition waits after a failed fetch. At most 300 s are used.
    pub fetch_retry_backoff: Duration,
    /// How many records of one partition wait for a slow subscriber.
    pub event_queue_capacity: MetadataEventQueueCapacity,
    /// How long a publish may go on before its outcome is unknown. 120 s, as `delivery.timeout.ms`
    /// of Kafka's producer. The event is sent on after it, until a broker has it or the log is
    /// closed.
    pub publish_timeout: Duration,
    /// How long one request to a broker may take. 30 s, as `request.timeout.ms` of Kafka's clients.
    pub request_timeout: Duration,
    /// How often the log looks whether a partition has stopped while its topic went on: 30 s. Two
    /// looks in a row without progress restart the reading.
    pub stall_check_interval: Duration,
}

impl KafkaMetadataLogConfig {
    /// The defaults, for the brokers at `bootstrap`: `host:port`, several with commas between them.
    pub fn new(bootstrap: impl Into<String>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            topic: METADATA_TOPIC.to_owned(),
            num_partitions: DEFAULT_NUM_PARTITIONS,
            replication: DEFAULT_REPLICATION,
            min_isr: Some(DEFAULT_MIN_ISR),
            client_id: "krabka-rlmm".to_owned(),
            compacted: false,
            topic_configs: BTreeMap::new(),
            provision_topic: true,
            security: None,
            topic_create_timeout: DEFAULT_METADATA_TOPIC_CREATE_TIMEOUT,
            fetch_max_wait: DEFAULT_METADATA_FETCH_MAX_WAIT,
            fetch_max_bytes: DEFAULT_METADATA_FETCH_MAX_BYTES,
            fetch_retry_backoff: DEFAULT_METADATA_FETCH_RETRY_BACKOFF,
            event_queue_capacity: MetadataEventQueueCapacity::default(),
            publish_timeout: DEFAULT_PUBLISH_TIMEOUT,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            stall_check_interval: DEFAULT_STALL_CHECK_INTERVAL,
        }
    }

    /// Looks at every field.
    ///
    /// # Errors
    ///
    /// What is wrong, with the name of the field.
    pub fn validate(&self) -> Result<(), String> {
        self.bootstrap_servers()?;
        check_topic(&self.topic)?;
        if self.num_partitions < 1 {
            return Err(format!(
                "num_partitions is {}: at least 1 is needed",
                self.num_partitions
            ));
        }
        if !(1..=i32::from(i16::MAX)).contains(&self.replication) {
            return Err(format!(
                "replication is {}: Kafka takes 1 to {}",
                self.replication,
                i16::MAX
            ));
        }
        if let Some(min_isr) = self.min_isr {
            if min_isr < 1 {
                return Err(format!("min_isr is {min_isr}: at least 1 is needed"));
            }
            if min_isr > self.replication {
                return Err(format!(
                    "min_isr is {min_isr} and replication is {}: no event could ever be written",
                    self.replication
                ));
            }
        }
        if self.client_id.contains('\0') {
            return Err("client_id has a NUL character".to_owned());
        }
        for (name, value) in &self.topic_configs {
            let has_nul = value.as_ref().is_some_and(|value| value.contains('\0'));
            if name.is_empty() || name.contains('\0') || has_nul {
                return Err(format!("topic_configs has the setting {name:?}"));
            }
        }
        if let Some(security) = &self.security {
            security
                .validate()
                .map_err(|fault| format!("security: {fault}"))?;
        }
        check_millis("topic_create_timeout", self.topic_create_timeout)?;
        check_millis("fetch_max_wait", self.fetch_max_wait)?;
        if !(1..=i32::MAX.unsigned_abs().into()).contains(&self.fetch_max_bytes) {
            return Err(format!(
                "fetch_max_bytes is {}: Kafka takes 1 to {}",
                self.fetch_max_bytes,
                i32::MAX
            ));
        }
        check_not_zero("fetch_retry_backoff", self.fetch_retry_backoff)?;
        check_millis("publish_timeout", self.publish_timeout)?;
        check_millis("request_timeout", self.request_timeout)?;
        check_not_zero("stall_check_interval", self.stall_check_interval)
    }

    /// The settings of a topic that is created.
    pub(super) fn settings(&self) -> BTreeMap<&str, String> {
        let policy = if self.compacted { "compact" } else { "delete" };
        let mut settings = BTreeMap::from([
            ("cleanup.policy", policy.to_owned()),
            ("retention.ms", "-1".to_owned()),
            // Without it the cluster's limit would delete events that are still needed.
            ("retention.bytes", "-1".to_owned()),
            ("remote.storage.enable", "false".to_owned()),
        ]);
        if let Some(min_isr) = self.min_isr {
            settings.insert("min.insync.replicas", min_isr.to_string());
        }
        for (name, value) in &self.topic_configs {
            match value {
                Some(value) => settings.insert(name, value.clone()),
                None => settings.remove(name.as_str()),
            };
        }
        settings
    }

    fn bootstrap_servers(&self) -> Result<(), String> {
        let servers = self.bootstrap.split(',').map(str::trim);
        for server in servers {
            let parts = server.rsplit_once(':');
            let is_address = parts.is_some_and(|(host, port)| {
                let host_is_one = !host.is_empty() && !host.contains(['/', '@', '\0', ' ']);
                host_is_one && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !is_address {
                // It could hold a password, in the form of a URL.
                return Err("bootstrap has an entry that is not `host:port`".to_owned());
            }
        }
        Ok(())
    }
}

impl fmt::Debug for KafkaMetadataLogConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bootstrap = if self.bootstrap.contains('@') {
            "***"
        } else {
            &self.bootstrap
        };
        f.debug_struct("KafkaMetadataLogConfig")
            .field("bootstrap", &bootstrap)
            .field("topic", &self.topic)
            .field("num_partitions", &self.num_partitions)
            .field("replication", &self.replication)
            .field("min_isr", &self.min_isr)
            .field("client_id", &self.client_id)
            .field("compacted", &self.compacted)
            .field("topic_configs", &self.topic_configs)
            .field("provision_topic", &self.provision_topic)
            .field("security", &self.security)
            .field("topic_create_timeout", &self.topic_create_timeout)
            .field("fetch_max_wait", &self.fetch_max_wait)
            .field("fetch_max_bytes", &self.fetch_max_bytes)
            .field("fetch_retry_backoff", &self.fetch_retry_backoff)
            .field("event_queue_capacity", &self.event_queue_capacity)
            .field("publish_timeout", &self.publish_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("stall_check_interval", &self.stall_check_interval)
            .finish()
    }
}

/// The rule of Kafka's class `Topic`.
fn check_topic(topic: &str) -> Result<(), String> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || matches!(topic, "." | "..") {
        return Err(format!(
            "topic is {topic:?}: Kafka takes 1 to 249 characters, and neither . nor .."
        ));
    }
    if !topic.chars().all(is_legal) {
        return Err(format!(
            "topic is {topic:?}: Kafka takes letters, digits, `.`, `_` and `-`"
        ));
    }
    Ok(())
}

fn check_millis(field: &str, time: Duration) -> Result<(), String> {
    let is_whole = time.subsec_nanos().is_multiple_of(1_000_000);
    if !is_whole || !(1..=i32::MAX.unsigned_abs().into()).contains(&time.as_millis()) {
        return Err(format!(
            "{field} is {time:?}: whole milliseconds from 1 to {} are needed",
            i32::MAX
        ));
    }
    Ok(())
}

fn check_not_zero(field: &str, time: Duration) -> Result<(), String> {
    if time.is_zero() {
        return Err(format!("{field} is 0: it has to be longer"));
    }
    Ok(())
}
