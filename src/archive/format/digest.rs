//! Digests and byte strings, written as hexadecimal.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A text that is not the hexadecimal form of what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseHexError {
    /// The text has another length.
    #[error("expected {expected} hexadecimal digits, found {found} bytes")]
    Length {
        /// The number of digits that are wanted.
        expected: usize,
        /// The length of the text in bytes.
        found: usize,
    },
    /// Bytes are two digits each, and one digit is left over.
    #[error("expected an even number of hexadecimal digits, found {0}")]
    Odd(usize),
    /// A character is none of `0-9 a-f A-F`.
    #[error("byte {0} is not a hexadecimal digit")]
    Digit(usize),
}

/// Makes a 32-byte type that is 64 hexadecimal digits in text and in JSON.
macro_rules! hex_32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::archive::format::digest::encode_32(&self.0, &mut [0; 64]))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        /// Takes either case, so that a value can come from a program's argument.
        impl std::str::FromStr for $name {
            type Err = $crate::archive::format::digest::ParseHexError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::archive::format::digest::decode_32(text).map(Self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::archive::format::digest::encode_32(&self.0, &mut [0; 64]))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::archive::format::digest::deserialize(deserializer, "64 hexadecimal digits")
            }
        }
    };
}
pub(super) use hex_32;

hex_32! {
    /// A SHA-256 digest.
    Sha256Digest
}

impl Sha256Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Bytes of any number, none included, that are hexadecimal digits in text and in JSON.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HexBytes(pub Vec<u8>);

impl fmt::Display for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(&self.0))
    }
}

impl fmt::Debug for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HexBytes({self})")
    }
}

/// Takes either case.
impl FromStr for HexBytes {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.len().is_multiple_of(2) {
            return Err(ParseHexError::Odd(text.len()));
        }
        let mut bytes = vec![0; text.len() / 2];
        decode_into(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        self::deserialize(deserializer, "an even number of hexadecimal digits")
    }
}

/// The 64 digits of 32 bytes, lower case, written into `buffer`.
pub(crate) fn encode_32<'a>(bytes: &[u8; 32], buffer: &'a mut [u8; 64]) -> &'a str {
    encode_into(bytes, buffer);
    // Digits are ASCII.
    std::str::from_utf8(buffer).unwrap_or_default()
}

/// 32 bytes from their 64 digits, of either case.
pub(crate) fn decode_32(text: &str) -> Result<[u8; 32], ParseHexError> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return Err(ParseHexError::Length {
            expected: 2 * bytes.len(),
            found: text.len(),
        });
    }
    decode_into(text, &mut bytes)?;
    Ok(bytes)
}

/// Reads a JSON string and parses it, without a copy of the text where there is none to make.
pub(crate) fn deserialize<'de, D, T>(deserializer: D, what: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    struct Text<T>(&'static str, PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(what, PhantomData))
}

fn encode(bytes: &[u8]) -> String {
    let mut digits = vec![0; 2 * bytes.len()];
    encode_into(bytes, &mut digits);
    String::from_utf8(digits).unwrap_or_default()
}

fn encode_into(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

fn decode_into(text: &str, bytes: &mut [u8]) -> Result<(), ParseHexError> {
    for (index, (pair, byte)) in text.as_bytes().chunks_exact(2).zip(bytes).enumerate() {
        let high = digit(pair[0]).ok_or(ParseHexError::Digit(2 * index))?;
        let low = digit(pair[1]).ok_or(ParseHexError::Digit(2 * index + 1))?;
        *byte = high << 4 | low;
    }
    Ok(())
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_64_lower_case_digits_in_text_and_json() {
        let digest = Sha256Digest::of(b"");
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(format!("{digest:?}"), format!("Sha256Digest({EMPTY})"));
        assert_eq!(
            serde_json::to_string(&digest).unwrap(),
            format!("\"{EMPTY}\"")
        );
    }

    #[test]
    fn either_case_is_read() {
        let digest = Sha256Digest::of(b"");
        assert_eq!(EMPTY.to_uppercase().parse(), Ok(digest));
        let json = format!("\"{}\"", EMPTY.to_uppercase());
        assert_eq!(serde_json::from_str::<Sha256Digest>(&json).unwrap(), digest);
    }

    #[test]
    fn another_length_or_character_is_an_error_that_says_which() {
        let short = &EMPTY[1..];
        assert_eq!(
            short.parse::<Sha256Digest>(),
            Err(ParseHexError::Length {
                expected: 64,
                found: 63
            })
        );
        let long = format!("{EMPTY}0");
        assert!(long.parse::<Sha256Digest>().is_err());
        let wrong = EMPTY.replacen('b', "g", 1);
        assert_eq!(wrong.parse::<Sha256Digest>(), Err(ParseHexError::Digit(2)));
        assert!("é".repeat(32).parse::<Sha256Digest>().is_err());
        assert!(serde_json::from_str::<Sha256Digest>("7").is_err());
    }

    #[test]
    fn hex_bytes_have_an_even_number_of_digits() {
        assert_eq!("".parse(), Ok(HexBytes(Vec::new())));
        assert_eq!("00fF".parse(), Ok(HexBytes(vec![0, 255])));
        assert_eq!("0".parse::<HexBytes>(), Err(ParseHexError::Odd(1)));
        assert_eq!("0x".parse::<HexBytes>(), Err(ParseHexError::Digit(1)));
        assert_eq!(format!("{:?}", HexBytes(vec![0, 255])), "HexBytes(00ff)");
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_read_back(bytes in any::<Vec<u8>>(), array in any::<[u8; 32]>()) {
            let json = serde_json::to_string(&HexBytes(bytes.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<HexBytes>(&json).unwrap(), HexBytes(bytes));
            prop_assert_eq!(Sha256Digest(array).to_string().parse(), Ok(Sha256Digest(array)));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            let _ = text.parse::<HexBytes>();
            let _ = text.parse::<Sha256Digest>();
        }
    }
}
