//! What a copy reads: local files, whole or part by part, and bytes in memory.
//!
//! A file's length is taken once, when it is opened, and exactly that many bytes are uploaded: a
//! file that grows meanwhile is cut there, one that shrinks is an error.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::RemoteStorageError;
use crate::model::{IndexType, LOG_FILE_SUFFIX, LogSegmentData};

/// One artifact of a segment, open for reading.
#[derive(Debug)]
pub(super) struct Artifact {
    pub(super) suffix: &'static str,
    pub(super) length: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File { path: PathBuf, file: File },
    Memory(Bytes),
}

/// A part of an artifact, read.
#[derive(Debug)]
pub(super) struct Part {
    /// Counted from 1.
    pub(super) number: u32,
    /// Where the part begins, in bytes.
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

/// Opens every artifact of a segment, in the order of Kafka's artifacts, `.log` first.
pub(super) async fn open(data: Arc<LogSegmentData>) -> Result<Vec<Artifact>, RemoteStorageError> {
    blocking(move || {
        let files = [
            (LOG_FILE_SUFFIX, Some(&data.log_segment)),
            (IndexType::Offset.suffix(), Some(&data.offset_index)),
            (IndexType::Timestamp.suffix(), Some(&data.time_index)),
            (
                IndexType::ProducerSnapshot.suffix(),
                data.producer_snapshot_index.as_ref(),
            ),
        ];
        let mut artifacts = Vec::with_capacity(6);
        for (suffix, path) in files {
            if let Some(path) = path {
                artifacts.push(Artifact::open(suffix, path)?);
            }
        }
        artifacts.push(Artifact {
            suffix: IndexType::LeaderEpoch.suffix(),
            length: data.leader_epoch_index.len() as u64,
            content: Content::Memory(data.leader_epoch_index.clone()),
        });
        if let Some(path) = &data.transaction_index {
            artifacts.push(Artifact::open(IndexType::Transaction.suffix(), path)?);
        }
        Ok(artifacts)
    })
    .await
}

impl Artifact {
    fn open(suffix: &'static str, path: &Path) -> Result<Self, RemoteStorageError> {
        let failed = |error| RemoteStorageError::io("open", path, error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )));
        }
        Ok(Self {
            suffix,
            length: metadata.len(),
            content: Content::File {
                path: path.to_owned(),
                file,
            },
        })
    }

    /// Reads the whole artifact, and takes its digest where one is wanted.
    pub(super) async fn read_whole(
        self,
        digest: bool,
    ) -> Result<(Bytes, Option<[u8; 32]>), RemoteStorageError> {
        blocking(move || {
            let bytes = match self.content {
                Content::Memory(bytes) => bytes,
                Content::File { path, file } => {
                    let mut buffer = Vec::new();
                    read_exactly(&file, &path, 0, self.length, &mut buffer)?;
                    buffer.into()
                }
            };
            let sha256 = digest.then(|| Sha256::digest(&bytes).into());
            Ok((bytes, sha256))
        })
        .await
    }

    /// Begins to read the artifact part by part, from its beginning.
    pub(super) fn parts(self: &Arc<Self>, part_size: u64, hasher: Option<SharedHasher>) -> Parts {
        let (sender, received) = mpsc::unbounded_channel();
        let reader = Reader {
            artifact: Arc::clone(self),
            part_size,
            offset: 0,
            number: 0,
            buffers: Buffers::default(),
            sender,
        };
        let reading = Reading {
            places: READ_AHEAD,
            idle: Some(reader),
        };
        let parts = Parts {
            reading: Arc::new(Mutex::new(reading)),
            received,
            left: self.length,
            hasher,
        };
        parts.read_on();
        parts
    }
}

/// How many parts may wait for the digest or be in it.
const HASHED_AHEAD: u32 = 2;

