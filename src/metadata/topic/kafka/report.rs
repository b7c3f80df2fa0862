//! What was found out about the topic when the log was opened.

use std::fmt;

use uuid::Uuid;

/// The topic as it was when the log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicReport {
    /// The topic's name.
    pub topic: String,
    /// The topic's id, where the brokers have one.
    pub topic_id: Option<Uuid>,
    /// How many partitions it has.
    pub partitions: i32,
    /// Whether this log has created it.
    pub was_created: bool,
    /// What is not as the configuration asks for. Everything here was logged as a warning, too.
    pub findings: Vec<TopicFinding>,
}

/// Something about an existing topic that is not as the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicFinding {
    /// The topic has another number of partitions. Its own number counts. Apache Kafka's manager
    /// does not start in this case.
    PartitionCount {
        /// What `num_partitions` says.
        configured: i32,
        /// What the topic has.
        found: i32,
    },
    /// Records are removed that are still needed: by time or size, or by compaction, which keeps
    /// one record without a key at most.
    RecordsAreRemoved {
        /// Kafka's name of the setting.
        setting: String,
        /// Its value.
        found: String,
    },
    /// `min.insync.replicas` is above the number of replicas. Some brokers then take no event.
    /// Others, Apache Kafka 4.3 with its default features among them, take the number of replicas
    /// for it: an event is kept by fewer brokers than the setting asks for.
    MinIsrAboveReplicas {
        /// `min.insync.replicas`.
        min_isr: i32,
        /// How many replicas the partition with the fewest has.
        replicas: i32,
    },
    /// Another setting has another value.
    Setting {
        /// Kafka's name of the setting.
        setting: String,
        /// What a topic created with this configuration would have.
        configured: String,
        /// What the topic has.
        found: String,
    },
    /// The topic's settings could not be read.
    SettingsNotReadable {
        /// Why, as far as it is known.
        reason: String,
    },
}

impl fmt::Display for TopicFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartitionCount { configured, found } => write!(
                f,
                "it has {found} partitions, not {configured}: its own number counts; a broker of \
                 Apache Kafka with {configured} configured does not start"
            ),
            Self::RecordsAreRemoved { setting, found } => write!(
                f,
                "`{setting}` is {found}: brokers remove events whose segments still exist"
            ),
            Self::MinIsrAboveReplicas { min_isr, replicas } => write!(
                f,
                "`min.insync.replicas` is {min_isr} and partitions have {replicas} replicas: \
                 some brokers take no event then, and others keep it on fewer replicas than asked"
            ),
            Self::Setting {
                setting,
                configured,
                found,
            } => write!(f, "`{setting}` is {found}, not {configured}"),
            Self::SettingsNotReadable { reason } => {
                write!(f, "its settings cannot be read: {reason}")
            }
        }
    }
}
