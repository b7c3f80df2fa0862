//! Configuration of the write-once archive.

use std::path::PathBuf;

use crate::error::{RemoteStorageError, WormError};

/// The least custom metadata, in bytes, that holds every receipt.
const MIN_CUSTOM_METADATA_LIMIT: usize = 320;

/// How an archive is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WormConfig {
    /// The file with the signing key, see [`FileSigner::load`](super::FileSigner::load). Path and
    /// id are given together or not at all; without them the archive is not signed, and a verifier
    /// grades it as incompletely attested.
    pub signing_key_path: Option<PathBuf>,
    /// The key's name, which stands in each manifest.
    pub signing_key_id: Option<String>,
    /// Whether every read of a segment or index is refused.
    pub write_only: bool,
    /// Whether to accept a store that cannot refuse deletion: a local directory, memory, a client
    /// of unknown make. All but the protection is as usual.
    pub allow_unprotected: bool,
    /// How many bytes of custom metadata the metadata store takes. Apache Kafka takes 128 unless
    /// `remote.log.metadata.custom.metadata.max.bytes` says more.
    pub custom_metadata_limit: usize,
}

impl Default for WormConfig {
    fn default() -> Self {
        Self {
            signing_key_path: None,
            signing_key_id: None,
            write_only: false,
            allow_unprotected: false,
            custom_metadata_limit: 1024,
        }
    }
}

impl WormConfig {
    /// Checks what can be checked without touching a file or a store.
    ///
    /// # Errors
    ///
    /// [`SigningKey`](WormError::SigningKey) for a key's path without an id or the other way
    /// round, [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a
    /// `custom_metadata_limit` below 320 bytes, which some receipts exceed.
    pub fn check(&self) -> Result<(), RemoteStorageError> {
        self.signing_key()?;
        if self.custom_metadata_limit < MIN_CUSTOM_METADATA_LIMIT {
            return Err(RemoteStorageError::InvalidArgument(format!(
                "custom_metadata_limit of {} bytes is too small: a receipt needs up to \
                 {MIN_CUSTOM_METADATA_LIMIT}, so raise it, and in Apache Kafka \
                 remote.log.metadata.custom.metadata.max.bytes",
                self.custom_metadata_limit
            )));
        }
        Ok(())
    }

    /// The signing key's path and name, where the archive is signed.
    pub(super) fn signing_key(&self) -> Result<Option<(&PathBuf, &String)>, WormError> {
        match (&self.signing_key_path, &self.signing_key_id) {
            (Some(path), Some(key_id)) => Ok(Some((path, key_id))),
            (None, None) => Ok(None),
            (Some(path), None) => Err(WormError::SigningKey(format!(
                "{}: signing_key_path needs signing_key_id beside it",
                path.display()
            ))),
            (None, Some(_)) => Err(WormError::SigningKey(
                "signing_key_id needs signing_key_path beside it".to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_id_of_the_key_come_together_or_not_at_all() {
        let path = Some(PathBuf::from("/k.pem"));
        let id = Some("worm-key-1".to_owned());
        for (signing_key_path, signing_key_id, valid) in [
            (None, None, true),
            (path.clone(), id.clone(), true),
            (path, None, false),
            (None, id, false),
        ] {
            let config = WormConfig {
                signing_key_path,
                signing_key_id,
                ..WormConfig::default()
            };
            match config.check() {
                Ok(()) => assert!(valid, "{config:?}"),
                Err(RemoteStorageError::Worm(WormError::SigningKey(_))) => {
                    assert!(!valid, "{config:?}");
                }
                Err(e) => panic!("{config:?}: {e:?}"),
            }
        }
    }

    #[test]
    fn a_limit_that_a_receipt_could_exceed_is_refused() {
        let limited = |custom_metadata_limit| WormConfig {
            custom_metadata_limit,
            ..WormConfig::default()
        };
        limited(320).check().unwrap();
        let error = limited(319).check().unwrap_err();
        assert!(
            matches!(&error, RemoteStorageError::InvalidArgument(text) if text.contains("319")),
            "{error:?}"
        );
    }
}
