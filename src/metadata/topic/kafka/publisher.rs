//! The producer, which is made again when it can go on no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _, PurgeConfig};
use tokio::runtime::Handle;

use super::super::log_error::MetadataLogError;
use super::client::{self, ClientEvents, OffThread};
use super::config::KafkaMetadataLogConfig;
use super::faults;
use super::log::blocking;

/// How long closing waits for events that are on their way.
const FLUSH: Duration = Duration::from_secs(5);

pub(super) struct Publisher {
    config: Arc<KafkaMetadataLogConfig>,
    runtime: Handle,
    current: RwLock<Option<Arc<Current>>>,
    /// Held while a producer is made, or asks for the topic's metadata again.
    repair: tokio::sync::Mutex<()>,
}

struct Current {
    producer: OffThread<FutureProducer<WithEvents>>,
    events: Arc<ClientEvents>,
    /// Whether the producer keeps in mind that the topic is missing, or forbidden.
    has_refused: AtomicBool,
}

/// A producer keeps its context to itself.
struct WithEvents(Arc<ClientEvents>);

impl rdkafka::ClientContext for WithEvents {
    fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl Publisher {
    pub(super) async fn start(
        config: &Arc<KafkaMetadataLogConfig>,
    ) -> Result<Self, MetadataLogError> {
        let publisher = Self {
            config: Arc::clone(config),
            runtime: Handle::current(),
            current: RwLock::default(),
            repair: tokio::sync::Mutex::default(),
        };
        let made = publisher.make().await?;
        *publisher.current.write() = Some(made);
        Ok(publisher)
    }

    async fn make(&self) -> Result<Arc<Current>, MetadataLogError> {
        let mut settings = client::settings(&self.config, "producer");
        settings
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            // An event that the client gives up while it may have been appended has it begin
            // another sequence, in which others that may have been appended are sent once more. So
            // it gives up none: the wait for the answer ends here.
            .set("message.timeout.ms", "0");
        let events = Arc::new(ClientEvents::new(&self.config.topic));
        let context = WithEvents(Arc::clone(&events));
        let made = blocking(move || Ok(settings.create_with_context(context))).await?;
        Ok(Arc::new(Current {
            producer: OffThread::new(made.map_err(faults::client)?, &self.runtime),
            events,
            has_refused: AtomicBool::new(false),
        }))
    }

    /// Appends a record to a partition that exists, and answers with its offset.
    pub(super) async fn publish(
        &self,
        partition: i32,
        key: Option<&Bytes>,
        value: Option<&Bytes>,
    ) -> Result<i64, MetadataLogError> {
        let topic = &self.config.topic;
        let mut current = self.ready().await?;
        let mut disruptions = current.events.disruptions();
        let mut sent = current.send(topic, partition, key, value);
        if sent.is_err() && current.is_broken() {
            current = self.replace(&current).await?;
            disruptions = current.events.disruptions();
            sent = current.send(topic, partition, key, value);
        }
        let delivery = sent.map_err(|error| {
            current.remember(&error);
            faults::not_sent(error)
        })?;
        let limit = self.config.publish_timeout;
        let delivered = tokio::time::timeout(limit, delivery).await;
        match delivered {
            Ok(Ok(Ok(delivered))) if delivered.offset >= 0 => Ok(delivered.offset),
            Ok(Ok(Ok(_))) => Err(MetadataLogError::OutcomeUnknown {
                reason: "it was appended, and no broker says where".to_owned(),
                source: None,
            }),
            Ok(Ok(Err((error, _)))) => {
                current.remember(&error);
                let was_disrupted = current.events.disruptions() != disruptions;
                let fatal = current.producer.client().fatal_error();
                let fatal = fatal.map(|(code, _)| code);
                Err(faults::not_delivered(error, was_disrupted, fatal))
            }
            Ok(Err(_)) => Err(faults::not_delivered(KafkaError::Canceled, true, None)),
            Err(_) => Err(MetadataLogError::OutcomeUnknown {
                reason: format!(
                    "no broker has acknowledged it within {limit:?}; it is sent on until one does, \
                     or the log is closed"
                ),
                source: None,
            }),
        }
    }

    /// A producer that can be expected to work.
    async fn ready(&self) -> Result<Arc<Current>, MetadataLogError> {
        let current = self.current()?;
        if current.is_broken() {
            return self.replace(&current).await;
        }
        if current.has_refused.load(Ordering::Acquire) {
            let _alone = self.repair.lock().await;
            if current.has_refused.load(Ordering::Acquire) {
                self.ask_again(&current).await?;
            }
        }
        Ok(current)
    }

    fn current(&self) -> Result<Arc<Current>, MetadataLogError> {
        self.current.read().clone().ok_or(MetadataLogError::Closed)
    }

    /// Has the topic's metadata fetched, which makes the producer forget that it was refused.
    async fn ask_again(&self, current: &Arc<Current>) -> Result<(), MetadataLogError> {
        let asked = Arc::clone(current);
        let topic = self.config.topic.clone();
        let limit = self.config.request_timeout;
        blocking(move || {
            let client = asked.producer.client();
            let metadata = client.fetch_metadata(Some(&topic), limit);
            let metadata = metadata.map_err(|error| MetadataLogError::Publish {
                reason: "no broker answers after one had refused an event".to_owned(),
                source: faults::cause(error),
            })?;
            match metadata.topics().first().and_then(MetadataTopic::error) {
                None => Ok(()),
                Some(error) => Err(faults::not_sent(KafkaError::MessageProduction(
                    error.into(),
                ))),
            }
        })
        .await?;
        current.has_refused.store(false, Ordering::Release);
        Ok(())
    }

    /// Puts a new producer in the place of `broken`, unless somebody has done so.
    async fn replace(&self, broken: &Arc<Current>) -> Result<Arc<Current>, MetadataLogError> {
        let _alone = self.repair.lock().await;
        let current = self.current()?;
        if !Arc::ptr_eq(&current, broken) {
            return Ok(current);
        }
        tracing::warn!(
            topic = self.config.topic,
            error = ?current.producer.client().fatal_error(),
            "the producer can go on no longer: another one takes its place"
        );
        let made = self.make().await?;
        let mut current = self.current.write();
        if current.is_none() {
            return Err(MetadataLogError::Closed);
        }
        *current = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Takes no more events, and waits a while for those on their way. What is not acknowledged
    /// then has an unknown outcome.
    pub(super) async fn close(&self) {
        let Some(current) = self.current.write().take() else {
            return;
        };
        let flushed = blocking(move || {
            let flushed = current.producer.flush(FLUSH);
            if flushed.is_err() {
                // Those who wait for them hold the producer, which would try on.
                current
                    .producer
                    .purge(PurgeConfig::default().queue().inflight());
            }
            Ok(flushed)
        });
        if let Ok(Err(error)) = flushed.await {
            tracing::warn!(%error, "events were on their way when the metadata log was closed");
        }
    }
}

impl Current {
    fn send(
        &self,
        topic: &str,
        partition: i32,
        key: Option<&Bytes>,
        value: Option<&Bytes>,
    ) -> Result<DeliveryFuture, KafkaError> {
        let record = FutureRecord::<[u8], [u8]> {
            topic,
            partition: Some(partition),
            payload: value.map(Bytes::as_ref),
            key: key.map(Bytes::as_ref),
            timestamp: None,
            headers: None,
        };
        self.producer
            .send_result(record)
            .map_err(|(error, _)| error)
    }

    fn is_broken(&self) -> bool {
        self.producer.client().fatal_error().is_some()
    }

    fn remember(&self, error: &KafkaError) {
        let code: Option<RDKafkaErrorCode> = error.rdkafka_error_code();
        if code.is_some_and(faults::is_about_the_topic) {
            self.has_refused.store(true, Ordering::Release);
        }
    }
}
