//! Every kind of thread, each with a watchdog: a deadlock is a failure and not a hung test.
#![allow(
    clippy::needless_pass_by_value,
    reason = "jobs are run by functions of one type"
)]

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::task::LocalSet;

use super::*;
use crate::error::ErrorKind;

type Job = Arc<dyn Fn() + Send + Sync>;

/// Runs a job somewhere in a runtime.
type Run = fn(&Runtime, Job);

/// Runs `test` on a plain thread, and fails when it does not come to its end.
fn watched(name: &str, test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(20)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: deadlock"),
        _ => thread
            .join()
            .unwrap_or_else(|_| panic!("{name}: panicked, see above")),
    }
}

/// Needs all that a runtime has: tasks, timers, blocking threads.
async fn busy_call() -> Result<u32, RemoteStorageError> {
    let task = tokio::spawn(async {
        tokio::task::yield_now().await;
        3
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let blocking = tokio::task::spawn_blocking(|| 4);
    Ok(task.await.map_err(io::Error::other)? + blocking.await.map_err(io::Error::other)?)
}

fn multi_thread(workers: usize) -> Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        // Fewer than would be needed if calls waited for these.
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// A place to call from: makes a runtime, and runs the job somewhere in it.
struct Call {
    from: &'static str,
    runtime: fn() -> Runtime,
    run: Run,
    /// Whether it is the very thread that drives the runtime.
    drives: bool,
}

const fn call(from: &'static str, runtime: fn() -> Runtime, run: Run) -> Call {
    Call {
        from,
        runtime,
        run,
        drives: false,
    }
}

const fn driver(from: &'static str, run: Run) -> Call {
    Call {
        from,
        runtime: current_thread,
        run,
        drives: true,
    }
}

fn on_two_workers() -> Runtime {
    multi_thread(2)
}

fn on_one_worker() -> Runtime {
    multi_thread(1)
}

fn plain(_: &Runtime, job: Job) {
    job();
}

fn foreign_executor(_: &Runtime, job: Job) {
    futures::executor::block_on(async { job() });
}

fn entered(runtime: &Runtime, job: Job) {
    let _entered = runtime.enter();
    job();
}

fn root(runtime: &Runtime, job: Job) {
    runtime.block_on(async { job() });
}

fn root_of_handle(runtime: &Runtime, job: Job) {
    runtime.handle().block_on(async { job() });
}

fn task(runtime: &Runtime, job: Job) {
    runtime.block_on(async {
        tokio::spawn(async move { job() }).await.unwrap();
    });
}

fn unconstrained_task(runtime: &Runtime, job: Job) {
    runtime.block_on(async {
        let call = tokio::task::unconstrained(async move { job() });
        tokio::spawn(call).await.unwrap();
    });
}

fn task_without_budget_left(runtime: &Runtime, job: Job) {
    runtime.block_on(async {
        let spend = async move {
            while coop::has_budget_remaining() {
                poll_fn(coop::poll_proceed).await.made_progress();
            }
            job();
        };
        tokio::spawn(spend).await.unwrap();
    });
}

fn blocking_thread(runtime: &Runtime, job: Job) {
    runtime.block_on(async {
        tokio::task::spawn_blocking(move || job()).await.unwrap();
    });
}

fn block_on_in_blocking_thread(runtime: &Runtime, job: Job) {
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        tokio::task::spawn_blocking(move || handle.block_on(async { job() }))
            .await
            .unwrap();
    });
}

fn block_in_place(runtime: &Runtime, job: Job) {
    runtime.block_on(async {
        tokio::spawn(async move { tokio::task::block_in_place(|| job()) })
            .await
            .unwrap();
    });
}

fn local_root(runtime: &Runtime, job: Job) {
    LocalSet::new().block_on(runtime, async { job() });
}

fn local_task(runtime: &Runtime, job: Job) {
    LocalSet::new().block_on(runtime, async {
        tokio::task::spawn_local(async move { job() })
            .await
            .unwrap();
    });
}

fn local_set_in_root(runtime: &Runtime, job: Job) {
    runtime.block_on(LocalSet::new().run_until(async { job() }));
}

/// Has no budget, and yet must not block.
fn unconstrained_local_task(runtime: &Runtime, job: Job) {
    LocalSet::new().block_on(runtime, async {
        let call = tokio::task::unconstrained(async move { job() });
        tokio::task::spawn_local(call).await.unwrap();
    });
}

fn scoped_thread(runtime: &Runtime, job: Job) {
    runtime.block_on(async { thread::scope(|scope| scope.spawn(|| job()).join().unwrap()) });
}

fn task_in_another_runtime(runtime: &Runtime, job: Job) {
    let other = multi_thread(1);
    let _entered = runtime.enter();
    other.block_on(async {
        tokio::spawn(async move { job() }).await.unwrap();
    });
    other.shutdown_background();
}

