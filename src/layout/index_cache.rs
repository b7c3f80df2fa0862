//! Names of the index cache's files.

use uuid::Uuid;

use super::parse_digits;
use crate::model::{KAFKA_UUID_LEN, decode_kafka_uuid, kafka_text};

/// The directory of the index cache in a broker's log directory, as Kafka names it.
pub const REMOTE_INDEX_CACHE_DIR: &str = "remote-log-index-cache";

/// The name of a cached index (Kafka's `RemoteIndexCache`): `OFFSET_SEGMENTID` and the suffix.
///
/// The offset is the segment's first, not padded. `suffix` begins with its dot. A broker finds the
/// id between the first `_` and the first `.`, and does not start when that is no id, so nothing
/// else may stand in the directory.
pub fn index_cache_file_name(start_offset: i64, segment_id: Uuid, suffix: &str) -> String {
    format!("{start_offset}_{}{suffix}", kafka_text(&segment_id))
}

/// A parsed [`index_cache_file_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCacheFileName<'a> {
    /// The segment's first offset.
    pub start_offset: i64,
    /// The segment's id.
    pub segment_id: Uuid,
    /// All that follows the id, from its dot on: the caller decides what it knows.
    pub suffix: &'a str,
}

/// Parses the name of a file of an index cache.
///
/// `None` unless it begins with an offset without leading zeros, a `_`, a 22-character id and a
/// dot. The id may hold `_` and `-` itself.
pub fn parse_index_cache_file_name(name: &str) -> Option<IndexCacheFileName<'_>> {
    let (offset, rest) = name.split_once('_')?;
    let (id, suffix) = rest.split_at_checked(KAFKA_UUID_LEN)?;
    let is_padded = offset.len() > 1 && offset.starts_with('0');
    (!is_padded && suffix.starts_with('.')).then_some(())?;
    Some(IndexCacheFileName {
        start_offset: parse_digits(offset)?,
        segment_id: decode_kafka_uuid(id)?,
        suffix,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

    #[test]
    fn a_cached_index_has_kafkas_name() {
        assert_eq!(
            index_cache_file_name(45, ID, ".index"),
            "45_ABEiM0RVZneImaq7zN3u_w.index"
        );
    }

    #[test]
    fn a_name_is_split_at_its_first_underscore_and_dot() {
        let all_underscores = Uuid::from_bytes([0xff; 16]);
        for id in [ID, Uuid::nil(), all_underscores] {
            for suffix in [".index", ".0a.txnindex", ".x_y.timeindex.tmp", "."] {
                let name = index_cache_file_name(9_000_000_000, id, suffix);
                let expected = IndexCacheFileName {
                    start_offset: 9_000_000_000,
                    segment_id: id,
                    suffix,
                };
                assert_eq!(parse_index_cache_file_name(&name), Some(expected), "{name}");
                // What a broker does.
                let found = &name[name.find('_').unwrap() + 1..name.find('.').unwrap()];
                assert_eq!(decode_kafka_uuid(found), Some(id), "{name}");
            }
        }
    }

    #[test]
    fn other_names_are_not_a_cached_indexs() {
        for name in [
            "",
            "_",
            ".lock",
            "00112233-4455-6677-8899-aabbccddeeff.index",
            "45_ABEiM0RVZneImaq7zN3u_w",
            "45_ABEiM0RVZneImaq7zN3u_wA.index",
            "45_ABEiM0RVZneImaq7zN3u_.index",
            "-45_ABEiM0RVZneImaq7zN3u_w.index",
            "+45_ABEiM0RVZneImaq7zN3u_w.index",
            "045_ABEiM0RVZneImaq7zN3u_w.index",
            "_ABEiM0RVZneImaq7zN3u_w.index",
            "99999999999999999999_ABEiM0RVZneImaq7zN3u_w.index",
            "45_€€€€€€€€.index",
        ] {
            assert_eq!(parse_index_cache_file_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_rendered_name_is_parsed_back(offset in 0..i64::MAX, id in any::<u128>()) {
            let id = Uuid::from_u128(id);
            let name = index_cache_file_name(offset, id, ".index");
            let parsed = parse_index_cache_file_name(&name).unwrap();
            prop_assert_eq!((parsed.start_offset, parsed.segment_id), (offset, id));
        }

        #[test]
        fn no_name_makes_the_parser_panic(name in any::<String>()) {
            let _ = parse_index_cache_file_name(&name);
        }
    }
}
