//! Reads the parts of a record from the front of a slice.

/// What is wrong with the bytes of a record.
pub(super) type Defect = &'static str;

/// The bytes of a slice that are not yet read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Defect> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or("a field reaches beyond its end")?;
        self.rest = rest;
        Ok(taken)
    }

    /// A zigzag varint of at most 5 bytes. Bits that do not fit are lost, as in Kafka.
    pub(super) fn varint(&mut self) -> Result<i32, Defect> {
        // A 32-bit value, so the truncation is the loss that the contract speaks of.
        #[allow(clippy::cast_possible_truncation)]
        let raw = self.unsigned(5)? as u32;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A zigzag varlong of at most 10 bytes.
    pub(super) fn varlong(&mut self) -> Result<i64, Defect> {
        let raw = self.unsigned(10)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A length that may be −1, which means null, and the bytes that follow it.
    pub(super) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Defect> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.take(size(length)?).map(Some),
        }
    }

    /// A length and the bytes that follow it.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Defect> {
        let length = self.varint()?;
        self.take(size(length)?)
    }

    fn unsigned(&mut self, max_bytes: u32) -> Result<u64, Defect> {
        let mut value = 0_u64;
        for index in 0..max_bytes {
            let (&byte, rest) = self.rest.split_first().ok_or("a number is cut off")?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has too many bytes")
    }
}

/// A length or count that must not be negative.
pub(super) fn size(declared: i32) -> Result<usize, Defect> {
    usize::try_from(declared).map_err(|_| "a length or count is negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_zigzag_and_longest_forms_reach_the_limits() {
        for (bytes, expected) in [
            (&[0x00][..], 0),
            (&[0x01], -1),
            (&[0x02], 1),
            (&[0x7f], -64),
            (&[0x80, 0x01], 64),
            (&[0xfe, 0xff, 0xff, 0xff, 0x0f], i32::MAX),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f], i32::MIN),
        ] {
            let mut cursor = Cursor::new(bytes);
            assert_eq!(cursor.varint(), Ok(expected));
            assert!(cursor.is_empty());
        }
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&longest).varlong(), Ok(i64::MIN));
    }

    #[test]
    fn numbers_that_are_too_long_or_cut_off_are_refused() {
        assert!(Cursor::new(&[0x80; 5]).varint().is_err());
        assert!(Cursor::new(&[0x80; 4]).varint().is_err());
        assert!(Cursor::new(&[0x80; 10]).varlong().is_err());
        assert!(Cursor::new(&[]).varlong().is_err());
    }

    #[test]
    fn a_length_below_minus_one_is_not_null() {
        assert_eq!(Cursor::new(&[0x01]).nullable_bytes(), Ok(None));
        assert!(Cursor::new(&[0x03]).nullable_bytes().is_err());
        assert!(Cursor::new(&[0x01]).bytes().is_err());
    }
}