/// Enters another runtime while this one's thread is being used.
fn masked_root(runtime: &Runtime, job: Job) {
    let other = multi_thread(1);
    runtime.block_on(async {
        let _masked = other.enter();
        job();
    });
    other.shutdown_background();
}

fn masked_task(runtime: &Runtime, job: Job) {
    let other = current_thread();
    let handle = other.handle().clone();
    runtime.block_on(async {
        let masked = async move {
            let _masked = handle.enter();
            job();
        };
        tokio::spawn(masked).await.unwrap();
    });
}

const CALLS: [Call; 34] = [
    call("a plain thread", on_two_workers, plain),
    call("a foreign executor", on_two_workers, foreign_executor),
    call("an entered runtime", on_two_workers, entered),
    call("the root future", on_two_workers, root),
    call(
        "the root future of a handle",
        on_two_workers,
        root_of_handle,
    ),
    call("a worker", on_two_workers, task),
    call("the only worker", on_one_worker, task),
    call("an unconstrained task", on_one_worker, unconstrained_task),
    call(
        "a task without budget",
        on_one_worker,
        task_without_budget_left,
    ),
    call("the only blocking thread", on_one_worker, blocking_thread),
    call(
        "block_on in a blocking thread",
        on_one_worker,
        block_on_in_blocking_thread,
    ),
    call("block_in_place", on_one_worker, block_in_place),
    call("a LocalSet's root", on_two_workers, local_root),
    call("a LocalSet's task", on_two_workers, local_task),
    call(
        "a LocalSet in the root future",
        on_two_workers,
        local_set_in_root,
    ),
    call("a scoped thread", on_two_workers, scoped_thread),
    call(
        "a task of another runtime",
        on_two_workers,
        task_in_another_runtime,
    ),
    call("a masked task", on_two_workers, masked_task),
    call(
        "an unconstrained local task",
        on_two_workers,
        unconstrained_local_task,
    ),
    call("a masked root", current_thread, masked_root),
    call("a plain thread, nobody drives", current_thread, plain),
    call("an entered current-thread runtime", current_thread, entered),
    call(
        "a current-thread handle's root",
        current_thread,
        root_of_handle,
    ),
    call(
        "a current-thread blocking thread",
        current_thread,
        blocking_thread,
    ),
    call(
        "block_on in the same",
        current_thread,
        block_on_in_blocking_thread,
    ),
    call(
        "a scoped thread, its parent waits",
        current_thread,
        scoped_thread,
    ),
    call(
        "a task of another, entered",
        current_thread,
        task_in_another_runtime,
    ),
    driver("a current-thread root", root),
    driver("a current-thread task", task),
    driver("an unconstrained current-thread task", unconstrained_task),
    driver("a current-thread LocalSet's root", local_root),
    driver("a current-thread LocalSet's task", local_task),
    driver("a current-thread LocalSet in the root", local_set_in_root),
    driver(
        "a current-thread task without budget",
        task_without_budget_left,
    ),
];

/// Makes three calls from the place, on the bridge that `make` makes for its runtime.
fn outcomes(
    place: &'static Call,
    make: impl FnOnce(&Runtime) -> Bridge + Send + 'static,
) -> Vec<Result<u32, RemoteStorageError>> {
    let outcomes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let found = Arc::clone(&outcomes);
    watched(place.from, move || {
        let runtime = (place.runtime)();
        let bridge = make(&runtime);
        let job = move || {
            for _ in 0..3 {
                found.lock().push(bridge.wait(busy_call()));
            }
        };
        (place.run)(&runtime, Arc::new(job));
        runtime.shutdown_background();
    });
    let outcomes = outcomes.lock();
    assert_eq!(outcomes.len(), 3);
    outcomes.clone()
}

fn assert_all_succeed(place: &'static Call, outcomes: Vec<Result<u32, RemoteStorageError>>) {
    for outcome in outcomes {
        assert_eq!(outcome.ok(), Some(7), "{}", place.from);
    }
}

#[test]
fn a_bridge_with_a_runtime_of_its_own_works_from_everywhere() {
    for place in &CALLS {
        assert_all_succeed(place, outcomes(place, |_| Bridge::with_own_runtime()));
    }
}

#[test]
fn a_bridge_on_another_multi_thread_runtime_works_from_everywhere() {
    let runtime = multi_thread(1);
    for place in &CALLS {
        let handle = runtime.handle().clone();
        assert_all_succeed(place, outcomes(place, |_| Bridge::on(handle)));
    }
}

#[test]
fn a_bridge_on_a_current_thread_runtime_that_nobody_drives_works_from_everywhere() {
    let runtime = current_thread();
    for place in &CALLS {
        let handle = runtime.handle().clone();
        assert_all_succeed(place, outcomes(place, |_| Bridge::on(handle)));
    }
}

