//! What a copy reads: local files, whole or part by part, and bytes in memory.
//!
//! A file's length is taken once, when it is opened, and exactly that many bytes are uploaded: a
//! file that grows meanwhile is cut there, one that shrinks is an error.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

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
                    read_exactly(&file, &path, self.length, Vec::new())?.into()
                }
            };
            let sha256 = digest.then(|| Sha256::digest(&bytes).into());
            Ok((bytes, sha256))
        })
        .await
    }

    /// Reads the artifact part by part, from its beginning. Only one reader may be in use.
    pub(super) fn parts(self: &Arc<Self>, part_size: u64, hasher: Option<SharedHasher>) -> Parts {
        Parts {
            artifact: Arc::clone(self),
            part_size,
            offset: 0,
            number: 0,
            buffers: Buffers::default(),
            hasher,
        }
    }
}

/// Takes the digest of the parts that a reader hands out, in their order.
///
/// A part is hashed while it is sent and the next one is read, and no reader is more than one part
/// ahead: the digest costs one part of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedHasher(Arc<tokio::sync::Mutex<Sha256>>);

impl SharedHasher {
    /// The digest of what was handed out so far.
    pub(super) async fn digest(&self) -> [u8; 32] {
        self.0.lock().await.clone().finalize().into()
    }

    /// Hashes a part in the background, when those before it are done.
    async fn update(&self, bytes: Bytes) {
        let mut hasher = Arc::clone(&self.0).lock_owned().await;
        tokio::task::spawn_blocking(move || hasher.update(&bytes));
    }
}

/// A reader that hands out an artifact's parts in their order.
#[derive(Debug)]
pub(super) struct Parts {
    artifact: Arc<Artifact>,
    part_size: u64,
    offset: u64,
    number: u32,
    buffers: Buffers,
    hasher: Option<SharedHasher>,
}

impl Parts {
    /// The next part and the reader of the one after it; `None` at the end.
    pub(super) async fn next(mut self) -> Result<Option<(Part, Self)>, RemoteStorageError> {
        let length = self.part_size.min(self.artifact.length - self.offset);
        if length == 0 {
            return Ok(None);
        }
        let (part, parts) = blocking(move || {
            let bytes = match &self.artifact.content {
                // Both fit: the bytes are in memory.
                #[allow(clippy::cast_possible_truncation)]
                Content::Memory(bytes) => {
                    bytes.slice(self.offset as usize..(self.offset + length) as usize)
                }
                Content::File { path, file } => {
                    if self.offset == 0 {
                        // An upload that is started anew reads from the beginning again.
                        let mut file = file;
                        file.rewind()
                            .map_err(|error| RemoteStorageError::io("rewind", path, error))?;
                    }
                    let read = read_exactly(file, path, length, self.buffers.take())?;
                    self.buffers.lend(read)
                }
            };
            self.number += 1;
            let part = Part {
                number: self.number,
                offset: self.offset,
                bytes,
            };
            self.offset += length;
            Ok((part, self))
        })
        .await?;
        if let Some(hasher) = &parts.hasher {
            hasher.update(part.bytes.clone()).await;
        }
        Ok(Some((part, parts)))
    }
}

/// The buffers of the parts of one upload, used again when a part is hashed and sent: new memory
/// for each would cost as much time as reading into it.
#[derive(Clone, Debug, Default)]
struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// An empty buffer.
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
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        self.home.0.lock().push(buffer);
    }
}

/// Reads the next `length` bytes, which a file of the length checked before has, into an empty
/// buffer.
fn read_exactly(
    mut file: &File,
    path: &Path,
    length: u64,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, RemoteStorageError> {
    let failed = |error| RemoteStorageError::io("read", path, error);
    let capacity = usize::try_from(length)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    buffer.reserve_exact(capacity);
    let read = Read::take(&mut file, length)
        .read_to_end(&mut buffer)
        .map_err(failed)?;
    if (read as u64) < length {
        return Err(failed(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file has become shorter: {length} bytes were due here, {read} came"),
        )));
    }
    Ok(buffer)
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
        assert!(again.is_empty());
        assert_eq!((again.as_ptr(), again.capacity()), (place, 64));
    }
}
