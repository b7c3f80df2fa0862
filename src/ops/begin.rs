//! How layers begin a call: with one reading of the clock, and without a clone where none is due.

use std::cell::Cell;
use std::task::{Context, Poll, Waker};

use futures::future::Either;
use tokio::time::Instant;
use tower::util::Oneshot;
use tower::{Service, ServiceExt as _};

use super::{OpService, StorageOp};

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Now; inside [`begin_together`] the moment at which that began.
pub(crate) fn beginning() -> Instant {
    BEGAN.get().unwrap_or_else(Instant::now)
}

/// Runs `begin`, which makes a call through several layers and does not wait: for all of them it is
/// one moment, and one reading of the clock.
pub(crate) fn begin_together<T>(began: Instant, begin: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also when a layer panics.
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            BEGAN.set(self.0);
        }
    }
    let _before = Before(BEGAN.replace(Some(began)));
    begin()
}

/// A call that [`call_when_ready`] made.
pub(crate) type ReadyCall<S, Op> = Either<<S as Service<Op>>::Future, Oneshot<S, Op>>;

/// Calls a service: at once if it is ready, or else when it is.
///
/// An instance that is not ready has its place in some queue, and goes with the call; a clone stays
/// in its stead. Kept, it could be given a permit that nobody uses.
pub(crate) fn call_when_ready<Op: StorageOp, S: OpService<Op>>(
    service: &mut S,
    op: Op,
) -> ReadyCall<S, Op> {
    // Nobody is woken: the call asks again.
    match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => Either::Left(service.call(op)),
        Poll::Ready(Err(_)) | Poll::Pending => {
            let fresh = service.clone();
            Either::Right(std::mem::replace(service, fresh).oneshot(op))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_begins_together_has_one_beginning_and_what_comes_later_its_own() {
        let began = Instant::now() - Duration::from_secs(3);
        let inside = begin_together(began, || {
            let earlier = began - Duration::from_secs(1);
            (begin_together(earlier, beginning), beginning())
        });
        assert_eq!(inside, (began - Duration::from_secs(1), began));
        assert!(beginning() > began);
    }

    #[test]
    fn a_panic_leaves_no_beginning_behind() {
        let began = Instant::now() - Duration::from_secs(3);
        let panicked = std::panic::catch_unwind(|| begin_together(began, || panic!("a layer")));
        assert!(panicked.is_err());
        assert!(beginning() > began);
    }
}