/// Takes the digest of the parts that a reader hands out, in their order.
///
/// A part is hashed while it is sent and the next ones are read. One thread hashes on while there
/// are parts: to wake another for each would take up to a third of the time. It never waits for
/// parts, as those may need a thread, too, to be read. The digest costs two parts of memory, and a
/// reader waits when it is so far ahead.
#[derive(Clone, Debug)]
pub(super) struct SharedHasher {
    queue: Arc<Mutex<HashQueue>>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct HashQueue {
    parts: VecDeque<(Bytes, OwnedSemaphorePermit)>,
    /// Of what was hashed so far; `None` while a thread has it.
    idle: Option<Sha256>,
}

impl SharedHasher {
    pub(super) fn new() -> Self {
        Self {
            queue: Arc::new(Mutex::new(HashQueue {
                parts: VecDeque::new(),
                idle: Some(Sha256::new()),
            })),
            places: Arc::new(Semaphore::new(HASHED_AHEAD as usize)),
        }
    }

    /// The digest of what was handed out so far.
    pub(super) async fn digest(&self) -> Result<[u8; 32], RemoteStorageError> {
        let all = self.places.acquire_many(HASHED_AHEAD).await;
        let _all = all.map_err(|_| stopped())?;
        let queue = self.queue.lock();
        let hasher = queue.idle.as_ref();
        let hasher = hasher.expect("it is given back before the last place is");
        Ok(hasher.clone().finalize().into())
    }

    /// Hashes a part in the background, when those before it are done.
    async fn update(&self, bytes: Bytes) -> Result<(), RemoteStorageError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let part = (bytes, place.map_err(|_| stopped())?);
        let mut waiting = self.queue.lock();
        let Some(hasher) = waiting.idle.take() else {
            waiting.parts.push_back(part);
            return Ok(());
        };
        drop(waiting);
        let hashing = Hashing {
            of: self.clone(),
            hasher: Some(hasher),
        };
        tokio::task::spawn_blocking(move || hashing.run(part));
        Ok(())
    }
}

/// The hasher while a thread has it.
struct Hashing {
    of: SharedHasher,
    /// `None` when it has been given back.
    hasher: Option<Sha256>,
}

impl Hashing {
    /// Hashes a part, and those that come meanwhile.
    fn run(mut self, first: (Bytes, OwnedSemaphorePermit)) {
        let mut part = Some(first);
        while let (Some((bytes, place)), Some(hasher)) = (part, &mut self.hasher) {
            hasher.update(&bytes);
            let mut waiting = self.of.queue.lock();
            part = waiting.parts.pop_front();
            if part.is_none() {
                waiting.idle = self.hasher.take();
            }
            drop(waiting);
            drop((bytes, place));
        }
    }
}

impl Drop for Hashing {
    /// A thread that was stopped with its runtime has taken the digest along: whoever waits for a
    /// place is told, instead of waiting for ever.
    fn drop(&mut self) {
        if self.hasher.is_some() {
            self.of.places.close();
            self.of.queue.lock().parts.clear();
        }
    }
}

/// How many parts are read before they are asked for.
const READ_AHEAD: usize = 2;

/// An artifact's parts in their order, read ahead.
#[derive(Debug)]
pub(super) struct Parts {
    reading: Arc<Mutex<Reading>>,
    received: mpsc::UnboundedReceiver<Result<Part, RemoteStorageError>>,
    /// Bytes of the parts that have not been handed out.
    left: u64,
    hasher: Option<SharedHasher>,
}

/// As with the digest, one thread reads on while there are places, and waits for none.
#[derive(Debug)]
struct Reading {
    /// How many parts may be read.
    places: usize,
    /// `None` while a thread has it, and at the end.
    idle: Option<Reader>,
}

#[derive(Debug)]
struct Reader {
    artifact: Arc<Artifact>,
    part_size: u64,
    offset: u64,
    number: u32,
    buffers: Buffers,
    sender: mpsc::UnboundedSender<Result<Part, RemoteStorageError>>,
}

