//! Whose signatures are trusted. It comes from outside of the archive, always.

use std::collections::BTreeMap;

use super::signer::ManifestPublicKey;
use crate::archive::format::{EpochId, ManifestSeq};

/// How far a key is trusted: in one run of one directory, up to a position.
///
/// A retired key without limits can sign a whole archive anew, and nothing but pinned positions
/// would show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyLimit {
    /// The directory's key, as reports name it.
    pub directory: String,
    /// The run.
    pub epoch_id: EpochId,
    /// The last position that the key may have signed.
    pub greatest_seq: ManifestSeq,
}

/// The keys that a verifier trusts, by name. An archive outlives its keys, so there may be many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedManifestKeys(BTreeMap<String, TrustedKey>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct TrustedKey {
    key: ManifestPublicKey,
    /// `None` where the key is trusted everywhere.
    limits: Option<Vec<KeyLimit>>,
}

impl TrustedManifestKeys {
    /// Trusts one key, everywhere.
    pub fn single(key_id: impl Into<String>, key: ManifestPublicKey) -> Self {
        Self::from_pairs([(key_id, key)])
    }

    /// Trusts these keys, everywhere. Of two keys with one name the later is taken.
    pub fn from_pairs<S: Into<String>>(
        pairs: impl IntoIterator<Item = (S, ManifestPublicKey)>,
    ) -> Self {
        let trusted = |(key_id, key): (S, _)| (key_id.into(), TrustedKey { key, limits: None });
        Self(pairs.into_iter().map(trusted).collect())
    }

    /// The same keys, with this one trusted only where one of its limits says so. A key that is
    /// not among them stays untrusted.
    #[must_use]
    pub fn with_limit(mut self, key_id: &str, limit: KeyLimit) -> Self {
        if let Some(trusted) = self.0.get_mut(key_id) {
            trusted.limits.get_or_insert_default().push(limit);
        }
        self
    }

    /// The key with this name.
    pub fn get(&self, key_id: &str) -> Option<&ManifestPublicKey> {
        self.0.get(key_id).map(|trusted| &trusted.key)
    }

    /// Whether no key is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with this name, where it is trusted at this place.
    pub fn get_at(
        &self,
        key_id: &str,
        directory: &str,
        epoch_id: EpochId,
        seq: ManifestSeq,
    ) -> Option<&ManifestPublicKey> {
        let trusted = self.0.get(key_id)?;
        let allowed = trusted.limits.as_ref().is_none_or(|limits| {
            limits.iter().any(|limit| {
                limit.directory == directory
                    && limit.epoch_id == epoch_id
                    && seq <= limit.greatest_seq
            })
        });
        allowed.then_some(&trusted.key)
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use uuid::Uuid;

    use super::*;
    use crate::archive::vectors::public_key;

    #[test]
    fn keys_are_found_by_name_and_the_later_of_two_counts() {
        let other = ManifestPublicKey::from_bytes(
            SigningKey::from_bytes(&[9; 32]).verifying_key().as_bytes(),
        )
        .unwrap();
        assert!(TrustedManifestKeys::default().is_empty());
        let keys =
            TrustedManifestKeys::from_pairs([("a", public_key()), ("b", other), ("a", other)]);
        assert!(!keys.is_empty());
        assert_eq!(keys.get("a"), Some(&other));
        assert_eq!(keys.get("c"), None);
        let single = TrustedManifestKeys::single("a", public_key());
        assert_eq!(single.get("a"), Some(&public_key()));
    }

    #[test]
    fn a_limited_key_is_trusted_where_one_of_its_limits_says_so() {
        let epoch = |n| EpochId(Uuid::from_u128(n));
        let limit = |directory: &str, n, seq| KeyLimit {
            directory: directory.to_owned(),
            epoch_id: epoch(n),
            greatest_seq: ManifestSeq(seq),
        };
        let keys = TrustedManifestKeys::single("old", public_key())
            .with_limit("old", limit("d", 1, 7))
            .with_limit("old", limit("e", 2, 0))
            .with_limit("unknown", limit("d", 1, 7));
        let trusted = |directory, n, seq| {
            keys.get_at("old", directory, epoch(n), ManifestSeq(seq))
                .is_some()
        };
        assert!(trusted("d", 1, 0) && trusted("d", 1, 7) && trusted("e", 2, 0));
        assert!(!trusted("d", 1, 8) && !trusted("d", 2, 0) && !trusted("e", 1, 0));
        assert_eq!(keys.get("unknown"), None);
        assert_eq!(keys.get("old"), Some(&public_key()));
    }
}
