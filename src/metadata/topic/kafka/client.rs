//! What all clients of a log have in common: their settings, what they report, and how they end.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::config::KafkaMetadataLogConfig;
use super::faults;

/// The settings that every client has.
pub(super) fn settings(config: &KafkaMetadataLogConfig, suffix: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", &config.bootstrap)
        .set("client.id", format!("{}-{suffix}", config.client_id))
        // A topic that a broker creates by itself has its own settings: too few partitions, and a
        // retention that deletes events.
        .set("allow.auto.create.topics", "false")
        .set(
            "socket.timeout.ms",
            millis(config.request_timeout, 10, 300_000),
        )
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", "1000")
        // A broker closes connections that nobody uses: no news.
        .set("log.connection.close", "false")
        .set("enable.metrics.push", "false")
        .set_log_level(RDKafkaLogLevel::Info);
    if let Some(security) = &config.security {
        security.set(&mut client);
    }
    client
}

/// Makes a client report the topic's id, which has no function of its own: see [`changed_id`].
pub(super) fn report_topic_id(client: &mut ClientConfig) {
    client
        .set("debug", "metadata")
        .set_log_level(RDKafkaLogLevel::Debug);
}

/// A time in milliseconds, within what librdkafka takes.
pub(super) fn millis(time: Duration, least: u64, most: u64) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    millis.clamp(least, most).to_string()
}

/// Trouble that a client reports by itself.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) code: RDKafkaErrorCode,
    pub(super) reason: String,
}

impl Trouble {
    /// The one that says more: that all brokers are down only follows from what came before.
    pub(super) fn latest(before: Option<Self>, now: Option<Self>) -> Option<Self> {
        let says_little = |one: &Self| one.code == RDKafkaErrorCode::AllBrokersDown;
        match now {
            Some(now) if before.is_none() || !says_little(&now) => Some(now),
            _ => before,
        }
    }

    /// Whether brokers refuse this client, or this client refuses them.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.code,
            RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SSL
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::UnsupportedSASLMechanism
        )
    }
}

/// Takes what a client reports, in the thread that polls it.
#[derive(Debug)]
pub(super) struct ClientEvents {
    topic: String,
    reports: AtomicU64,
    disruptions: AtomicU64,
    end_of_partition: AtomicI64,
    topic_id: Mutex<Option<Uuid>>,
    trouble: Mutex<Option<Trouble>>,
}

impl ClientEvents {
    pub(super) fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            reports: AtomicU64::new(0),
            disruptions: AtomicU64::new(0),
            end_of_partition: AtomicI64::new(-1),
            topic_id: Mutex::new(None),
            trouble: Mutex::new(None),
        }
    }

    /// Grows with everything that is reported: a poll without a result is the last one only if this
    /// has not grown.
    pub(super) fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// Grows with every lost connection.
    pub(super) fn disruptions(&self) -> u64 {
        self.disruptions.load(Ordering::Relaxed)
    }

    /// The offset of the end that was reported last, before the error item that tells of it.
    pub(super) fn end_of_partition(&self) -> Option<i64> {
        let end = self.end_of_partition.swap(-1, Ordering::Relaxed);
        (end >= 0).then_some(end)
    }

    /// The topic's id that this client works with.
    pub(super) fn topic_id(&self) -> Option<Uuid> {
        *self.topic_id.lock()
    }

    /// The last trouble, once.
    pub(super) fn take_trouble(&self) -> Option<Trouble> {
        self.trouble.lock().take()
    }
}

impl ClientContext for ClientEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.reports.fetch_add(1, Ordering::Relaxed);
        match level {
            RDKafkaLogLevel::Debug => {
                if let Some(id) = changed_id(&self.topic, message) {
                    *self.topic_id.lock() = (!id.is_nil()).then_some(id);
                }
            }
            RDKafkaLogLevel::Info => tracing::debug!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Notice => tracing::info!(facility, "librdkafka: {message}"),
            _ => tracing::warn!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reports.fetch_add(1, Ordering::Relaxed);
        let code = error.rdkafka_error_code();
        if code == Some(RDKafkaErrorCode::PartitionEOF) {
            let end = end_offset(reason).unwrap_or(-1);
            self.end_of_partition.store(end, Ordering::Relaxed);
            return;
        }
        // A broker that refuses something, and a producer that ends for it, are no lost connection.
        let is_answer = |code| code == RDKafkaErrorCode::Fatal || faults::is_refusal(code);
        if !code.is_some_and(is_answer) {
            self.disruptions.fetch_add(1, Ordering::Relaxed);
        }
        tracing::warn!(
            topic = self.topic,
            "trouble with a Kafka broker: {error}: {reason}"
        );
        let now = code.map(|code| Trouble {
            code,
            reason: reason.to_owned(),
        });
        let mut trouble = self.trouble.lock();
        *trouble = Trouble::latest(trouble.take(), now);
    }
}

impl ConsumerContext for ClientEvents {}

/// The offset in librdkafka's report of a partition's end, the only place that has it.
fn end_offset(reason: &str) -> Option<i64> {
    let (_, offset) = reason.split_once("end of partition at offset ")?;
    offset.split(' ').next()?.parse().ok()
}

/// The new id in librdkafka's report that it has learned a topic's id, the only place that has it;
/// the nil id when the brokers have none.
fn changed_id(topic: &str, message: &str) -> Option<Uuid> {
    let (_, ids) = message.split_once(&format!("Topic {topic} changed id from "))?;
    let (_, id) = ids.split_once(" to ")?;
    let bytes = STANDARD_NO_PAD.decode(id.trim()).ok()?;
    Uuid::from_slice(&bytes).ok()
}

/// A client, whose end blocks: it ends in a thread that may block.
pub(super) struct OffThread<T: Send + 'static> {
    value: Option<T>,
    runtime: Handle,
}

impl<T: Send + 'static> OffThread<T> {
    pub(super) fn new(value: T, runtime: &Handle) -> Self {
        Self {
            value: Some(value),
            runtime: runtime.clone(),
        }
    }
}

impl<T: Send + 'static> Deref for OffThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken by drop alone")
    }
}

impl<T: Send + 'static> Drop for OffThread<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        self.runtime.spawn_blocking(move || drop(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_an_end_is_taken_from_its_report() {
        let report =
            "Fetch from broker 1 reached end of partition at offset 123 (HighwaterMark 123)";
        assert_eq!(end_offset(report), Some(123));
        assert_eq!(end_offset("Fetch from broker 1 failed"), None);
    }

    #[test]
    fn a_topic_id_is_taken_from_its_report() {
        let report = "[thrd:main]: Topic t changed id from AAAAAAAAAAAAAAAAAAAAAA to \
                      AAAAAAAAAAAAAAAAAAAAyg";
        assert_eq!(changed_id("t", report), Some(Uuid::from_u128(0xca)));
        assert_eq!(changed_id("other", report), None);
        let gone = "Topic t changed id from AAAAAAAAAAAAAAAAAAAAyg to AAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(changed_id("t", gone), Some(Uuid::nil()));
        assert_eq!(
            changed_id("t", "Topic t changed id from A to not an id"),
            None
        );
    }
}
