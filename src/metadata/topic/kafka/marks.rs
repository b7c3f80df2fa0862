//! Asks brokers about the topic: whether it exists, how many partitions it has, where they begin
//! and end.
//!
//! Everything here blocks.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataBroker;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use uuid::Uuid;

use super::super::log_error::MetadataLogError;
use super::client::{self, ClientEvents, Trouble};
use super::config::KafkaMetadataLogConfig;
use super::faults;

/// How long the first look at the brokers lasts before the client's own reports are read.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// How long a leader has to settle before the offsets are asked for again.
const BETWEEN_MARKS: Duration = Duration::from_millis(250);

/// The cluster's brokers, and the topic if there is one.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) brokers: Vec<i32>,
    pub(super) topic: Option<TopicState>,
}

/// A topic that exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicState {
    pub(super) partitions: i32,
    /// Replicas of the partition that has the fewest.
    pub(super) replicas: i32,
    pub(super) id: Option<Uuid>,
}

/// A client that only asks.
pub(super) struct TopicClient {
    consumer: BaseConsumer<ClientEvents>,
    topic: String,
    request_timeout: Duration,
}

impl TopicClient {
    pub(super) fn new(config: &KafkaMetadataLogConfig) -> Result<Self, MetadataLogError> {
        let mut settings = client::settings(config, "client");
        settings.set("isolation.level", "read_uncommitted");
        client::report_topic_id(&mut settings);
        let events = ClientEvents::new(&config.topic);
        let consumer = settings
            .create_with_context(events)
            .map_err(faults::client)?;
        Ok(Self {
            consumer,
            topic: config.topic.clone(),
            request_timeout: config.request_timeout,
        })
    }

    /// The topic as it is now.
    pub(super) fn find(&self) -> Result<Found, MetadataLogError> {
        let deadline = Instant::now() + self.request_timeout;
        self.serve();
        self.events().take_trouble();
        let mut trouble = None;
        let mut patience = FIRST_LOOK;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match self.look(left.min(patience)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // The call knows only that no broker has answered; the client's reports say why.
            self.serve();
            trouble = Trouble::latest(trouble, self.events().take_trouble());
            let code = error.rdkafka_error_code();
            let is_final = code.is_some_and(faults::is_refusal)
                || trouble.as_ref().is_some_and(Trouble::is_refusal);
            if is_final || Instant::now() >= deadline {
                return Err(self.failed(error, trouble));
            }
            std::thread::sleep(BETWEEN_LOOKS);
            // A broker that is slow must not be given up each time just before it answers.
            patience *= 2;
        }
    }

    fn look(&self, patience: Duration) -> Result<Found, KafkaError> {
        let metadata = self.consumer.fetch_metadata(Some(&self.topic), patience)?;
        let mut found = Found {
            brokers: metadata.brokers().iter().map(MetadataBroker::id).collect(),
            topic: None,
        };
        let Some(topic) = metadata.topics().first() else {
            return Ok(found);
        };
        match topic.error() {
            None => {}
            Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => return Ok(found),
            Some(error) => return Err(KafkaError::MetadataFetch(error.into())),
        }
        if topic.partitions().is_empty() {
            return Err(KafkaError::MetadataFetch(
                RDKafkaErrorCode::LeaderNotAvailable,
            ));
        }
        // The report of the id comes before the answer that it is in.
        self.serve();
        let replicas = topic.partitions().iter().map(|one| one.replicas().len());
        found.topic = Some(TopicState {
            partitions: count(topic.partitions().len()),
            replicas: replicas.min().map_or(0, count),
            id: self.events().topic_id(),
        });
        Ok(found)
    }

    fn failed(&self, error: KafkaError, trouble: Option<Trouble>) -> MetadataLogError {
        let topic = &self.topic;
        let what = format!("topic {topic} cannot be looked up");
        match trouble {
            Some(trouble) if trouble.is_refusal() => faults::read(
                format!("{what}: {}", trouble.reason),
                KafkaError::Global(trouble.code),
            ),
            // A port that expects TLS hangs up without a word.
            Some(trouble) if trouble.code == RDKafkaErrorCode::AllBrokersDown => faults::read(
                format!(
                    "{what}: {}: check the addresses, and whether their ports expect TLS or SASL \
                     (`security.protocol`)",
                    trouble.reason
                ),
                error,
            ),
            Some(trouble) => faults::read(format!("{what}: {}", trouble.reason), error),
            None if error.rdkafka_error_code().is_some_and(faults::is_refusal) => {
                faults::read(what, error)
            }
            None => faults::read(format!("{what}: no broker has answered"), error),
        }
    }

    /// The first or the last offset of each of the topic's partitions, of which there have to be
    /// `partitions`.
    ///
    /// Errors that pass are waited out: leaders that move, brokers that come back.
    pub(super) fn marks(
        &self,
        which: Offset,
        partitions: i32,
    ) -> Result<Vec<i64>, MetadataLogError> {
        let deadline = Instant::now() + self.request_timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.try_marks(which, partitions, left) {
                Err(error) if error.is_retryable() && Instant::now() + BETWEEN_MARKS < deadline => {
                    tracing::debug!(topic = self.topic, %error, "the offsets are asked for again");
                    std::thread::sleep(BETWEEN_MARKS);
                }
                answer => return answer,
            }
        }
    }

    fn try_marks(
        &self,
        which: Offset,
        partitions: i32,
        patience: Duration,
    ) -> Result<Vec<i64>, MetadataLogError> {
        let topic = &self.topic;
        let mut asked = TopicPartitionList::new();
        for partition in 0..partitions {
            asked
                .add_partition_offset(topic, partition, which)
                .map_err(|error| faults::read(format!("topic {topic}"), error))?;
        }
        let answers = self.consumer.offsets_for_times(asked, patience);
        self.serve();
        let answers = answers.map_err(|error| {
            faults::read(
                format!("the offsets of topic {topic} cannot be asked for"),
                error,
            )
        })?;
        let mut marks = Vec::with_capacity(answers.count());
        for (partition, answer) in answers.elements().into_iter().enumerate() {
            let what =
                || format!("partition {partition} of topic {topic} does not tell its offsets");
            answer
                .error()
                .map_err(|error| faults::read(what(), error))?;
            match answer.offset() {
                Offset::Offset(offset) => marks.push(offset),
                _ => {
                    return Err(MetadataLogError::Unavailable {
                        reason: what(),
                        source: None,
                    });
                }
            }
        }
        Ok(marks)
    }

    fn events(&self) -> &ClientEvents {
        self.consumer.client().context()
    }

    /// Takes what the client has to report.
    fn serve(&self) {
        loop {
            let before = self.events().reports();
            let event = self.consumer.poll(Duration::ZERO);
            if event.is_none() && self.events().reports() == before {
                return;
            }
        }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