impl Parts {
    /// The next part and what hands out the one after it; `None` at the end.
    pub(super) async fn next(mut self) -> Result<Option<(Part, Self)>, RemoteStorageError> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(part) = self.received.recv().await else {
            return Err(stopped());
        };
        let part = part?;
        self.left -= part.bytes.len() as u64;
        self.reading.lock().places += 1;
        self.read_on();
        if let Some(hasher) = &self.hasher {
            hasher.update(part.bytes.clone()).await?;
        }
        Ok(Some((part, self)))
    }

    /// Has a thread read, if none does.
    fn read_on(&self) {
        let idle = self.reading.lock().idle.take();
        if let Some(reader) = idle {
            let reading = Arc::clone(&self.reading);
            tokio::task::spawn_blocking(move || read_ahead(&reading, reader));
        }
    }
}

/// The error of work whose thread never ran, or did not come to its end.
fn stopped() -> RemoteStorageError {
    io::Error::other("a thread that reads or hashes was stopped with its runtime").into()
}

/// Reads while there are places.
fn read_ahead(reading: &Mutex<Reading>, mut reader: Reader) {
    loop {
        let mut now = reading.lock();
        let Some(left) = now.places.checked_sub(1) else {
            now.idle = Some(reader);
            return;
        };
        now.places = left;
        drop(now);
        let Some(part) = reader.read().transpose() else {
            return;
        };
        let is_last = part.is_err();
        // Nobody receives it when the upload has been given up.
        if reader.sender.send(part).is_err() || is_last {
            return;
        }
    }
}

impl Reader {
    /// The next part; `None` at the end.
    fn read(&mut self) -> Result<Option<Part>, RemoteStorageError> {
        let length = self.part_size.min(self.artifact.length - self.offset);
        if length == 0 {
            return Ok(None);
        }
        let bytes = match &self.artifact.content {
            // Both fit: the bytes are in memory.
            #[allow(clippy::cast_possible_truncation)]
            Content::Memory(bytes) => {
                bytes.slice(self.offset as usize..(self.offset + length) as usize)
            }
            Content::File { path, file } => {
                let mut buffer = self.buffers.take();
                read_exactly(file, path, self.offset, length, &mut buffer)?;
                self.buffers.lend(buffer)
            }
        };
        self.number += 1;
        let part = Part {
            number: self.number,
            offset: self.offset,
            bytes,
        };
        self.offset += length;
        Ok(Some(part))
    }
}

/// The buffers of the parts of one upload, used again when a part is sent, with what they hold: new
/// memory for each, or clearing it, would cost as much time as reading into it.
#[derive(Clone, Debug, Default)]
struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A buffer of any length and content.
    fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// A filled buffer as bytes, the last of which to go gives it back.
    fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent {
            buffer,
            home: self.clone(),
        })
    }
}

struct Lent {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.0.lock().push(buffer);
    }
}

