//! Signs of life of a store request whose body is on its way.
//!
//! A long body is not a hung request: the timeout of an attempt limits silence, not length. The
//! timeout layer runs the attempt in the scope of one; whatever moves the body's bytes
//! marks the activity that it finds there.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::beginning;

tokio::task_local! {
    static CURRENT: RefCell<AttemptActivity>;
}

/// When bytes of a request or of its answer last moved. Clones share the value.
#[derive(Clone, Debug)]
pub struct Activity {
    last: Arc<Mutex<Instant>>,
}

impl Activity {
    /// An activity whose last sign of life is now.
    pub fn start() -> Self {
        Self::since(beginning())
    }

    fn since(began: Instant) -> Self {
        Self {
            last: Arc::new(Mutex::new(began)),
        }
    }

    /// The activity of the attempt that the current task makes, if it makes one.
    ///
    /// Take it before handing a body to another task: that task cannot find it.
    pub fn current() -> Option<Self> {
        let made = CURRENT.try_with(|attempt| attempt.borrow_mut().activity().clone());
        made.ok()
    }

    /// Runs `attempt` so that [`Activity::current`] finds this activity in it.
    pub fn scope<F: Future>(&self, attempt: F) -> impl Future<Output = F::Output> + use<F> {
        let activity = AttemptActivity {
            began: self.last(),
            activity: Some(self.clone()),
        };
        CURRENT.scope(RefCell::new(activity), attempt)
    }

    /// Records that bytes moved.
    pub fn mark(&self) {
        *self.last.lock() = Instant::now();
    }

    /// When bytes last moved, or when the attempt began.
    pub fn last(&self) -> Instant {
        *self.last.lock()
    }
}

/// The activity of one attempt, made when it is first asked for: many answers come at once.
#[derive(Clone, Debug)]
pub(crate) struct AttemptActivity {
    began: Instant,
    activity: Option<Activity>,
}

impl AttemptActivity {
    /// That of an attempt that begins now.
    pub(crate) fn start() -> Self {
        Self {
            began: beginning(),
            activity: None,
        }
    }

    /// When the attempt began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// When bytes last moved, or when the attempt began.
    pub(crate) fn last(&self) -> Instant {
        self.activity.as_ref().map_or(self.began, Activity::last)
    }

    /// Runs a step of the attempt so that [`Activity::current`] finds this activity in it.
    pub(crate) fn in_scope<T>(&mut self, step: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(RefCell::new(self.clone()), || {
            let done = step();
            CURRENT.with(|attempt| self.activity = attempt.borrow_mut().activity.take());
            done
        })
    }

    fn activity(&mut self) -> &Activity {
        self.activity
            .get_or_insert_with(|| Activity::since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_made_inside_the_scope_is_seen_outside_it() {
        let activity = Activity::start();
        let begun = activity.last();
        activity
            .scope(async {
                tokio::time::advance(Duration::from_secs(3)).await;
                Activity::current().expect("inside the scope").mark();
            })
            .await;
        assert_eq!(activity.last() - begun, Duration::from_secs(3));
        assert!(Activity::current().is_none());
    }
}