#[test]
fn a_bridge_on_the_very_runtime_works_but_for_the_thread_that_drives_it() {
    for place in &CALLS {
        let outcomes = outcomes(place, |runtime| Bridge::on(runtime.handle().clone()));
        if !place.drives {
            assert_all_succeed(place, outcomes);
            continue;
        }
        for outcome in outcomes {
            let error = outcome.expect_err(place.from);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{}: {error}", place.from);
            let text = error.to_string();
            assert!(text.contains("only thread of the runtime"), "{text}");
            assert!(text.contains("spawn_blocking"), "{text}");
        }
    }
}

#[test]
fn every_worker_may_wait_at_once() {
    watched("all workers", || {
        let runtime = multi_thread(2);
        let bridge = Arc::new(Bridge::on(runtime.handle().clone()));
        runtime.block_on(async {
            let calls = (0..8).map(|_| {
                let bridge = Arc::clone(&bridge);
                tokio::spawn(async move { bridge.wait(busy_call()) })
            });
            for outcome in futures::future::join_all(calls).await {
                assert_eq!(outcome.unwrap().unwrap(), 7);
            }
        });
    });
}

#[test]
fn plain_threads_and_spawn_blocking_poll_the_call_themselves() {
    async fn poller() -> Result<thread::ThreadId, RemoteStorageError> {
        std::future::ready(()).await;
        Ok(thread::current().id())
    }
    watched("no hop", || {
        let runtime = multi_thread(1);
        let bridge = Arc::new(Bridge::with_own_runtime());
        assert_eq!(bridge.wait(poller()).unwrap(), thread::current().id());
        let same = runtime.block_on(runtime.spawn_blocking({
            let bridge = Arc::clone(&bridge);
            move || bridge.wait(poller()).unwrap() == thread::current().id()
        }));
        assert!(same.unwrap());
        let same =
            runtime
                .block_on(runtime.spawn(async move {
                    bridge.wait(poller()).unwrap() == thread::current().id()
                }));
        assert!(same.unwrap());
    });
}

#[test]
fn finding_out_the_place_gives_a_task_its_budget_back() {
    let runtime = current_thread();
    runtime.block_on(async {
        assert!(has_budget());
        let mut left = 0;
        while coop::has_budget_remaining() {
            poll_fn(coop::poll_proceed).await.made_progress();
            left += 1;
        }
        assert!(left > 100, "{left}");
        assert!(has_budget());
    });
}

#[test]
fn a_call_that_panics_is_an_error_wherever_it_is_polled() {
    async fn broken() -> Result<(), RemoteStorageError> {
        std::future::ready(()).await;
        panic!("on purpose");
    }
    static PLACES: [Call; 3] = [
        call("a plain thread", on_two_workers, plain),
        call("a worker", on_two_workers, task),
        driver("a current-thread task", task),
    ];
    for place in &PLACES {
        watched(place.from, || {
            let runtime = (place.runtime)();
            let job = || {
                let bridge = Bridge::with_own_runtime();
                let error = bridge.wait(broken()).unwrap_err();
                assert_eq!(error.to_string(), "the call panicked: on purpose");
                assert_eq!(bridge.wait(busy_call()).unwrap(), 7);
            };
            (place.run)(&runtime, Arc::new(job));
        });
    }
}

#[test]
fn a_runtime_that_has_been_shut_down_is_an_error() {
    watched("shut down", || {
        let runtime = multi_thread(1);
        let bridge = Bridge::on(runtime.handle().clone());
        runtime.shutdown_timeout(Duration::from_secs(1));
        let error = bridge.wait(busy_call()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    });
}

#[test]
fn a_bridge_can_be_dropped_and_closed_everywhere() {
    for place in &CALLS {
        watched(place.from, || {
            let runtime = (place.runtime)();
            let job = || {
                let bridge = Bridge::with_own_runtime();
                drop(bridge);

                let bridge = Bridge::with_own_runtime();
                assert_eq!(bridge.wait(busy_call()).unwrap(), 7);
                drop(bridge);

                let bridge = Bridge::with_own_runtime();
                assert_eq!(bridge.wait(busy_call()).unwrap(), 7);
                bridge.close();
                bridge.close();
                let error = bridge.wait(busy_call()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            };
            (place.run)(&runtime, Arc::new(job));
        });
    }
}

#[test]
fn a_helper_thread_keeps_the_span_and_the_subscriber() {
    struct Count(Arc<AtomicUsize>);
    impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>>
        tracing_subscriber::Layer<S> for Count
    {
        fn on_event(
            &self,
            event: &tracing::Event<'_>,
            context: tracing_subscriber::layer::Context<'_, S>,
        ) {
            if context
                .event_span(event)
                .is_some_and(|span| span.name() == "outer")
            {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    use tracing_subscriber::layer::SubscriberExt as _;

    let count = Arc::new(AtomicUsize::new(0));
    let subscriber = tracing_subscriber::registry().with(Count(Arc::clone(&count)));
    tracing::subscriber::with_default(subscriber, || {
        current_thread().block_on(async {
            let _outer = tracing::info_span!("outer").entered();
            let call = async {
                tracing::info!("inside");
                Ok(())
            };
            Bridge::with_own_runtime().wait(call).unwrap();
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
