//! A metadata event log that fails, hangs and counts on demand, over the in-process log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use krabka_remote_storage::topic::{
    AssignmentHandle, InProcessMetadataEventLog, KeyedEvent, MetadataEventLog, MetadataEventStream,
    MetadataLogError, MetadataStreamItem, PartitionStart, RangeVisitor,
};
use parking_lot::Mutex;
use uuid::Uuid;

/// What one publish does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// It works.
    Works,
    /// It is refused before it was sent; trying again may help.
    NotSent,
    /// It is refused for good.
    Rejected,
    /// The event is appended, and the answer lost.
    LosesAnswer,
    /// The event is lost, and with it the answer.
    LosesEvent,
    /// The event is appended, and no answer ever comes.
    HangsAfterwards,
    /// Nothing ever happens.
    Hangs,
}

/// What one question for marks does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    Fail,
    Hang,
}

#[derive(Default)]
struct Script {
    publishes: VecDeque<Publish>,
    marks: VecDeque<Marks>,
    subscriptions: VecDeque<MetadataLogError>,
    /// Into the latest subscription.
    inject: Option<mpsc::UnboundedSender<Option<MetadataStreamItem>>>,
    low: Option<Vec<i64>>,
    high: Option<Vec<i64>>,
    topic_id: Option<Uuid>,
}

pub(crate) struct ScriptedLog {
    pub(crate) inner: Arc<InProcessMetadataEventLog>,
    script: Mutex<Script>,
    delivered: Arc<AtomicUsize>,
    subscriptions: AtomicUsize,
    questions: AtomicUsize,
}

impl ScriptedLog {
    pub(crate) fn new(partitions: i32) -> Arc<Self> {
        Self::over(InProcessMetadataEventLog::new(partitions))
    }

    pub(crate) fn over(inner: Arc<InProcessMetadataEventLog>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            script: Mutex::default(),
            delivered: Arc::default(),
            subscriptions: AtomicUsize::new(0),
            questions: AtomicUsize::new(0),
        })
    }

    pub(crate) fn next_publishes(&self, publishes: impl IntoIterator<Item = Publish>) {
        self.script.lock().publishes.extend(publishes);
    }

    pub(crate) fn next_marks(&self, marks: impl IntoIterator<Item = Marks>) {
        self.script.lock().marks.extend(marks);
    }

    pub(crate) fn fail_next_subscription(&self, error: MetadataLogError) {
        self.script.lock().subscriptions.push_back(error);
    }

    /// What the log says its marks are, from now on.
    pub(crate) fn pretend_marks(&self, low: Option<Vec<i64>>, high: Option<Vec<i64>>) {
        let mut script = self.script.lock();
        script.low = low;
        script.high = high;
    }

    pub(crate) fn pretend_topic_id(&self, id: Uuid) {
        self.script.lock().topic_id = Some(id);
    }

    /// Puts an item into the latest subscription; `None` ends it.
    pub(crate) fn inject(&self, item: Option<MetadataStreamItem>) {
        let script = self.script.lock();
        let injected = script.inject.as_ref().expect("a subscription");
        injected
            .unbounded_send(item)
            .expect("a stream that is read");
    }

    /// How many records were delivered to subscribers.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered.load(Ordering::SeqCst)
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::SeqCst)
    }

    /// How often low marks were asked for.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

fn not_sent() -> MetadataLogError {
    MetadataLogError::Publish {
        reason: "the broker is not there".to_owned(),
        source: None,
    }
}

fn lost_answer() -> MetadataLogError {
    MetadataLogError::OutcomeUnknown {
        reason: "the answer was lost".to_owned(),
        source: None,
    }
}

#[async_trait]
impl MetadataEventLog for ScriptedLog {
    fn partition_count(&self) -> i32 {
        self.inner.partition_count()
    }

    fn topic_id(&self) -> Option<Uuid> {
        self.script.lock().topic_id.or(self.inner.topic_id())
    }

    async fn publish(&self, partition: i32, payload: Bytes) -> Result<i64, MetadataLogError> {
        let next = self.script.lock().publishes.pop_front();
        match next.unwrap_or(Publish::Works) {
            Publish::Works => self.inner.publish(partition, payload).await,
            Publish::NotSent => Err(not_sent()),
            Publish::Rejected => Err(MetadataLogError::Rejected {
                reason: "no right to write".to_owned(),
                source: None,
            }),
            Publish::LosesAnswer => {
                self.inner.publish(partition, payload).await?;
                Err(lost_answer())
            }
            Publish::LosesEvent => Err(lost_answer()),
            Publish::HangsAfterwards => {
                self.inner.publish(partition, payload).await?;
                std::future::pending().await
            }
            Publish::Hangs => std::future::pending().await,
        }
    }

    async fn publish_keyed(
        &self,
        partition: i32,
        record: KeyedEvent,
    ) -> Result<i64, MetadataLogError> {
        self.inner.publish_keyed(partition, record).await
    }

    async fn subscribe(
        &self,
        starts: Vec<PartitionStart>,
    ) -> Result<(MetadataEventStream, Arc<dyn AssignmentHandle>), MetadataLogError> {
        self.subscriptions.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.script.lock().subscriptions.pop_front() {
            return Err(error);
        }
        let (stream, handle) = self.inner.subscribe(starts).await?;
        let (inject, injected) = mpsc::unbounded();
        self.script.lock().inject = Some(inject);
        let delivered = Arc::clone(&self.delivered);
        let counted = stream.map(move |item| {
            if let MetadataStreamItem::Page(page) = &item {
                delivered.fetch_add(page.records.len(), Ordering::SeqCst);
            }
            Some(item)
        });
        let both = futures::stream::select(injected, counted);
        let until_end = both.take_while(|item| std::future::ready(item.is_some()));
        Ok((until_end.filter_map(std::future::ready).boxed(), handle))
    }

    async fn low_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let (next, pretended) = {
            let mut script = self.script.lock();
            (script.marks.pop_front(), script.low.clone())
        };
        match next {
            Some(Marks::Fail) => Err(MetadataLogError::Unavailable {
                reason: "no leader".to_owned(),
                source: None,
            }),
            Some(Marks::Hang) => std::future::pending().await,
            None => match pretended {
                Some(marks) => Ok(marks),
                None => self.inner.low_water_marks().await,
            },
        }
    }

    async fn high_water_marks(&self) -> Result<Vec<i64>, MetadataLogError> {
        let pretended = self.script.lock().high.clone();
        match pretended {
            Some(marks) => Ok(marks),
            None => self.inner.high_water_marks().await,
        }
    }

    async fn visit_range(
        &self,
        partition: i32,
        start: i64,
        end: i64,
        visitor: &mut RangeVisitor<'_>,
    ) -> Result<(), MetadataLogError> {
        self.inner.visit_range(partition, start, end, visitor).await
    }
}
