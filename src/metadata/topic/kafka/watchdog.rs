//! Looks now and then whether each partition that is read goes on as its topic does.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rdkafka::Offset;
use tokio::time::MissedTickBehavior;

use super::log::Core;
use super::subscription::Subscription;

/// A partition's assignment, where it was, and where its topic ended, at the last look.
type Seen = HashMap<i32, (u64, i64, i64)>;

/// Runs until it is dropped, or the log is.
pub(super) async fn watch(core: Weak<Core>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: HashMap<usize, Seen> = HashMap::new();
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(core) = core.upgrade() else {
            return;
        };
        let subscriptions = core.subscriptions();
        if subscriptions.is_empty() {
            seen.clear();
            continue;
        }
        match core.ask(Offset::End).await {
            Ok((topic, marks)) => {
                if let Err(error) = core.check_count(topic) {
                    tracing::error!("{error}");
                }
                let look = |one| (address(one), look(one, seen.get(&address(one)), &marks));
                seen = subscriptions.iter().map(look).collect();
            }
            Err(error) => {
                // Nothing can be said of partitions whose topic is not known.
                seen.clear();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the metadata topic cannot be looked at"
                );
            }
        }
    }
}

fn address(subscription: &Arc<Subscription>) -> usize {
    Arc::as_ptr(subscription).addr()
}

fn look(subscription: &Arc<Subscription>, before: Option<&Seen>, marks: &[i64]) -> Seen {
    let mut seen = Seen::new();
    let mut has_stopped = false;
    for (partition, (generation, position)) in subscription.waiting() {
        let index = usize::try_from(partition).ok();
        let Some(&end) = index.and_then(|index| marks.get(index)) else {
            continue;
        };
        let before = before.and_then(|before| before.get(&partition));
        if let Some(&(generation_before, position_before, end_before)) = before
            && (generation_before, position_before) == (generation, position)
            // Also beyond the end: the topic was made again, and is shorter.
            && end_before != position
            && end != position
        {
            has_stopped = true;
            tracing::error!(
                partition,
                position,
                end,
                "reading of the metadata topic has stopped, and begins again with another consumer"
            );
        }
        seen.insert(partition, (generation, position, end));
    }
    if has_stopped {
        subscription.restart();
    }
    seen
}
