//! Reading manifests and bodies, in bounded memory, whatever a store claims or sends.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions, GetResultPayload, ObjectStore};
use sha2::{Digest as _, Sha256};
use tokio::task::coop;

use crate::archive::format::{Sha256Digest, excerpt};
use crate::error::{WormError, named};

/// How much of a body is hashed at a time before other tasks get their turn.
const SLICE: usize = 1024 * 1024;

/// How much of a local file is read and hashed in one go on a blocking thread: a dropped
/// verification ends after it.
const FILE_RUN: u64 = 64 * 1024 * 1024;

/// How much of a local file is read at a time.
const FILE_BUFFER: usize = 256 * 1024;

/// Why an object could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The store says that there is no such object.
    Missing,
    /// The store failed or refused: it says nothing about the object.
    Unreadable(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(excerpt(&error.to_string()))
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound { .. } => Self::Missing,
            other => Self::Unreadable(excerpt(&other.to_string())),
        }
    }
}

/// That a prefix, or a directory, could not be listed.
pub(super) fn unlisted(prefix: &str, reason: impl fmt::Display) -> WormError {
    let prefix = excerpt(prefix);
    WormError::Archive(format!("listing {} failed: {reason}", named(&prefix)))
}

/// An object's length and digest, as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) size: u64,
    pub(super) sha256: Sha256Digest,
}

/// Reads an object of at most `limit` bytes; `None` for a larger one, of which no more than the
/// store's own pieces are held.
pub(super) async fn read_capped(
    store: &dyn ObjectStore,
    key: &str,
    limit: u64,
) -> Result<Option<Bytes>, ReadError> {
    let read = read_versioned(store, key, limit).await?;
    Ok(read.map(|(bytes, _)| bytes))
}

/// [`read_capped`], with the version that was read where the store has versions.
pub(super) async fn read_versioned(
    store: &dyn ObjectStore,
    key: &str,
    limit: u64,
) -> Result<Option<(Bytes, Option<String>)>, ReadError> {
    let result = store.get_opts(&path(key)?, GetOptions::default()).await?;
    if result.meta.size > limit {
        return Ok(None);
    }
    let version = result.meta.version;
    let bytes = match result.payload {
        GetResultPayload::File(file, _) => {
            let read = blocking(move || {
                let mut bytes = Vec::new();
                file.take(limit + 1).read_to_end(&mut bytes).map(|_| bytes)
            });
            let bytes = Bytes::from(read.await?);
            (bytes.len() as u64 <= limit).then_some(bytes)
        }
        GetResultPayload::Stream(chunks) => collect_capped(chunks, limit).await?,
    };
    Ok(bytes.map(|bytes| (bytes, version)))
}

async fn collect_capped(
    mut chunks: BoxStream<'static, object_store::Result<Bytes>>,
    limit: u64,
) -> object_store::Result<Option<Bytes>> {
    // Most stores send a small object in one piece: it is taken as it is.
    let first = chunks.try_next().await?.unwrap_or_default();
    let mut len = first.len() as u64;
    let mut collected: Option<BytesMut> = None;
    while len <= limit {
        let Some(chunk) = chunks.try_next().await? else {
            return Ok(Some(collected.map_or(first, BytesMut::freeze)));
        };
        len += chunk.len() as u64;
        if len <= limit {
            collected
                .get_or_insert_with(|| BytesMut::from(&first[..]))
                .extend_from_slice(&chunk);
        }
    }
    Ok(None)
}

/// Reads an object to its end and hashes it; with a version id that version, wherever the store
/// has versions.
pub(super) async fn hash(
    store: &dyn ObjectStore,
    key: &str,
    version: Option<&str>,
) -> Result<Body, ReadError> {
    let options = GetOptions {
        version: version.map(str::to_owned),
        ..GetOptions::default()
    };
    let result = store.get_opts(&path(key)?, options).await?;
    let (size, digest) = match result.payload {
        GetResultPayload::File(file, _) => hash_file(file).await?,
        GetResultPayload::Stream(chunks) => hash_stream(chunks).await?,
    };
    Ok(Body {
        size,
        sha256: Sha256Digest(digest.finalize().into()),
    })
}

async fn hash_stream(
    mut chunks: BoxStream<'static, object_store::Result<Bytes>>,
) -> object_store::Result<(u64, Sha256)> {
    let (mut size, mut digest) = (0, Sha256::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        size += chunk.len() as u64;
        for slice in chunk.chunks(SLICE) {
            digest.update(slice);
            coop::consume_budget().await;
        }
    }
    Ok((size, digest))
}

/// The stream that a local file can be turned into would cross to another thread every few
/// kilobytes, which costs more than the hashing.
async fn hash_file(mut file: File) -> io::Result<(u64, Sha256)> {
    let (mut size, mut digest) = (0, Sha256::new());
    loop {
        let run = blocking(move || {
            let mut buffer = vec![0; FILE_BUFFER];
            let mut read = 0;
            while read < FILE_RUN {
                match file.read(&mut buffer)? {
                    0 => break,
                    n => {
                        digest.update(&buffer[..n]);
                        read += n as u64;
                    }
                }
            }
            Ok((file, digest, read))
        });
        let read;
        (file, digest, read) = run.await?;
        size += read;
        if read < FILE_RUN {
            return Ok((size, digest));
        }
    }
}

/// Runs file access where it may block, also outside of a runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|e| Err(io::Error::other(e))),
        Err(_) => work(),
    }
}

fn path(key: &str) -> Result<Path, ReadError> {
    Path::parse(key).map_err(|e| ReadError::Unreadable(excerpt(&e.to_string())))
}
