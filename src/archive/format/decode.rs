//! A manifest's bytes: one spelling for each content, and nothing else is read.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::chain::{ChainStamp, ManifestSeq};
use super::json;
use super::manifest::{MANIFEST_FORMAT_VERSION, MAX_MANIFEST_BYTES, ManifestBody, SegmentManifest};
use super::printable::excerpt;
use crate::error::WormError;

/// Why bytes are not a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestDecodeError {
    /// Not JSON of exactly a manifest's members and types.
    #[error("not a manifest: {0}")]
    Schema(String),
    /// A manifest of another format than [`MANIFEST_FORMAT_VERSION`].
    #[error("{}", format_text(.found))]
    Format {
        /// The version, as it stands in the JSON.
        found: String,
        /// The position, where the rest could be read.
        seq: Option<ManifestSeq>,
    },
    /// A manifest, spelled in another way than manifests are written: it was changed after it was
    /// sealed, though not in what it says.
    #[error("the bytes are not those that sealing this content writes")]
    Encoding {
        /// The position.
        seq: ManifestSeq,
        /// What the bytes say.
        manifest: Box<SegmentManifest>,
    },
}

fn format_text(found: &str) -> String {
    if found == "1" {
        "format 1 is not verified: it does not say how objects were protected when they were created"
            .to_owned()
    } else {
        format!("unknown format {found}: this verifier knows format {MANIFEST_FORMAT_VERSION}")
    }
}

