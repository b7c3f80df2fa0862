//! What a manager measures.

use std::collections::{BTreeMap, BTreeSet};

use krabka_remote_storage::RemoteLogMetadataStore;
use krabka_remote_storage::layers::metrics::describe_metrics;
use krabka_remote_storage::topic::MetadataStreamItem;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::scripted_log::{Publish, ScriptedLog};
use super::*;

const PREFIX: &str = "krabka_remote_storage_metadata_";

/// Name, kind and label names of a metric.
type Row = (String, String, Vec<String>);

/// The table in the docs of the module.
fn documented() -> BTreeSet<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    include_str!("../../../src/metadata/topic/mod.rs")
        .lines()
        .filter(|line| line.starts_with("//! | `krabka_remote_storage_"))
        .map(cells)
        .map(|cells| {
            let labels = cells[3].split(", ").filter(|label| !label.is_empty());
            (
                cells[1].clone(),
                cells[2].clone(),
                labels.map(str::to_owned).collect(),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn everything_that_the_table_in_the_docs_names_is_measured() {
    let recorder = DebuggingRecorder::new();
    let _local = ::metrics::set_default_local_recorder(&recorder);
    describe_metrics();

    let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
    log.inner.publish(0, "no event".into()).await.unwrap();
    let manager = ready(&log, &dir).await;
    let known = segment(&tp_in(0), 1, 0);
    manager.add_segment(known.clone()).await.unwrap();
    manager.add_segment(known.clone()).await.unwrap();
    manager
        .add_segment(segment(&tp_in(0), 1, 50))
        .await
        .unwrap_err();
    log.next_publishes([Publish::NotSent, Publish::LosesEvent]);
    manager.update_segment(finished(&known)).await.unwrap_err();
    manager.update_segment(finished(&known)).await.unwrap_err();
    log.inject(Some(MetadataStreamItem::OutOfRange {
        partition: 1,
        generation: 2,
        position: 5,
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    manager.flush().await.unwrap();

    let mut emitted = BTreeSet::new();
    let mut counts = BTreeMap::new();
    for (key, _, description, value) in recorder.snapshotter().snapshot().into_vec() {
        let name = key.key().name().to_owned();
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        assert!(description.is_some(), "{name} is described");
        let labels: Vec<_> = key.key().labels().collect();
        let names = labels.iter().map(|label| label.key().to_owned()).collect();
        if let DebugValue::Counter(count) = value {
            let label = labels.first().map_or("", |label| label.value()).to_owned();
            counts.insert((name.trim_start_matches(PREFIX).to_owned(), label), count);
        }
        emitted.insert((name, kind.to_owned(), names));
    }
    assert_eq!(emitted, documented());
    let expected = [
        ("events_applied_total", "", 1),
        ("publishes_total", "applied", 1),
        ("publishes_total", "not_sent", 1),
        ("publishes_total", "refused", 1),
        ("publishes_total", "repeated", 1),
        ("publishes_total", "unknown", 1),
        ("records_skipped_total", "malformed", 1),
        ("replay_restarts_total", "shorter", 1),
        ("snapshots_total", "written", 1),
    ];
    let expected =
        expected.map(|(name, label, count)| ((name.to_owned(), label.to_owned()), count));
    assert_eq!(counts, BTreeMap::from(expected));
}
