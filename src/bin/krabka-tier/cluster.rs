//! The metadata topic of a Kafka cluster: how the command line names it, and how it is read.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use krabka_remote_storage::model::TopicIdPartition;
use krabka_remote_storage::topic::{
    METADATA_TOPIC, MetadataEvent, MetadataEventLog, MetadataEventRecord, MetadataLogError,
    PoisonReason, TopicSurvey,
};

use crate::failure::{Failure, print_note};
use crate::output::count;

/// Where a file of client properties stands when the command line does not say.
#[cfg(feature = "kafka")]
const CONFIG_VARIABLE: &str = "KRABKA_KAFKA_CONFIG";

/// The cluster that a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArgs {
    /// Brokers of the cluster to begin with.
    #[arg(long, value_name = "HOST:PORT[,…]")]
    bootstrap: String,

    #[command(flatten)]
    client: ClientArgs,
}

/// The cluster that a command may ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct OptionalClusterArgs {
    /// Takes the segments that the metadata of this cluster names, in the place of those that the
    /// tier's listing shows: brokers of the cluster to begin with.
    ///
    /// A segment whose copy or deletion is under way is left out, as a broker leaves it out, and so
    /// is what a deletion has left behind.
    #[arg(long, value_name = "HOST:PORT[,…]")]
    bootstrap: Option<String>,

    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Args, Clone, Debug)]
struct ClientArgs {
    /// The topic with the metadata of remote segments.
    #[arg(long, value_name = "TOPIC", default_value = METADATA_TOPIC)]
    metadata_topic: String,

    /// How the brokers are reached: client properties, as Kafka's own tools take them with
    /// --command-config.
    ///
    /// Understood are `security.protocol`, `sasl.mechanism` and `sasl.jaas.config` (PLAIN, SCRAM),
    /// `ssl.truststore…` and `ssl.keystore…` of the type PEM, `ssl.key.password`,
    /// `ssl.endpoint.identification.algorithm`, `client.id`, `request.timeout.ms`. Without this option
    /// the environment's `KRABKA_KAFKA_CONFIG` names the file.
    #[arg(long, value_name = "FILE", requires = "bootstrap")]
    kafka_config: Option<PathBuf>,
}

/// A cluster's metadata topic, open for reading.
pub(crate) struct Cluster {
    pub(crate) log: Arc<dyn MetadataEventLog>,
    /// Without anything secret.
    name: String,
    /// How long nothing may come.
    patience: Duration,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl OptionalClusterArgs {
    /// The cluster, if the command line names one.
    pub(crate) fn given(self) -> Option<ClusterArgs> {
        Some(ClusterArgs {
            bootstrap: self.bootstrap?,
            client: self.client,
        })
    }
}

impl ClusterArgs {
    /// Connects to the cluster and finds the topic.
    #[cfg(feature = "kafka")]
    pub(crate) async fn open(self, patience: Duration) -> Result<Cluster, Failure> {
        use krabka_remote_storage::topic::{KafkaMetadataEventLog, KafkaMetadataLogConfig};

        let name = format!("topic {} at {}", self.client.metadata_topic, self.bootstrap);
        let mut config = KafkaMetadataLogConfig::new(self.bootstrap);
        config.topic = self.client.metadata_topic;
        "krabka-tier".clone_into(&mut config.client_id);
        config.request_timeout = patience;
        // Nobody waits for records that are to come, but for those that are there.
        config.fetch_max_wait = Duration::from_millis(100);
        if let Some(file) = config_file(self.client.kafka_config) {
            let text = std::fs::read_to_string(&file).map_err(|error| {
                krabka_remote_storage::RemoteStorageError::io("read", &file, error)
            })?;
            config.set_client_properties(&text).map_err(|fault| {
                Failure::Refused(format!("{} does not hold: {fault}", file.display()))
            })?;
        }
        config.validate().map_err(Failure::Usage)?;
        match KafkaMetadataEventLog::open_read_only(config).await {
            Ok(log) => Ok(Cluster {
                log,
                name,
                patience,
            }),
            Err(source) => Err(Failure::Cluster {
                what: format!("cannot open {name}"),
                source,
            }),
        }
    }

    /// Says that this program cannot.
    #[cfg(not(feature = "kafka"))]
    #[allow(clippy::unused_async)] // as the other one
    pub(crate) async fn open(self, _patience: Duration) -> Result<Cluster, Failure> {
        Err(Failure::Usage(
            "this program was built without the feature `kafka`, and cannot ask a cluster: \
             `cargo install --path . --features kafka` builds it with a Kafka client"
                .to_owned(),
        ))
    }
}

#[cfg(feature = "kafka")]
fn config_file(given: Option<PathBuf>) -> Option<PathBuf> {
    let of_environment = || {
        let file = std::env::var_os(CONFIG_VARIABLE).filter(|file| !file.is_empty());
        file.map(PathBuf::from)
    };
    given.or_else(of_environment)
}

impl Cluster {
    /// Replays the topic to its end, with a bar on a terminal that says how far it has come.
    pub(crate) async fn catch_up(
        &self,
        survey: &mut TopicSurvey,
        mut observe: impl FnMut(&MetadataEventRecord, &Result<MetadataEvent, PoisonReason>) + Send,
    ) -> Result<(), Failure> {
        let bar = records_bar();
        let mut counted = |record: &MetadataEventRecord, event: &Result<_, _>| {
            bar.inc(1);
            if event.is_err() {
                bar.suspend(|| observe(record, event));
            } else {
                observe(record, event);
            }
        };
        let read = survey
            .catch_up(&*self.log, self.patience, &mut counted)
            .await;
        bar.finish_and_clear();
        read.map_err(|source| self.failed(source))
    }

    pub(crate) fn failed(&self, source: MetadataLogError) -> Failure {
        Failure::Cluster {
            what: format!("cannot read {self}"),
            source,
        }
    }

    /// What the cluster's metadata tells of some user's partitions.
    pub(crate) async fn survey(
        &self,
        keep: impl Fn(&TopicIdPartition) -> bool + Send + Sync + 'static,
    ) -> Result<TopicSurvey, Failure> {
        let mut survey = TopicSurvey::new().keeping(keep);
        let mut poison = 0;
        self.catch_up(&mut survey, |_, event| poison += u64::from(event.is_err()))
            .await?;
        if poison > 0 {
            print_note(format_args!(
                "{} in {self}, passed over here; brokers of Apache Kafka stop at such a record: \
                 `krabka-tier metadata dump` shows them",
                count(poison, "poison record is", "poison records are")
            ));
        }
        self.note_misplaced(&survey);
        Ok(survey)
    }

    /// Says that there are events which neither a broker nor this program applies, and why.
    pub(crate) fn note_misplaced(&self, survey: &TopicSurvey) {
        let misplaced = misplaced(survey);
        if misplaced > 0 {
            print_note(format_args!(
                "{} in {self} in another metadata partition than that in which brokers look for \
                 them, mostly because partitions were added to the topic; what they say is not \
                 applied, by brokers or here: the segments that they name are not orphans",
                count(misplaced, "event is", "events are")
            ));
        }
    }
}

/// How many events stand in a metadata partition in which nobody looks for them.
pub(crate) fn misplaced(survey: &TopicSurvey) -> u64 {
    let partitions = survey.metadata_partitions().iter();
    partitions.map(|partition| partition.misplaced).sum()
}

/// A spinner that counts. Hidden, unless standard error is a terminal.
fn records_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {human_pos} metadata records  {per_sec}")
    {
        bar.set_style(style);
    }
    bar
}