/// Reads `length` bytes, which a file of the length checked before has, in place of what the buffer
/// holds. Not from where the file stands: a reader that was given up may still be at it.
fn read_exactly(
    file: &File,
    path: &Path,
    offset: u64,
    length: u64,
    buffer: &mut Vec<u8>,
) -> Result<(), RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("read", path, error);
    let length = usize::try_from(length)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    if buffer.len() < length {
        // New memory that is zero already, where growing would write to it.
        *buffer = vec![0; length];
    }
    buffer.truncate(length);
    let read = file.read_exact_at(buffer, offset);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => failed(io::Error::new(
            error.kind(),
            format!("the file has become shorter: the {length} bytes due here are not there"),
        )),
        _ => failed(error),
    })
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RemoteStorageError> + Send + 'static,
) -> Result<T, RemoteStorageError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_the_last_of_its_bytes_has_gone_and_not_before() {
        let buffers = Buffers::default();
        let sent = buffers.lend(vec![7; 64]);
        let place = sent.as_ptr();
        let hashed = sent.slice(32..);
        drop(sent);
        assert_eq!(buffers.take().capacity(), 0);
        assert_eq!(hashed, [7; 32][..]);
        drop(hashed);
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.capacity()), (place, 64));
    }

    fn artifact(content: &[u8]) -> (tempfile::NamedTempFile, Arc<Artifact>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let artifact = Artifact::open(LOG_FILE_SUFFIX, file.path()).unwrap();
        (file, Arc::new(artifact))
    }

    /// How many parts have been read once nothing more is read.
    async fn settled(reading: &Mutex<Reading>) -> u32 {
        loop {
            if let Some(reader) = &reading.lock().idle {
                return reader.number;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn two_parts_are_read_before_they_are_asked_for_and_one_more_for_each_that_was() {
        let (_file, artifact) = artifact(&[7; 10 * 1024]);
        let mut parts = artifact.parts(1024, None);
        let reading = Arc::clone(&parts.reading);
        for number in 1..=4 {
            assert_eq!(settled(&reading).await, number + 1);
            let (part, rest) = parts.next().await.unwrap().unwrap();
            assert_eq!(
                (part.number, part.offset),
                (number, u64::from(number - 1) * 1024)
            );
            parts = rest;
        }
        // Nobody wants the rest: a reader that has a part ends when it cannot hand it over.
        drop(parts);
    }

    #[tokio::test]
    async fn parts_are_those_of_the_file_and_the_digest_is_that_of_their_bytes() {
        let content: Vec<u8> = (0..100_003_u32).flat_map(u32::to_le_bytes).collect();
        let (_file, artifact) = artifact(&content);
        for part_size in [1000, 65_536, 400_012, 1 << 20] {
            let hasher = SharedHasher::new();
            let mut parts = artifact.parts(part_size, Some(hasher.clone()));
            let mut read = Vec::new();
            while let Some((part, rest)) = parts.next().await.unwrap() {
                assert_eq!(part.offset, read.len() as u64);
                read.extend_from_slice(&part.bytes);
                parts = rest;
            }
            assert!(read == content, "parts of {part_size}");
            let expected: [u8; 32] = Sha256::digest(&content).into();
            assert_eq!(
                hasher.digest().await.unwrap(),
                expected,
                "parts of {part_size}"
            );
        }
        assert_eq!(
            SharedHasher::new().digest().await.unwrap()[..],
            Sha256::digest([])[..]
        );
    }

    #[test]
    fn a_digest_whose_thread_was_stopped_is_an_error_and_no_wait() {
        let stopped_runtime = tokio::runtime::Runtime::new().unwrap();
        let handle = stopped_runtime.handle().clone();
        stopped_runtime.shutdown_background();
        let _entered = handle.enter();
        futures::executor::block_on(async {
            let hasher = SharedHasher::new();
            hasher.update(Bytes::from_static(b"lost")).await.unwrap();
            for _ in 0..HASHED_AHEAD {
                hasher.update(Bytes::new()).await.unwrap_err();
            }
            hasher.digest().await.unwrap_err();
        });
    }

    #[tokio::test]
    async fn readers_of_one_file_do_not_move_each_other() {
        let content: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let (_file, artifact) = artifact(&content);
        // As when an upload is started anew while the reader that was given up still reads.
        let mut readers = [1, 2].map(|_| Some((artifact.parts(1000, None), Vec::new())));
        for _ in 0..40 {
            for reader in &mut readers {
                let (parts, mut read) = reader.take().unwrap();
                let (part, parts) = parts.next().await.unwrap().unwrap();
                read.extend_from_slice(&part.bytes);
                *reader = Some((parts, read));
            }
        }
        for (_, read) in readers.into_iter().flatten() {
            assert!(read == content);
        }
    }

    #[tokio::test]
    async fn a_file_that_becomes_shorter_is_an_error_and_not_a_shorter_object() {
        let (file, artifact) = artifact(&[7; 10 * 1024]);
        file.as_file().set_len(2_500).unwrap();
        let mut parts = artifact.parts(1024, None);
        for _ in 0..2 {
            parts = parts.next().await.unwrap().unwrap().1;
        }
        let error = parts.next().await.unwrap_err();
        assert!(
            format!("{error:?}").contains("has become shorter"),
            "{error:?}"
        );
    }
}
