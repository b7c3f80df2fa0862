//! How a blocking call waits for an asynchronous one, wherever it is made.
//!
//! Waiting on a thread that drives tasks panics in tokio or stops those tasks, so a [`Bridge`] first
//! finds out where it is:
//!
//! | Called on | It waits |
//! |---|---|
//! | a thread outside of any runtime | right there |
//! | a `spawn_blocking` thread | right there |
//! | a worker of a multi-thread runtime | right there, after handing the worker's tasks over (`block_in_place`) |
//! | a thread that is inside a `block_on`, a `LocalSet` or an entered runtime | while a helper thread makes the call |
//! | the thread of a current-thread runtime | the same; it refuses if the bridge was given this runtime, whose tasks it may be waiting for |
//!
//! Calls run on the runtime whose handle the bridge was given, or on one of its own. Two kinds of
//! handle could leave a call waiting for ever, so there the calls run on the bridge's own runtime too:
//! a current-thread runtime runs only while somebody drives it, which a bridge cannot know; and a
//! runtime whose own threads make the calls may have none left to do the work.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::{fmt, io, mem, thread};

use parking_lot::RwLock;
use tokio::runtime::{self, Handle, Runtime, RuntimeFlavor};
use tokio::task::coop;
use tracing::Instrument as _;

use crate::error::RemoteStorageError;

/// Threads of an own runtime. They drive timers, sockets and background tasks; the call itself is
/// polled by the thread that waits for it.
const OWN_WORKERS: usize = 2;

/// The thread name of everything that a bridge starts.
const THREAD_NAME: &str = "krabka-remote-storage";

/// More than any task's budget: tokio keeps it in a byte.
const MORE_THAN_A_BUDGET: usize = 256;

/// Lets blocking callers wait for futures. See the module for where it can.
pub(super) struct Bridge {
    caller: Option<Handle>,
    own: OwnRuntime,
}

impl Bridge {
    /// Runs calls on a runtime of its own, which the first call starts.
    pub(super) fn with_own_runtime() -> Self {
        Self {
            caller: None,
            own: OwnRuntime::default(),
        }
    }

    /// Runs calls on this runtime, which must live as long as calls are made.
    pub(super) fn on(handle: Handle) -> Self {
        Self {
            caller: Some(handle),
            own: OwnRuntime::default(),
        }
    }

    /// Waits until `call` is done.
    ///
    /// # Errors
    ///
    /// Those of the call. [`InvalidArgument`](RemoteStorageError::InvalidArgument) where waiting
    /// could never end; [`Io`](RemoteStorageError::Io) when a thread or runtime cannot be started,
    /// or the call has panicked (as it may when its runtime has been shut down).
    pub(super) fn wait<T: Send>(
        &self,
        call: impl Future<Output = Result<T, RemoteStorageError>> + Send,
    ) -> Result<T, RemoteStorageError> {
        let here = Handle::try_current().ok();
        let place = here.as_ref().map_or(Place::Free, Place::inside);
        let own_thread = self.caller_is(here.as_ref());
        if own_thread && place == Place::Driver {
            return Err(RemoteStorageError::InvalidArgument(
                CALLED_ON_OWN_RUNTIME.to_owned(),
            ));
        }
        let handle = match &self.caller {
            Some(handle) if !own_thread && is_self_driven(handle) => handle.clone(),
            _ => self.own.handle()?,
        };
        let mut call = Call {
            future: pin!(call),
            begun: false,
        };
        let done = match place {
            Place::Free => attempt(&mut call, |call| handle.block_on(call)),
            Place::Worker => attempt(&mut call, |call| {
                tokio::task::block_in_place(|| handle.block_on(call))
            }),
            Place::Driver | Place::Inside => None,
        };
        done.unwrap_or_else(|| on_helper_thread(&handle, &mut call))
    }

    /// Stops the own runtime, if there is one, without waiting for what still runs on it. A later
    /// call fails.
    pub(super) fn close(&self) {
        self.own.stop();
    }

    /// Whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.own.state.read(), State::Stopped)
    }

    fn caller_is(&self, runtime: Option<&Handle>) -> bool {
        let ids = self.caller.as_ref().zip(runtime);
        ids.is_some_and(|(caller, runtime)| caller.id() == runtime.id())
    }
}

fn is_self_driven(handle: &Handle) -> bool {
    handle.runtime_flavor() != RuntimeFlavor::CurrentThread
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("own_runtime", &self.caller.is_none())
            .finish_non_exhaustive()
    }
}

