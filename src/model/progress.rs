//! Where a copy is, for whoever waits for it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// What a copy is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyPhase {
    /// It has not sent anything yet: it checks the files, or waits for a permit.
    #[default]
    Preparing,
    /// Index objects and the log's parts are on their way.
    Uploading,
    /// All else is durable, and the `.log` is being made visible.
    Completing,
    /// The manifest is being written (archive mode).
    Sealing,
    /// The copy has failed, and what it wrote is being removed.
    CleaningUp,
    /// Every object is durable.
    Done,
}

impl CopyPhase {
    /// The phase's name, as it stands in errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Uploading => "uploading",
            Self::Completing => "completing",
            Self::Sealing => "sealing",
            Self::CleaningUp => "cleaning up",
            Self::Done => "done",
        }
    }
}

impl fmt::Display for CopyPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a copy was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopySnapshot {
    /// What the copy was doing.
    pub phase: CopyPhase,
    /// The key of the object that it was last busy with; empty before the first.
    pub key: Arc<str>,
    /// The part of that object, counted from 1; `None` for a single request.
    pub part: Option<u32>,
    /// Bytes that the store has acknowledged so far, all objects together.
    pub bytes_done: u64,
    /// Bytes of all objects together, once they are known.
    pub bytes_total: u64,
}

/// A view into a running copy, shared by all clones.
///
/// Keep a clone of a request's progress to watch it; the deadline layer reads the same value to
/// say where a copy was when its time ran out.
#[derive(Clone, Debug, Default)]
pub struct CopyProgress {
    state: Arc<Mutex<CopySnapshot>>,
}

impl PartialEq for CopyProgress {
    /// Two values are equal when they watch the same copy.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl CopyProgress {
    /// Progress of a copy that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the copy is now.
    pub fn snapshot(&self) -> CopySnapshot {
        self.state.lock().clone()
    }

    /// Changes the state in one step; for services that copy.
    pub fn update(&self, change: impl FnOnce(&mut CopySnapshot)) {
        change(&mut self.state.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_watches_the_same_copy() {
        let progress = CopyProgress::new();
        let watcher = progress.clone();
        assert_eq!(watcher.snapshot().phase, CopyPhase::Preparing);
        assert_eq!(&*watcher.snapshot().key, "");
        progress.update(|state| {
            state.phase = CopyPhase::Uploading;
            state.part = Some(2);
            state.bytes_done += 5;
        });
        let seen = watcher.snapshot();
        assert_eq!(seen.phase, CopyPhase::Uploading);
        assert_eq!((seen.part, seen.bytes_done), (Some(2), 5));
    }
}
