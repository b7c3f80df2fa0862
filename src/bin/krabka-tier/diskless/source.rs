//! One file, or one object of a store.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path as FilePath, PathBuf};

use krabka_remote_storage::model::OpKind;
use krabka_remote_storage::ops::{ByteRange, Get, Head, StoreTarget};
use krabka_remote_storage::{ObjectStoreConfig, RemoteStorageError};
use object_store::path::Path;
use tokio::task::spawn_blocking;

use crate::console::interrupted;
use crate::copy::bytes_bar;
use crate::failure::Failure;
use crate::tier::{Missing, Patience, Tier};
use crate::until_interrupted;

/// The most bytes that are taken for an object or a capture.
const MAX_BYTES: u64 = 1 << 30;

/// How much of an object is fetched at once.
const STEP_BYTES: u64 = 8 << 20;

/// Where the bytes are.
pub(super) enum Source {
    File(PathBuf),
    Object { tier: Tier, key: Path },
}

impl Source {
    /// Takes a file's name, or the URL of an object. Sends no request.
    pub(super) fn new(what: &str, patience: Patience) -> Result<Self, Failure> {
        if !what.contains("://") {
            return Ok(Self::File(what.into()));
        }
        if let ObjectStoreConfig::Local { root } = ObjectStoreConfig::from_url(what)? {
            return Ok(Self::File(root));
        }
        // As if it were a tier: the prefix of its keys is the object's key.
        let tier = Tier::open(what, patience, Missing::Refuse)?;
        let key = tier.storage.prefix().as_path().clone();
        if key.is_root() {
            return Err(Failure::Usage(format!(
                "{} is no object: put the object's key behind it",
                tier.location()
            )));
        }
        Ok(Self::Object { tier, key })
    }

    /// All of the bytes.
    pub(super) async fn read(&self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = spawn_blocking(move || {
                    read_file(&path).map_err(|error| RemoteStorageError::io("read", &path, error))
                });
                let read = read.await.map_err(|_| Failure::Interrupted)?;
                Ok(read?)
            }
            Self::Object { tier, key } => {
                let read = read_object(tier, key).await;
                read.map_err(|error| Failure::during(format!("cannot read {self}"), error))
            }
        }
    }

    /// Runs a command on it, and ends it at a signal.
    pub(super) async fn until_interrupted(
        &self,
        command: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        match self {
            Self::File(_) => tokio::select! {
                result = command => result,
                () = interrupted() => Err(Failure::Interrupted),
            },
            Self::Object { tier, .. } => until_interrupted(tier, command).await,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Object { tier, .. } => f.write_str(tier.location()),
        }
    }
}

fn read_file(path: &FilePath) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has more than {MAX_BYTES} bytes"),
        ));
    }
    Ok(bytes)
}

async fn read_object(tier: &Tier, key: &Path) -> Result<Vec<u8>, RemoteStorageError> {
    let target = StoreTarget::object(key.clone());
    let store = &tier.storage;
    let head = Head::new(target.clone());
    let Some(meta) = store.send(head).await? else {
        return Err(RemoteStorageError::InvalidArgument(
            "there is no such object".to_owned(),
        ));
    };
    if meta.size > MAX_BYTES {
        return Err(RemoteStorageError::exceeds_cap(
            OpKind::Get,
            key.as_ref(),
            meta.size,
            MAX_BYTES,
        ));
    }
    let bar = bytes_bar(meta.size);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < meta.size {
        let start = bytes.len() as u64;
        let end = meta.size.min(start + STEP_BYTES);
        let get = Get::new(target.clone(), ByteRange::Bounded(start..end));
        bytes.extend_from_slice(&store.send(get).await?.bytes);
        bar.set_position(bytes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(bytes)
}