const CALLED_ON_OWN_RUNTIME: &str = "a blocking call was made on the only thread of the runtime that it was given, whose tasks it \
     would stop and may need: await the asynchronous operation instead, or make the call inside \
     `tokio::task::spawn_blocking`";

/// What the current thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing that would mind being blocked.
    Free,
    /// It works for a multi-thread runtime.
    Worker,
    /// It drives a current-thread runtime.
    Driver,
    /// It is inside of something asynchronous, or has only entered a runtime.
    Inside,
}

impl Place {
    /// The place of a thread that has this current runtime.
    fn inside(current: &Handle) -> Self {
        let is_task = tokio::task::try_id().is_some();
        match (runtime::worker_index(), is_self_driven(current)) {
            (Some(_), false) => Self::Driver,
            (Some(_), true) => Self::Worker,
            // A task without a worker: work of `spawn_blocking`, or a task of a `LocalSet`. Only
            // the latter has a budget.
            (None, _) if is_task && !has_budget() => Self::Free,
            (None, _) => Self::Inside,
        }
    }
}

/// Whether the current task has a limited budget, as asynchronous tasks have.
///
/// There is no question for it, so this spends the budget until it is gone or cannot be limited,
/// and gives it back.
fn has_budget() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    // Dropped last, it restores the budget to what it was.
    let Poll::Ready(_restore) = coop::poll_proceed(&mut context) else {
        return true;
    };
    for _ in 0..MORE_THAN_A_BUDGET {
        match coop::poll_proceed(&mut context) {
            Poll::Ready(spent) => spent.made_progress(),
            Poll::Pending => return true,
        }
    }
    false
}

/// Makes the call by `block_on`, with an error for a panic.
///
/// `None` when tokio refuses to wait here: the place looked free and was not. (Two are known: an
/// unconstrained task of a `LocalSet`, and the thread of one runtime that has entered another.)
fn attempt<T>(
    call: &mut Call<'_, T>,
    block_on: impl FnOnce(&mut Call<'_, T>) -> Result<T, RemoteStorageError>,
) -> Option<Result<T, RemoteStorageError>> {
    match catch_unwind(AssertUnwindSafe(|| block_on(call))) {
        Ok(done) => Some(done),
        Err(panic) if call.begun => Some(Err(panicked(panic.as_ref()))),
        Err(_) => None,
    }
}

/// A call that remembers whether it was ever polled.
struct Call<'a, T> {
    future: Pin<&'a mut (dyn Future<Output = Result<T, RemoteStorageError>> + Send)>,
    begun: bool,
}

impl<T> Future for Call<'_, T> {
    type Output = Result<T, RemoteStorageError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.begun = true;
        self.future.as_mut().poll(context)
    }
}

/// Waits for a helper thread, which makes the call.
fn on_helper_thread<T: Send>(
    handle: &Handle,
    call: &mut Call<'_, T>,
) -> Result<T, RemoteStorageError> {
    let span = tracing::Span::current();
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    let helper = || {
        tracing::dispatcher::with_default(&subscriber, || handle.block_on(call.instrument(span)))
    };
    thread::scope(|scope| {
        thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn_scoped(scope, helper)?
            .join()
            .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
    })
}

fn panicked(panic: &(dyn Any + Send)) -> RemoteStorageError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    io::Error::other(format!("the call panicked: {text}")).into()
}

/// A runtime that is started when it is first needed, and can be dropped anywhere.
#[derive(Default)]
struct OwnRuntime {
    state: RwLock<State>,
}

#[derive(Default)]
enum State {
    #[default]
    NotStarted,
    Running(Runtime),
    Stopped,
}

impl OwnRuntime {
    fn handle(&self) -> Result<Handle, RemoteStorageError> {
        if let State::Running(runtime) = &*self.state.read() {
            return Ok(runtime.handle().clone());
        }
        let mut state = self.state.write();
        match &*state {
            State::Running(runtime) => Ok(runtime.handle().clone()),
            State::Stopped => Err(RemoteStorageError::InvalidArgument(
                "a blocking call was made after close()".to_owned(),
            )),
            State::NotStarted => {
                let runtime = runtime::Builder::new_multi_thread()
                    .worker_threads(OWN_WORKERS)
                    .thread_name(THREAD_NAME)
                    .enable_all()
                    .build()?;
                let handle = runtime.handle().clone();
                *state = State::Running(runtime);
                Ok(handle)
            }
        }
    }

    fn stop(&self) {
        if let State::Running(runtime) = mem::replace(&mut *self.state.write(), State::Stopped) {
            // Waiting for its threads would panic inside of asynchronous code.
            runtime.shutdown_background();
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
