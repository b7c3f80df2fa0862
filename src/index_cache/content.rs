//! What the cache holds: a key, its content, and the slot that gives it up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

use super::file::IndexFile;
use crate::error::RemoteStorageError;
use crate::model::IndexType;

/// What the cache had to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexCacheOutcome {
    /// Answered from the cache, or by the load of another call that was under way.
    Hit,
    /// Loaded for this call.
    Miss,
    /// Loaded without the cache: it is disabled, or this kind of index is never cached.
    Disabled,
}

/// The least that an entry counts for, in bytes: an entry that counted for nothing would never
/// make room for another.
const MIN_WEIGHT: usize = 32;

/// Which index of which segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) segment: Uuid,
    pub(super) index: IndexType,
}

/// The kinds that are cached. The others are read once, when a replica is rebuilt.
pub(crate) const CACHED: [IndexType; 3] = [
    IndexType::Offset,
    IndexType::Timestamp,
    IndexType::Transaction,
];

impl Key {
    /// `None` for a kind that is never cached.
    pub(super) fn new(segment: Uuid, index: IndexType) -> Option<Self> {
        CACHED.contains(&index).then_some(Self { segment, index })
    }
}

/// An index. A clone is one reference.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Memory(Bytes),
    File(Arc<IndexFile>),
    /// The segment has no such index.
    Missing,
}

impl Content {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(file) => file.len(),
            Self::Missing => 0,
        }
    }

    /// What it counts for in the budget; `None` for more than can be counted.
    pub(super) fn weight(&self) -> Option<u32> {
        self.len().max(MIN_WEIGHT).try_into().ok()
    }

    /// The bytes of an index in memory; `None` of one that is missing, or in a file.
    pub(super) fn in_memory(self) -> Option<Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(_) | Self::Missing => None,
        }
    }

    pub(super) fn is_file(&self, file: &Arc<IndexFile>) -> bool {
        matches!(self, Self::File(own) if Arc::ptr_eq(own, file))
    }
}

/// The place of one load in the cache.
///
/// The cache's own bookkeeping holds on to slots for a while after they have left it. The content
/// does not wait for that: whoever takes an entry out vacates the slot.
#[derive(Debug)]
pub(super) struct Slot {
    key: Key,
    state: Mutex<State>,
    /// When it was last asked for, in nanoseconds since the cache was made.
    last_used: AtomicU64,
    /// Whether it is among those whose use moka is to be told of.
    is_noted: AtomicBool,
}

#[derive(Debug)]
enum State {
    Loading,
    Held(Content),
    Vacated,
}

impl Slot {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            state: Mutex::new(State::Loading),
            last_used: AtomicU64::new(0),
            is_noted: AtomicBool::new(false),
        }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Puts the loaded content in. `false` when the slot was vacated meanwhile: removal wins.
    /// `admit` runs before anybody can see the content.
    pub(super) fn fill(&self, content: Content, admit: impl FnOnce(&Content)) -> bool {
        let mut state = self.state.lock();
        if !matches!(*state, State::Loading) {
            return false;
        }
        admit(&content);
        *state = State::Held(content);
        true
    }

    pub(super) fn content(&self) -> Option<Content> {
        match &*self.state.lock() {
            State::Held(content) => Some(content.clone()),
            State::Loading | State::Vacated => None,
        }
    }

    /// Takes the content out, for good. The content comes out once.
    pub(super) fn vacate(&self) -> Option<Content> {
        match std::mem::replace(&mut *self.state.lock(), State::Vacated) {
            State::Held(content) => Some(content),
            State::Loading | State::Vacated => None,
        }
    }

    pub(super) fn is_vacated(&self) -> bool {
        matches!(*self.state.lock(), State::Vacated)
    }

    /// What the cache counts it for.
    pub(super) fn weight(&self) -> u32 {
        match &*self.state.lock() {
            State::Held(content) => content.weight().unwrap_or(u32::MAX),
            State::Loading | State::Vacated => 1,
        }
    }

    pub(super) fn touch(&self, now: u64) {
        self.last_used.store(now, Ordering::Relaxed);
    }

    pub(super) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Notes whether it is among those whose use moka is to be told of, and answers whether it was.
    pub(super) fn note(&self, is_noted: bool) -> bool {
        self.is_noted.load(Ordering::Relaxed) == is_noted
            || self.is_noted.swap(is_noted, Ordering::Relaxed) == is_noted
    }
}

/// Does file work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // Only a runtime that shuts down does not run the work.
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The load of an index, as often as it takes.
pub(super) type Fetch = Arc<
    dyn Fn() -> futures::future::BoxFuture<'static, Result<Bytes, RemoteStorageError>>
        + Send
        + Sync,
>;