impl SegmentManifest {
    /// The manifest's bytes: compact JSON, members in the order of the fields.
    ///
    /// # Errors
    ///
    /// [`Codec`](WormError::Codec) when they are more than [`MAX_MANIFEST_BYTES`]: no verifier
    /// would read them.
    pub fn encode(&self) -> Result<Vec<u8>, WormError> {
        let bytes = serde_json::to_vec(self).map_err(|e| WormError::Codec(e.to_string()))?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(WormError::Codec(format!(
                "a manifest of {} bytes exceeds the limit of {MAX_MANIFEST_BYTES}",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Reads a manifest from exactly the bytes that [`encode`](Self::encode) writes.
    ///
    /// Memory is bounded by the input's length, whatever the input says of itself. Neither chain
    /// nor signature is checked.
    ///
    /// # Errors
    ///
    /// As the variants of [`ManifestDecodeError`] say.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestDecodeError> {
        let manifest: Self = json::from_slice(bytes).map_err(|e| explain(bytes, &e))?;
        let ManifestBody {
            format_version,
            chain: ChainStamp { seq, .. },
            ..
        } = manifest.body;
        if format_version != MANIFEST_FORMAT_VERSION {
            return Err(ManifestDecodeError::Format {
                found: format_version.to_string(),
                seq: Some(seq),
            });
        }
        if !json::is_spelling_of(bytes, &manifest) {
            return Err(ManifestDecodeError::Encoding {
                seq,
                manifest: Box::new(manifest),
            });
        }
        Ok(manifest)
    }
}

/// Tells another format from what is no manifest at all: a later format may have other members.
fn explain(bytes: &[u8], error: &serde_json::Error) -> ManifestDecodeError {
    #[derive(Deserialize)]
    struct Probe<'a> {
        #[serde(borrow, deserialize_with = "json::object")]
        body: BodyProbe<'a>,
    }
    #[derive(Deserialize)]
    struct BodyProbe<'a> {
        #[serde(borrow)]
        format_version: &'a RawValue,
    }

    let schema = ManifestDecodeError::Schema(excerpt(&error.to_string()));
    // What is skipped is not checked to be UTF-8 otherwise.
    if json::is_too_deep(bytes) || std::str::from_utf8(bytes).is_err() {
        return schema;
    }
    match json::from_slice::<Probe<'_>>(bytes).map(|probe| probe.body.format_version.get()) {
        Ok(found) if found != "2" => ManifestDecodeError::Format {
            found: excerpt(found),
            seq: None,
        },
        _ => schema,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::archive::vectors::{KEY_ID, signed, v2};

    fn json() -> String {
        String::from_utf8(signed(v2(), KEY_ID).encode().unwrap()).unwrap()
    }

    fn decode(json: &str) -> Result<SegmentManifest, ManifestDecodeError> {
        SegmentManifest::decode(json.as_bytes())
    }

    fn replaced(from: &str, to: &str) -> Result<SegmentManifest, ManifestDecodeError> {
        let json = json();
        assert!(json.contains(from), "{from}");
        decode(&json.replacen(from, to, 1))
    }

    #[test]
    fn what_is_not_the_closed_schema_is_refused() {
        for (from, to) in [
            // Members: missing, unknown, twice.
            (r#","signature":{"#, r#","signature_":{"#),
            (r#""e_tag":null,"#, ""),
            (r#""version_id":null,"#, ""),
            (r#""partition":3,"#, ""),
            (r#""partition":3,"#, r#""partition":3,"partition":3,"#),
            (r#""partition":3,"#, r#""partition":3,"more":3,"#),
            (r#"{"0":100,"#, r#"{"0":100,"0":100,"#),
            // Numbers: one spelling, their range, no strings.
            (r#""partition":3"#, r#""partition":3.0"#),
            (r#""partition":3"#, r#""partition":3e0"#),
            (r#""partition":3"#, r#""partition":03"#),
            (r#""partition":3"#, r#""partition":+3"#),
            (r#""partition":3"#, r#""partition":-0"#),
            (r#""partition":3"#, r#""partition":2147483648"#),
            (r#""partition":3"#, r#""partition":"3""#),
            (r#""seq":0"#, r#""seq":-0"#),
            (r#""seq":0"#, r#""seq":-1"#),
            (r#""seq":0"#, r#""seq":18446744073709551616"#),
            (r#"{"0":100"#, r#"{"-0":100"#),
            (r#"{"0":100"#, r#"{"00":100"#),
            (r#"{"0":100"#, r#"{"+0":100"#),
            (r#"{"0":100"#, r#"{" 0":100"#),
            (r#"{"0":100"#, r#"{"":100"#),
            (r#"{"0":100"#, r#"{"0.0":100"#),
            (r#"{"0":100"#, r#"{"2147483648":100"#),
            // UUIDs: with hyphens.
            (
                "00000000-0000-0000-0000-000000000011",
                "00000000000000000000000000000011",
            ),
            (
                "00000000-0000-0000-0000-000000000011",
                "{00000000-0000-0000-0000-000000000011}",
            ),
            (
                "00000000-0000-0000-0000-000000000011",
                "urn:uuid:00000000-0000-0000-0000-000000000011",
            ),
            // Digests: 64 digits.
            (
                "aa7e5f3c7b6f4fc5001e304da285bc207f62faab04dfd028d1661d2c48f8533e",
                "aa",
            ),
            ("03a107bff3ce10be", "03a107bff3ce10b"),
            // Types.
            (r#""txn_index_empty":true"#, r#""txn_index_empty":1"#),
            (r#""topic":"orders""#, r#""topic":null"#),
            (r#""topic":"orders""#, r#""topic":"\ud800""#),
            (r#""topic":"orders""#, "\"topic\":\"or\nders\""),
            // What surrounds it.
            ("{\"body\"", "\u{feff}{\"body\""),
            ("{\"body\"", "[{\"body\""),
        ] {
            let result = replaced(from, to);
            assert!(
                matches!(result, Err(ManifestDecodeError::Schema(_))),
                "{to}: {result:?}"
            );
        }
        for trailing in ["x", "{}", ",", "\0"] {
            let result = decode(&(json() + trailing));
            assert!(
                matches!(result, Err(ManifestDecodeError::Schema(_))),
                "{trailing:?}: {result:?}"
            );
        }
    }

    #[test]
    fn an_array_is_no_object() {
        let chain = json();
        let chain = &chain[chain.find(r#"{"epoch_id""#).unwrap()..];
        let chain = &chain[..=chain.find('}').unwrap()];
        let zeros = "0".repeat(64);
        let array = format!(r#"["00000000-0000-0000-0000-000000000099",0,"{zeros}"]"#);
        let signature = json();
        let signature = &signature[signature.find(r#"{"key_id""#).unwrap()..];
        let signature = &signature[..=signature.find('}').unwrap()];
        for (object, array) in [
            (chain, array.as_str()),
            (signature, r#"["worm-key-1","",""]"#),
            (&json(), r"[null,null]"),
        ] {
            let result = replaced(object, array);
            assert!(
                matches!(result, Err(ManifestDecodeError::Schema(_))),
                "{array}: {result:?}"
            );
        }
    }

    #[test]
    fn another_spelling_of_the_same_content_is_told_apart() {
        for (from, to) in [
            (r#""partition":3"#, r#""partition": 3"#),
            (r#""partition":3"#, "\"partition\":\n3"),
            (r#""topic":"orders""#, r#""topic":"\u006frders""#),
            (r#""topic":"orders""#, r#""t\u006fpic":"orders""#),
            (r#"{"0":100"#, r#"{"\u0030":100"#),
            (r#""sha256":"aa"#, r#""sha256":"AA"#),
            (r#""public_key":"03a"#, r#""public_key":"03A"#),
            (
                r#""partition":3,"segment_id":"00000000-0000-0000-0000-000000000022""#,
                r#""segment_id":"00000000-0000-0000-0000-000000000022","partition":3"#,
            ),
            (r#"{"0":100,"1":150}"#, r#"{"1":150,"0":100}"#),
            (r#","create_precondition":false"#, ""),
        ] {
            let result = replaced(from, to);
            let Err(ManifestDecodeError::Encoding { seq, manifest }) = result else {
                panic!("{to}: {result:?}");
            };
            assert_eq!(seq, ManifestSeq(0));
            assert_eq!(*manifest, signed(v2(), KEY_ID), "{to}");
        }
        for around in [json() + "\n", format!(" {}", json())] {
            assert!(matches!(
                decode(&around),
                Err(ManifestDecodeError::Encoding { .. })
            ));
        }
    }

    #[test]
    fn another_format_is_named_even_if_its_members_are_unknown() {
        for (found, seq) in [
            ("1", Some(ManifestSeq(0))),
            ("3", Some(ManifestSeq(0))),
            ("4294967295", Some(ManifestSeq(0))),
            ("4294967296", None),
            ("-1", None),
            ("2.0", None),
            ("null", None),
            ("\"2\"", None),
            ("{\"major\":2}", None),
        ] {
            assert_eq!(
                replaced(
                    r#""format_version":2"#,
                    &format!(r#""format_version":{found}"#)
                ),
                Err(ManifestDecodeError::Format {
                    found: found.to_owned(),
                    seq
                })
            );
        }
        let result = decode(r#"{"body":{"format_version":3,"new":[{}]},"also":"new"}"#);
        assert!(matches!(
            result,
            Err(ManifestDecodeError::Format { found, seq: None }) if found == "3"
        ));
    }

    #[test]
    fn without_a_readable_format_it_is_no_manifest() {
        let nested = |depth: usize| {
            format!(
                r#"{{"body":{{"format_version":3,"new":{}{}}}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        assert!(matches!(
            decode(&nested(126)),
            Err(ManifestDecodeError::Format { .. })
        ));
        for json in [
            nested(127).as_str(),
            &"[".repeat(1_000_000),
            r#"{"body":{"format_version":2}}"#,
            r#"{"body":{}}"#,
            r#"{"body":[3]}"#,
            r#"{"body":{"format_version":3,"format_version":3}}"#,
            r#"{"body":{"format_version":3}"#,
            r#"{"format_version":3}"#,
            r#"[{"format_version":3}]"#,
            "",
            "null",
            "\u{feff}",
        ] {
            let result = decode(json);
            assert!(
                matches!(result, Err(ManifestDecodeError::Schema(_))),
                "{}: {result:?}",
                json.get(..60).unwrap_or(json)
            );
        }
        let mut invalid = br#"{"body":{"format_version":3,"new":"?"}}"#.to_vec();
        let at = invalid.iter().position(|byte| *byte == b'?').unwrap();
        invalid[at] = 0xff;
        assert!(matches!(
            SegmentManifest::decode(&invalid),
            Err(ManifestDecodeError::Schema(_))
        ));
    }

    #[test]
    fn the_text_of_an_error_is_short_and_cannot_forge_a_line() {
        let long = "\u{1b}[2K\r\nOK: ".repeat(50_000);
        let json = serde_json::to_string(&std::collections::HashMap::from([(long, 1)])).unwrap();
        let text = decode(&json).unwrap_err().to_string();
        assert!(text.len() < 2_500, "{}", text.len());
        assert!(!text.contains(['\u{1b}', '\r', '\n']), "{text}");
        let format = replaced(
            r#""format_version":2"#,
            &format!(r#""format_version":[{}1]"#, "\n".repeat(100_000)),
        );
        let text = format.unwrap_err().to_string();
        assert!(text.len() < 2_500 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_manifest_over_the_limit_is_not_written() {
        let mut manifest = signed(v2(), KEY_ID);
        let rest = 1_048_576 - manifest.encode().unwrap().len();
        manifest.body.segment.topic.push_str(&"t".repeat(rest));
        assert_eq!(manifest.encode().unwrap().len(), 1_048_576);
        manifest.body.segment.topic.push('t');
        assert_eq!(
            manifest.encode(),
            Err(WormError::Codec(
                "a manifest of 1048577 bytes exceeds the limit of 1048576".to_owned()
            ))
        );
    }

    fn of(topic: &str, text: Option<String>, epochs: Vec<(i32, i64)>) -> SegmentManifest {
        let mut body = v2();
        body.segment.topic = topic.to_owned();
        body.segment.leader_epochs = epochs.into_iter().collect();
        body.objects[1].e_tag.clone_from(&text);
        body.objects[0].version_id = text;
        signed(body, KEY_ID)
    }

    #[test]
    fn what_is_written_is_read() {
        for manifest in [
            of("orders", None, vec![(0, 100), (2, 5), (10, 6)]),
            of(
                "",
                Some("\"d41d8\\\"".to_owned()),
                vec![(-1, -1), (0, i64::MIN)],
            ),
            of("ü\u{7f}\u{2028}\u{1f600}", Some(String::new()), Vec::new()),
            of("tab\t", None, Vec::new()),
            SegmentManifest {
                signature: None,
                ..of("t", None, vec![(i32::MIN, i64::MAX)])
            },
        ] {
            let bytes = manifest.encode().unwrap();
            assert_eq!(SegmentManifest::decode(&bytes), Ok(manifest));
        }
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
            let read = replaced(r#""partition":3"#, &format!(r#""partition":{text}"#)).ok();
            let read = read.map(|manifest| manifest.body.segment.partition);
            assert_eq!(read, number, "{text}");
        }
        for text in ["0g", "0G", "AB", "abc", "ab\"", "a\u{e9}"] {
            let result = replaced(
                r#""public_key":"03a1"#,
                &format!(r#""public_key":"{text}03a1"#),
            );
            assert!(result.is_err(), "{text}: {result:?}");
        }
        let read = replaced(r#""public_key":"03a1"#, r#""public_key":"0aff03a1"#).unwrap();
        assert!(
            read.signature
                .unwrap()
                .public_key
                .0
                .starts_with(&[10, 255, 3])
        );
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
                prop_assert_eq!(SegmentManifest::decode(&bytes), Ok(manifest));
            }
            for (at, byte, how) in edits {
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            if let Ok(read) = SegmentManifest::decode(&bytes) {
                prop_assert_eq!(read.encode().unwrap(), bytes);
            }
        }
    }
}
