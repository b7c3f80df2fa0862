//! Keys of diskless WAL objects.

use object_store::path::Path;
use uuid::Uuid;

use super::keys::{KeyPrefix, parse_key};
use super::parse_digits;
use crate::error::RemoteStorageError;

/// The directory that WAL objects lie in.
pub const WAL_OBJECT_DIR: &str = "diskless-wal";

/// The suffix of a WAL object's key.
pub const WAL_OBJECT_SUFFIX: &str = ".ckwl";

/// What a WAL object's key tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WalObjectKey {
    /// The broker that wrote it; `None` in keys of older builds.
    pub broker_id: Option<i32>,
    /// The object's id.
    pub id: Uuid,
}

/// The key of a WAL object: `[prefix/]diskless-wal/BROKER/ID.ckwl`, the id with hyphens. Each object
/// has a random (version 4) id of its own, so no key is written twice.
///
/// # Errors
///
/// [`InvalidArgument`](RemoteStorageError::InvalidArgument) for a negative broker id.
pub fn wal_object_key(
    prefix: &KeyPrefix,
    broker_id: i32,
    id: Uuid,
) -> Result<Path, RemoteStorageError> {
    if broker_id < 0 {
        return Err(RemoteStorageError::InvalidArgument(format!(
            "broker id {broker_id} is negative"
        )));
    }
    let start = prefix.start_key();
    let id = id.hyphenated();
    parse_key(&format!(
        "{start}{WAL_OBJECT_DIR}/{broker_id}/{id}{WAL_OBJECT_SUFFIX}"
    ))
}

/// Parses the key of a WAL object, with any prefix or none, and also without a broker id, as older
/// builds wrote it.
///
/// `None` for any other key, and for another spelling of the id or the broker id.
pub fn parse_wal_object_key(key: &str) -> Option<WalObjectKey> {
    let (dir, name) = key.rsplit_once('/')?;
    let id_text = name.strip_suffix(WAL_OBJECT_SUFFIX)?;
    let id = Uuid::try_parse(id_text).ok()?;
    if id.hyphenated().to_string() != id_text {
        return None;
    }
    let is_wal = |dir: &str| dir.rsplit('/').next() == Some(WAL_OBJECT_DIR);
    if is_wal(dir) {
        return Some(WalObjectKey {
            broker_id: None,
            id,
        });
    }
    let (dir, broker_text) = dir.rsplit_once('/')?;
    let broker_id = i32::try_from(parse_digits(broker_text)?).ok()?;
    (is_wal(dir) && broker_id.to_string() == broker_text).then_some(WalObjectKey {
        broker_id: Some(broker_id),
        id,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "00112233-4455-4677-8899-aabbccddeeff";

    #[test]
    fn a_key_has_prefix_directory_broker_and_id() {
        let id = ID.parse().unwrap();
        let key = |prefix: &str| wal_object_key(&KeyPrefix::new(prefix).unwrap(), 7, id).unwrap();
        assert_eq!(key("").as_ref(), format!("diskless-wal/7/{ID}.ckwl"));
        assert_eq!(key("a/b").as_ref(), format!("a/b/diskless-wal/7/{ID}.ckwl"));
        assert!(wal_object_key(&KeyPrefix::default(), -1, id).is_err());
    }

    #[test]
    fn keys_are_parsed_in_their_one_spelling() {
        let parsed = |key: &str| parse_wal_object_key(&key.replace("ID", ID));
        let key = |broker_id| {
            let id = ID.parse().unwrap();
            Some(WalObjectKey { broker_id, id })
        };
        assert_eq!(parsed("diskless-wal/0/ID.ckwl"), key(Some(0)));
        assert_eq!(parsed("p/diskless-wal/12/ID.ckwl"), key(Some(12)));
        assert_eq!(parsed("diskless-wal/ID.ckwl"), key(None));
        assert_eq!(parsed("p/diskless-wal/ID.ckwl"), key(None));
        for other in [
            "ID.ckwl",
            "diskless-wal/",
            "diskless-wal/7/ID",
            "diskless-wal/7/ID.log",
            "diskless-wal/07/ID.ckwl",
            "diskless-wal/-7/ID.ckwl",
            "diskless-wal/2147483648/ID.ckwl",
            "diskless-wal/7/8/ID.ckwl",
            "my-diskless-wal/7/ID.ckwl",
            "diskless-wal/7/00112233445546778899aabbccddeeff.ckwl",
            "diskless-wal/7/00112233-4455-4677-8899-AABBCCDDEEFF.ckwl",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_parsed_and_no_text_makes_the_parser_panic(
            broker_id in 0..=i32::MAX, id: [u8; 16], text in any::<String>(),
        ) {
            let id = Uuid::from_bytes(id);
            let key = wal_object_key(&KeyPrefix::new("x").unwrap(), broker_id, id).unwrap();
            let broker_id = Some(broker_id);
            prop_assert_eq!(parse_wal_object_key(key.as_ref()), Some(WalObjectKey { broker_id, id }));
            let _ = parse_wal_object_key(&text);
        }
    }
}
