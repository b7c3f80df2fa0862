//! Reads manifests in the one spelling that they are written in, and nothing else.
//!
//! A general decoder reads many spellings, so its result has to be written again and compared. Of a
//! large archive that takes as long as the digests. Here each byte is compared as it is read:
//! whatever this reader takes is spelled right. What it does not take (also a text with rare
//! escapes) is left to the general decoder, which says what is wrong.

use std::collections::BTreeMap;
use std::str::FromStr;

use uuid::Uuid;

use super::chain::{ChainHead, ChainStamp, EpochId, ManifestSeq};
use super::digest::{HexBytes, Sha256Digest};
use super::manifest::{
    ManifestBody, ManifestSignature, ObjectEntry, SegmentIdentity, SegmentManifest,
};

/// The manifest that is spelled like this, as far as this reader can tell.
pub(super) fn read(bytes: &[u8]) -> Option<SegmentManifest> {
    let mut rest = Rest(bytes);
    let manifest = rest.manifest()?;
    rest.0.is_empty().then_some(manifest)
}

/// What has not been read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn manifest(&mut self) -> Option<SegmentManifest> {
        self.text(r#"{"body":{"format_version":"#)?;
        let format_version = self.number()?;
        self.text(r#","segment":"#)?;
        let segment = self.segment()?;
        self.text(r#","objects":"#)?;
        let objects = self.objects()?;
        self.text(r#","chain":"#)?;
        let chain = self.chain()?;
        self.text(r#"},"signature":"#)?;
        let signature = self.nullable(Self::signature)?;
        self.text("}")?;
        Some(SegmentManifest {
            body: ManifestBody {
                format_version,
                segment,
                objects,
                chain,
            },
            signature,
        })
    }

    fn segment(&mut self) -> Option<SegmentIdentity> {
        // Members are read in the order in which they are written here.
        let segment = SegmentIdentity {
            topic: self.member(r#"{"topic":"#, Self::string)?,
            topic_id: self.member(r#","topic_id":"#, Self::uuid)?,
            partition: self.member(r#","partition":"#, Self::number)?,
            segment_id: self.member(r#","segment_id":"#, Self::uuid)?,
            start_offset: self.member(r#","start_offset":"#, Self::number)?,
            end_offset: self.member(r#","end_offset":"#, Self::number)?,
            max_timestamp_ms: self.member(r#","max_timestamp_ms":"#, Self::number)?,
            broker_id: self.member(r#","broker_id":"#, Self::number)?,
            event_timestamp_ms: self.member(r#","event_timestamp_ms":"#, Self::number)?,
            segment_size_bytes: self.member(r#","segment_size_bytes":"#, Self::number)?,
            leader_epochs: self.member(r#","leader_epochs":"#, Self::leader_epochs)?,
            txn_index_empty: self.member(r#","txn_index_empty":"#, Self::boolean)?,
        };
        self.text("}")?;
        Some(segment)
    }

    fn leader_epochs(&mut self) -> Option<BTreeMap<i32, i64>> {
        let mut epochs = BTreeMap::new();
        self.text("{")?;
        while self.text("}").is_none() {
            if !epochs.is_empty() {
                self.text(",")?;
            }
            self.text("\"")?;
            let epoch = self.number()?;
            self.text("\":")?;
            let offset = self.number()?;
            // They are written in ascending order, each once.
            if epochs
                .last_key_value()
                .is_some_and(|(last, _)| *last >= epoch)
            {
                return None;
            }
            epochs.insert(epoch, offset);
        }
        Some(epochs)
    }

    fn objects(&mut self) -> Option<Vec<ObjectEntry>> {
        let mut objects = Vec::new();
        self.text("[")?;
        while self.text("]").is_none() {
            if !objects.is_empty() {
                self.text(",")?;
            }
            objects.push(ObjectEntry {
                suffix: self.member(r#"{"suffix":"#, Self::string)?,
                key: self.member(r#","key":"#, Self::string)?,
                size_bytes: self.member(r#","size_bytes":"#, Self::number)?,
                sha256: Sha256Digest(self.member(r#","sha256":"#, Self::hex_32)?),
                e_tag: self.member(r#","e_tag":"#, |rest| rest.nullable(Self::string))?,
                version_id: self.member(r#","version_id":"#, |rest| rest.nullable(Self::string))?,
                create_precondition: self.member(r#","create_precondition":"#, Self::boolean)?,
            });
            self.text("}")?;
        }
        Some(objects)
    }

    fn chain(&mut self) -> Option<ChainStamp> {
        let stamp = ChainStamp {
            epoch_id: EpochId(self.member(r#"{"epoch_id":"#, Self::uuid)?),
            seq: ManifestSeq(self.member(r#","seq":"#, Self::number)?),
            prev_head: ChainHead(self.member(r#","prev_head":"#, Self::hex_32)?),
        };
        self.text("}")?;
        Some(stamp)
    }

    fn signature(&mut self) -> Option<ManifestSignature> {
        let signature = ManifestSignature {
            key_id: self.member(r#"{"key_id":"#, Self::string)?,
            public_key: HexBytes(self.member(r#","public_key":"#, Self::hex)?),
            signature: HexBytes(self.member(r#","signature":"#, Self::hex)?),
        };
        self.text("}")?;
        Some(signature)
    }

    fn member<T>(&mut self, before: &str, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.text(before)?;
        value(self)
    }

    /// Exactly this; on anything else nothing is taken.
    fn text(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected.as_bytes())?;
        Some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    #[expect(
        clippy::option_option,
        reason = "the outer one is whether there is anything of the kind"
    )]
    fn nullable<T>(&mut self, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.text("null") {
            Some(()) => Some(None),
            None => value(self).map(Some),
        }
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.text("true") {
            Some(()) => Some(true),
            None => self.text("false").map(|()| false),
        }
    }

    /// `0|-?[1-9][0-9]*`, within the type's range.
    fn number<T: FromStr>(&mut self) -> Option<T> {
        let is_number = |byte: &&u8| matches!(byte, b'-' | b'0'..=b'9');
        let count = self.0.iter().take_while(is_number).count();
        let text = self.take(count)?;
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if text != b"0" && !matches!(digits.first(), Some(b'1'..=b'9')) {
            return None;
        }
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    fn string(&mut self) -> Option<String> {
        self.text("\"")?;
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | ..=0x1f);
        let mut text = Vec::new();
        loop {
            let count = self.0.iter().position(ends)?;
            text.extend_from_slice(self.take(count)?);
            match self.take(1)? {
                b"\"" => return String::from_utf8(text).ok(),
                // Entity tags have quotes. Other escapes are rare.
                b"\\" => match self.take(1)? {
                    escaped @ (b"\"" | b"\\") => text.extend_from_slice(escaped),
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// With hyphens, in lower case.
    fn uuid(&mut self) -> Option<Uuid> {
        self.text("\"")?;
        let text = self.take(36)?;
        self.text("\"")?;
        let is_lower = !text.iter().any(u8::is_ascii_uppercase);
        Uuid::try_parse_ascii(text).ok().filter(|_| is_lower)
    }

    fn hex_32(&mut self) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        self.text("\"")?;
        decode_hex(self.take(64)?, &mut bytes)?;
        self.text("\"")?;
        Some(bytes)
    }

    fn hex(&mut self) -> Option<Vec<u8>> {
        self.text("\"")?;
        let count = self.0.iter().position(|byte| *byte == b'"')?;
        let digits = self.take(count)?;
        self.text("\"")?;
        let mut bytes = vec![0; count / 2];
        decode_hex(digits, &mut bytes)?;
        Some(bytes)
    }
}

/// Of each byte, what it stands for as a lower-case hexadecimal digit; 16 for none.
const DIGITS: [u8; 256] = {
    let mut digits = [16; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

fn decode_hex(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    let mut seen = 0;
    for (pair, byte) in digits.chunks_exact(2).zip(bytes) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    // One look at the end for all of them.
    (seen < 16).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::archive::vectors::{KEY_ID, signed, v2};

    fn of(topic: &str, text: Option<String>, epochs: Vec<(i32, i64)>) -> SegmentManifest {
        let mut body = v2();
        body.segment.topic = topic.to_owned();
        body.segment.leader_epochs = epochs.into_iter().collect();
        body.objects[1].e_tag.clone_from(&text);
        body.objects[0].version_id = text;
        signed(body, KEY_ID)
    }

    #[test]
    fn what_is_written_is_read_without_the_general_decoder() {
        for manifest in [
            of("orders", None, vec![(0, 100), (2, 5), (10, 6)]),
            of(
                "",
                Some("\"d41d8\\\"".to_owned()),
                vec![(-1, -1), (0, i64::MIN)],
            ),
            of("ü\u{7f}\u{2028}\u{1f600}", Some(String::new()), Vec::new()),
            SegmentManifest {
                signature: None,
                ..of("t", None, vec![(i32::MIN, i64::MAX)])
            },
        ] {
            assert_eq!(read(&manifest.encode().unwrap()), Some(manifest));
        }
        // Left to the general decoder.
        assert_eq!(read(&of("tab\t", None, Vec::new()).encode().unwrap()), None);
    }

    #[test]
    fn numbers_and_digits_have_one_spelling() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("10", Some(10)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("--1", None),
            ("1-1", None),
            ("-", None),
            ("", None),
            ("+1", None),
        ] {
            assert_eq!(Rest(text.as_bytes()).number::<i32>(), number, "{text}");
        }
        for text in [
            "\"0g\"",
            "\"0G\"",
            "\"AB\"",
            "\"abc\"",
            "\"ab",
            "\"a\u{e9}\"",
        ] {
            assert_eq!(Rest(text.as_bytes()).hex(), None, "{text}");
        }
        assert_eq!(Rest(b"\"0aff\"").hex(), Some(vec![10, 255]));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_spelled_as_it_is_written(
            topic in any::<String>(),
            text in any::<Option<String>>(),
            epochs in proptest::collection::vec(any::<(i32, i64)>(), 0..4),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..3),
        ) {
            let manifest = of(&topic, text, epochs);
            let mut bytes = manifest.encode().unwrap();
            if edits.is_empty() {
                prop_assert!(read(&bytes).is_none_or(|read| read == manifest));
            }
            for (at, byte, how) in edits {
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            if let Some(read) = read(&bytes) {
                prop_assert_eq!(read.encode().unwrap(), bytes);
            }
        }
    }
}
