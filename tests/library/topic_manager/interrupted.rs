//! Calls that are dropped, and managers that are shut down, at every await.
//!
//! Each case runs on a runtime of its own with paused time: a wait that nothing ends is found at
//! once, and a task that is left over is counted.

use krabka_remote_storage::{ErrorKind, RemoteLogMetadataStore};
use tokio::runtime::Builder;
use tokio::time::Instant;

use super::scripted_log::{Marks, Publish, ScriptedLog};
use super::*;

/// Polls `call` at most `polls` times; `None` when it was dropped before its answer.
async fn polled<T>(call: impl Future<Output = T>, mut polls: usize) -> Option<T> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|cx| {
        if polls == 0 {
            return std::task::Poll::Ready(None);
        }
        polls -= 1;
        call.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Wakes itself again and again, so that a call beside it is polled whether it was woken or not.
async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Runs a case on a runtime of its own, and looks for what it left.
fn case<C: Future<Output = ()>>(run: impl FnOnce() -> C) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        run().await;
        // A task that was stopped ends when it runs next.
        for _ in 0..50 {
            if Handle::current().metrics().num_alive_tasks() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!(
            "{} tasks are left",
            Handle::current().metrics().num_alive_tasks()
        );
    });
}

const FAULTS: [Publish; 6] = [
    Publish::Works,
    Publish::NotSent,
    Publish::LosesAnswer,
    Publish::LosesEvent,
    Publish::HangsAfterwards,
    Publish::Hangs,
];

#[test]
fn a_change_may_be_dropped_at_every_await() {
    for fault in FAULTS {
        for polls in 0..6 {
            case(|| async move {
                let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
                let manager = ready(&log, &dir).await;
                let segment = segment(&tp_in(0), 1, 0);
                log.next_publishes([fault]);
                let call = manager.add_segment(segment.clone());
                let (_, ()) = tokio::join!(polled(call, polls), yields(8));
                // The manager works on, and knows what the dropped call did. (When the call was
                // never polled its fault is still there, and strikes the next one.)
                let next = manager.add_segment(segment.clone()).await;
                if polls > 0 {
                    next.unwrap();
                    assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap(), [segment]);
                    assert_eq!(log.inner.high_water_marks().await.unwrap()[0], 1);
                }
            });
        }
    }
}

#[test]
fn a_manager_may_be_shut_down_at_every_await_of_a_change() {
    for fault in FAULTS {
        for after in 0..6 {
            case(|| async move {
                let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
                let manager = ready(&log, &dir).await;
                log.next_publishes([fault]);
                let stop = async {
                    yields(after).await;
                    manager.shutdown();
                };
                let begin = Instant::now();
                let call = manager.add_segment(segment(&tp_in(0), 1, 0));
                let (answer, ()) = tokio::join!(call, stop);
                assert!(begin.elapsed().is_zero(), "{fault:?} {after}");
                if let Err(error) = answer {
                    assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::OutcomeUnknown | ErrorKind::Unavailable
                        ),
                        "{fault:?} {after}: {error}"
                    );
                }
            });
        }
    }
}

#[test]
fn an_assignment_may_be_dropped_at_every_await() {
    for polls in 0..6 {
        for marks in [None, Some(Marks::Fail), Some(Marks::Hang)] {
            case(|| async move {
                let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
                log.next_marks(marks);
                let manager = start(&log, &dir);
                let call = manager.reconcile_assignment(&[0, 1]);
                let (_, ()) = tokio::join!(polled(call, polls), yields(8));
                let _ = manager.reconcile_assignment(&[1, 2]).await;
                manager.wait_until_ready().await.unwrap();
                assert_eq!(manager.assigned_metadata_partitions(), [1, 2]);
            });
        }
    }
}

#[test]
fn a_manager_may_be_dropped_or_shut_down_at_every_moment_of_its_start() {
    for after in 0..8 {
        for is_dropped in [true, false] {
            case(|| async move {
                let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
                log.next_marks([Marks::Hang]);
                let manager = start(&log, &dir);
                let begin = Instant::now();
                let other = Arc::clone(&manager);
                let call = async move { other.reconcile_assignment(&[0]).await };
                let stopped = Arc::clone(&manager);
                let stop = async move {
                    yields(after).await;
                    stopped.shutdown();
                };
                if is_dropped {
                    drop(stop);
                    tokio::join!(polled(call, after), yields(after));
                } else {
                    let (answer, ()) = tokio::join!(call, stop);
                    answer.unwrap_err();
                }
                assert!(begin.elapsed().is_zero());
                drop(manager);
            });
        }
    }
}

#[test]
fn the_last_flush_may_be_dropped_at_every_await() {
    for polls in 0..6 {
        case(|| async move {
            let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
            let manager = ready(&log, &dir).await;
            manager.add_segment(segment(&tp_in(0), 1, 0)).await.unwrap();
            let (flushed, ()) =
                tokio::join!(polled(manager.shutdown_and_flush(), polls), yields(8));
            if let Some(flushed) = flushed {
                flushed.unwrap();
            }
            drop(manager);
            // Whatever was written: the next start is whole.
            let manager = ready(&log, &dir).await;
            assert_eq!(manager.list_segments(&tp_in(0)).await.unwrap().len(), 1);
        });
    }
}

#[test]
fn two_ends_at_once_both_end() {
    case(|| async {
        let (log, dir) = (ScriptedLog::new(PARTITIONS), TempDir::new().unwrap());
        let manager = ready(&log, &dir).await;
        let begin = Instant::now();
        let (one, other) = tokio::join!(manager.shutdown_and_flush(), manager.shutdown_and_flush());
        one.unwrap();
        other.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(30));
    });
}
