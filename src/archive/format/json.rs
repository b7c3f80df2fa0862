//! The strict JSON of the archive: what plain derived decoding would let through.
//!
//! A manifest is evidence, so a value has one spelling and nothing is assumed in place of what is
//! missing. Derived decoding takes arrays for structs, other spellings of a UUID, the last of two
//! equal keys of a map, and leaves out what is null: none of it here.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The deepest nesting of a document that is looked at; the closed schemas need five levels.
const MAX_DEPTH: usize = 128;

/// Decodes a whole document that is an object, with nothing but white space behind it.
pub(crate) fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = object(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Whether `bytes` are exactly what serialising `value` writes.
pub(super) fn is_spelling_of(bytes: &[u8], value: &impl Serialize) -> bool {
    /// A writer that expects these bytes.
    struct Expect<'a>(&'a [u8]);

    impl io::Write for Expect<'_> {
        fn write(&mut self, written: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .strip_prefix(written)
                .ok_or(io::ErrorKind::InvalidData)?;
            Ok(written.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut rest = Expect(bytes);
    serde_json::to_writer(&mut rest, value).is_ok() && rest.0.is_empty()
}

/// Whether arrays and objects are nested more deeply than any reader must follow.
pub(super) fn is_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// Decodes a struct from an object alone, for `deserialize_with`.
pub(crate) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Members<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Members(PhantomData))
}

/// A struct that is decoded from an object alone, for where `deserialize_with` does not reach.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

/// Decodes an array of objects, for `deserialize_with`.
pub(crate) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Decodes a member that may be null and must be there, for `deserialize_with`.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)
}

/// Like [`nullable`], for a member that is an object.
pub(crate) fn nullable_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(value.map(|object| object.0))
}

/// Decodes the map from leader epoch to start offset, for `deserialize_with`.
///
/// Its keys are decimal numbers in strings, with the rules of JSON numbers; none comes twice.
pub(super) fn leader_epochs<'de, D>(deserializer: D) -> Result<BTreeMap<i32, i64>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Epochs;

    impl<'de> Visitor<'de> for Epochs {
        type Value = BTreeMap<i32, i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of leader epochs")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut epochs = BTreeMap::new();
            while let Some((Decimal(epoch), offset)) = map.next_entry()? {
                if epochs.insert(epoch, offset).is_some() {
                    return Err(A::Error::custom(format_args!(
                        "leader epoch {epoch} stands twice"
                    )));
                }
            }
            Ok(epochs)
        }
    }

    deserializer.deserialize_map(Epochs)
}

/// A number in a string, spelled as JSON would.
struct Decimal(i32);

impl FromStr for Decimal {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number: i32 = text.parse().map_err(|_| "not a leader epoch")?;
        // `parse` also takes a plus sign, leading zeros, and `-0`.
        if number.to_string() != text {
            return Err("a leader epoch has one spelling");
        }
        Ok(Self(number))
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::digest::deserialize(deserializer, "a leader epoch in a string")
    }
}

/// UUIDs with hyphens, for `with`. The reader takes either case, the writer the lower one.
pub(crate) mod hyphenated {
    use std::str::FromStr;

    use serde::{Deserializer, Serializer};
    use uuid::Uuid;

    struct Hyphenated(Uuid);

    impl FromStr for Hyphenated {
        type Err = &'static str;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            // The other forms that `uuid` reads have other lengths.
            if text.len() != uuid::fmt::Hyphenated::LENGTH {
                return Err("a UUID has 36 characters here");
            }
            Uuid::try_parse(text)
                .map(Self)
                .map_err(|_| "not a hyphenated UUID")
        }
    }

    pub(crate) fn serialize<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
        serializer.serialize_str(id.hyphenated().encode_lower(&mut buffer))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Uuid, D::Error> {
        crate::archive::format::digest::deserialize(deserializer, "a hyphenated UUID")
            .map(|Hyphenated(id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_too_deep(nested(128).as_bytes()));
        assert!(is_too_deep(nested(129).as_bytes()));
        let in_string = format!(r#"{{"a\"{}":["\\",{}]}}"#, "[".repeat(500), nested(126));
        assert!(!is_too_deep(in_string.as_bytes()));
        let deeper = format!(r#"{{"a\"{}":["\\",{}]}}"#, "[".repeat(500), nested(127));
        assert!(is_too_deep(deeper.as_bytes()));
    }
}
