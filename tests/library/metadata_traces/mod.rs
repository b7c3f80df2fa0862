//! The manager against Apache Kafka's own: what Kafka's read and answered while Kafka's tests ran
//! stands in `tests/data/metadata-traces`, whose README has the format.
//!
//! Each of Kafka's managers gets one of ours, over a log that holds what Kafka's has read so far
//! and nothing more. What Kafka's manager wrote itself, ours writes by the same call. Then every
//! question of the trace is asked again, where it stands.
//!
//! # Where the answers differ
//!
//! | Kafka | here | Why |
//! |---|---|---|
//! | `RemoteResourceNotFoundException`: the partition was not given to the manager, or has been deleted | nothing is found | a question about an unknown partition is no error (`RemoteLogMetadataStore`) |
//! | `ReplicaNotAvailableException`: not ready | `NotReady` | its name |
//! | `KafkaException` from a write: published, and nobody here has read it | `NotReady`, and nothing is published | a write is refused before it is sent when its event would not be seen |
//! | a partition is not ready until its own events were read, once more if need be | it is ready with its metadata partition | here every event of an assigned metadata partition is applied, whoever's it is, and where there is nothing to read the replay is over at once |
//!
//! The last line concerns `is_ready` alone. How often it does, in which trace, stands in [`TRACES`].

mod replay;
mod trace;

use std::collections::BTreeSet;

use crate::support::metadata_topic::data;
use replay::{Counts, replay};
use trace::Trace;

/// What is in a trace.
struct Expected {
    class: &'static str,
    counts: Counts,
}

const fn trace(
    class: &'static str,
    answers: usize,
    is_ready: usize,
    ready_sooner: usize,
    writes: usize,
) -> Expected {
    let counts = Counts {
        answers,
        is_ready,
        ready_sooner,
        writes,
    };
    Expected { class, counts }
}

/// Every trace: answers of the store, answers of `is_ready`, those of them that say "ready" here
/// and not yet in Kafka, and writes.
const TRACES: [Expected; 20] = [
    trace("AlterLogDirTest", 31, 13, 0, 6),
    trace("DeleteSegmentsByRetentionSizeTest", 14, 7, 0, 12),
    trace("DeleteSegmentsByRetentionTimeTest", 9, 4, 0, 12),
    trace("DeleteSegmentsDueToLogStartOffsetBreachTest", 27, 15, 0, 14),
    trace("DeleteTopicTest", 22, 19, 3, 16),
    trace("DisableRemoteLogOnTopicTest", 19, 10, 0, 12),
    trace("EnableRemoteLogOnTopicTest", 33, 18, 0, 16),
    trace("FetchFromLeaderWithCorruptedCheckpointTest", 28, 16, 0, 8),
    trace("ListOffsetsTest", 24, 12, 0, 8),
    trace("OffloadAndConsumeFromLeaderTest", 33, 15, 0, 8),
    trace("OffloadAndTxnConsumeFromLeaderTest", 20, 4, 0, 12),
    trace("PartitionsExpandTest", 45, 27, 2, 18),
    trace("ReassignReplicaMoveTest", 295, 383, 77, 6),
    trace("ReassignReplicaShrinkTest", 47, 20, 0, 12),
    trace("RemoteLogMetadataManagerTest", 12, 0, 0, 14),
    trace("RemoteLogSegmentLifecycleTest", 70, 0, 0, 45),
    trace("RollAndOffloadActiveSegmentTest", 14, 6, 1, 8),
    trace(
        "TopicBasedRemoteLogMetadataManagerMultipleSubscriptionsTest",
        10,
        0,
        0,
        4,
    ),
    trace("TopicBasedRemoteLogMetadataManagerRestartTest", 8, 0, 0, 6),
    trace("TopicBasedRemoteLogMetadataManagerTest", 20, 8, 0, 10),
];

#[tokio::test]
async fn every_question_that_kafkas_manager_was_asked_has_the_same_answer() {
    let mut answers = 0;
    let mut wrong = Vec::new();
    for expected in &TRACES {
        let found = replay(&Trace::read(expected.class)).await;
        answers += found.answers;
        if found != expected.counts {
            wrong.push(format!(
                "{}: {found:?}, not {:?}",
                expected.class, expected.counts
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(answers, 767 + 14, "14 of them are errors in Kafka");
}

#[test]
fn no_trace_is_left_out() {
    let dir = std::fs::read_dir(data().join("metadata-traces")).unwrap();
    let names = dir.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<_> = names
        .filter_map(|name| Some(name.strip_suffix(".ndjson")?.to_owned()))
        .collect();
    let listed = TRACES.iter().map(|trace| trace.class.to_owned()).collect();
    assert_eq!(found, listed);
}
