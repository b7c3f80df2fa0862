//! Decompresses the records of a batch, never to more than the caller allows.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use zstd::zstd_safe;

/// The limit of calls that take none: 256 MiB for the records of one batch.
pub const DEFAULT_MAX_DECOMPRESSED_BYTES: usize = 256 * 1024 * 1024;

/// What the Java snappy library writes before its blocks: `\x82SNAPPY\0`, then two version
/// numbers. Those are not checked, as some writers store them little-endian.
const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_SIZE: usize = 16;

/// The largest piece that snappy makes of any byte it reads: 64 bytes out of 3, rounded up.
const SNAPPY_MAX_RATIO: usize = 22;

/// How the records of a batch are compressed (Kafka's `CompressionType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompressionType {
    /// Not at all.
    None,
    /// gzip members (RFC 1952).
    Gzip,
    /// Snappy, in the frames of the Java library or as one raw block.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames (RFC 8878).
    Zstd,
}

impl CompressionType {
    /// Kafka's name: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The type with this number in a batch's attributes; 5 to 7 have none.
    pub(super) fn of_attributes(attributes: i16) -> Option<Self> {
        match attributes & 0b111 {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What `bytes` decompress to, if that is at most `limit` bytes. Uncompressed bytes have no
    /// limit: they are borrowed, whatever their length.
    pub(super) fn decompress(self, bytes: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, Failure> {
        match self {
            Self::None => return Ok(Cow::Borrowed(bytes)),
            Self::Gzip => read_all(MultiGzDecoder::new(bytes), bytes.len(), limit),
            Self::Lz4 => read_all(FrameDecoder::new(bytes), bytes.len(), limit),
            Self::Snappy => snappy(bytes, limit),
            Self::Zstd => zstd(bytes, limit),
        }
        .map(Cow::Owned)
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why bytes could not be decompressed.
pub(super) enum Failure {
    /// They decompress to at least this many bytes.
    TooLarge(usize),
    /// What is wrong with them.
    Damaged(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Reads a decoder to its end, or to one byte more than the limit.
fn read_all(decoder: impl Read, compressed: usize, limit: usize) -> Result<Vec<u8>, Failure> {
    let first = compressed.saturating_mul(4).min(limit);
    let mut plain = Vec::with_capacity(first);
    let stop = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(stop).read_to_end(&mut plain)?;
    within(plain, limit)
}

fn within(plain: Vec<u8>, limit: usize) -> Result<Vec<u8>, Failure> {
    if plain.len() > limit {
        return Err(Failure::TooLarge(plain.len()));
    }
    Ok(plain)
}

fn snappy(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
    let mut plain = Vec::new();
    if !bytes.starts_with(XERIAL_MAGIC) {
        snappy_block(bytes, limit, &mut plain)?;
        return Ok(plain);
    }
    let mut rest = bytes.get(XERIAL_HEADER_SIZE..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let block = usize::try_from(i32::from_be_bytes(*length))
            .ok()
            .and_then(|length| after.split_at_checked(length));
        let Some((block, after)) = block else {
            return Err(Failure::Damaged(
                "a block reaches beyond the end".to_owned(),
            ));
        };
        snappy_block(block, limit, &mut plain)?;
        rest = after;
    }
    if rest.is_empty() {
        Ok(plain)
    } else {
        Err(Failure::Damaged(
            "the length of a block is cut off".to_owned(),
        ))
    }
}

/// Appends what one raw block holds.
fn snappy_block(block: &[u8], limit: usize, plain: &mut Vec<u8>) -> Result<(), Failure> {
    let declared = snap::raw::decompress_len(block)?;
    let start = plain.len();
    let end = start.saturating_add(declared);
    if end > limit {
        return Err(Failure::TooLarge(end));
    }
    // The buffer is made to the declared length, so the block must be able to fill it.
    if declared > block.len().saturating_mul(SNAPPY_MAX_RATIO) {
        return Err(Failure::Damaged(
            "a block declares more than it can hold".to_owned(),
        ));
    }
    plain.resize(end, 0);
    let target = plain.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(block, target)?;
    Ok(())
}

/// Decompresses in one call, into a buffer that grows when it proves too small.
///
/// A streaming decoder would first make a window as large as the frame declares, which at Kafka's
/// highest levels is 128 MiB for a batch of any size; one call needs no window.
fn zstd(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Failure> {
    const TOO_SMALL: usize =
        (zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();

    let mut context = zstd_safe::DCtx::try_create()
        .ok_or_else(|| Failure::Damaged("no memory for the decoder".to_owned()))?;
    // Never 0 unless the limit is, so that every round makes it larger.
    let mut capacity = bytes.len().saturating_mul(8).max(1024).min(limit);
    loop {
        let mut plain = Vec::with_capacity(capacity);
        match context.decompress(&mut plain, bytes) {
            // The vector may have room for more than was asked for.
            Ok(_) => return within(plain, limit),
            Err(TOO_SMALL) if capacity < limit => capacity = capacity.saturating_mul(4).min(limit),
            Err(TOO_SMALL) => return Err(Failure::TooLarge(limit.saturating_add(1))),
            Err(code) => return Err(Failure::Damaged(zstd_safe::get_error_name(code).to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const PACKED: [CompressionType; 4] = [
        CompressionType::Gzip,
        CompressionType::Snappy,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ];

    /// What Kafka's producer would write.
    fn compress(codec: CompressionType, plain: &[u8]) -> Vec<u8> {
        match codec {
            CompressionType::None => plain.to_vec(),
            CompressionType::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(plain).expect("gzip");
                encoder.finish().expect("gzip")
            }
            CompressionType::Snappy => {
                let mut framed = [XERIAL_MAGIC, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
                for block in plain.chunks(32 * 1024) {
                    let packed = snap::raw::Encoder::new()
                        .compress_vec(block)
                        .expect("snappy");
                    framed.extend(u32::try_from(packed.len()).expect("length").to_be_bytes());
                    framed.extend(packed);
                }
                framed
            }
            CompressionType::Lz4 => {
                let frame = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
                encoder.write_all(plain).expect("lz4");
                encoder.finish().expect("lz4")
            }
            CompressionType::Zstd => zstd_frame(plain, 17),
        }
    }

    /// A frame that does not tell its content's size, and declares this window.
    fn zstd_frame(plain: &[u8], window_log: u32) -> Vec<u8> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).expect("zstd");
        encoder.window_log(window_log).expect("window");
        encoder.write_all(plain).expect("zstd");
        encoder.finish().expect("zstd")
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| b"log segment "[at % 12 * (at / 999 % 12) % 12])
            .collect()
    }

    fn too_large(result: &Result<Cow<'_, [u8]>, Failure>) -> Option<usize> {
        match result {
            Err(Failure::TooLarge(size)) => Some(*size),
            _ => None,
        }
    }

    fn damaged(result: &Result<Cow<'_, [u8]>, Failure>) -> bool {
        matches!(result, Err(Failure::Damaged(_)))
    }

    #[test]
    fn every_codec_gives_back_what_was_compressed_up_to_the_limit() {
        for codec in PACKED {
            for length in [0, 1, 1000, 32 * 1024, 300_000] {
                let plain = text(length);
                let packed = compress(codec, &plain);
                let open = |limit| codec.decompress(&packed, limit);
                assert!(
                    open(length).is_ok_and(|all| all == plain),
                    "{codec} {length}"
                );
                assert!(
                    open(usize::MAX).is_ok_and(|all| all == plain),
                    "{codec} {length}"
                );
                if length > 0 {
                    let size = too_large(&open(length - 1)).expect("too large");
                    assert!(size >= length.min(32 * 1024), "{codec} {length} {size}");
                    assert!(too_large(&open(0)).is_some(), "{codec} {length}");
                }
            }
        }
    }

    #[test]
    fn lz4_frames_are_those_of_kafka() {
        let packed = compress(CompressionType::Lz4, &text(1000));
        assert_eq!(packed[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
        assert_eq!(packed[packed.len() - 4..], [0; 4]);
    }

    #[test]
    fn lz4_frames_of_other_writers_are_read() {
        let plain = text(300_000);
        let frame = lz4_flex::frame::FrameInfo::new()
            .block_size(lz4_flex::frame::BlockSize::Max64KB)
            .block_mode(lz4_flex::frame::BlockMode::Linked)
            .block_checksums(true)
            .content_checksum(true);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
        encoder.write_all(&plain).expect("lz4");
        let mut packed = encoder.finish().expect("lz4");
        let open = CompressionType::Lz4.decompress(&packed, plain.len());
        assert!(open.is_ok_and(|all| all == plain));
        *packed.last_mut().expect("checksum") ^= 1;
        assert!(damaged(
            &CompressionType::Lz4.decompress(&packed, plain.len())
        ));
    }

    #[test]
    fn snappy_is_read_with_any_framing_version_and_without_framing() {
        let plain = text(100_000);
        let mut little_endian = compress(CompressionType::Snappy, &plain);
        little_endian[8..16].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        let raw = snap::raw::Encoder::new()
            .compress_vec(&plain)
            .expect("snappy");
        for packed in [little_endian, raw] {
            let open = CompressionType::Snappy.decompress(&packed, plain.len());
            assert!(open.is_ok_and(|all| all == plain));
        }
    }

    #[test]
    fn several_gzip_members_are_one_content() {
        let gzip = CompressionType::Gzip;
        let both = [compress(gzip, b"first "), compress(gzip, b"second")].concat();
        assert!(
            gzip.decompress(&both, 100)
                .is_ok_and(|all| *all == b"first second"[..])
        );
    }

    #[test]
    fn a_small_batch_is_read_whatever_window_its_zstd_frame_declares() {
        // What compression level 22 declares: 128 MiB.
        let packed = zstd_frame(b"small", 27);
        let open = CompressionType::Zstd.decompress(&packed, 5);
        assert!(open.is_ok_and(|all| *all == b"small"[..]));
    }

    #[test]
    fn a_snappy_block_that_declares_more_than_it_can_hold_is_damaged() {
        // A length of 1 GiB, and one literal byte.
        let block = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00, 0x61];
        assert!(damaged(
            &CompressionType::Snappy.decompress(&block, usize::MAX)
        ));
        assert_eq!(
            too_large(&CompressionType::Snappy.decompress(&block, 1 << 20)),
            Some(1 << 30)
        );
        // The densest content there is: every 3 bytes make 64.
        let dense = vec![7; 1 << 20];
        let packed = snap::raw::Encoder::new()
            .compress_vec(&dense)
            .expect("snappy");
        assert!(
            CompressionType::Snappy
                .decompress(&packed, 1 << 20)
                .is_ok_and(|all| all == dense)
        );
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_refused() {
        let plain = text(100_000);
        for codec in PACKED {
            let packed = compress(codec, &plain);
            assert!(
                damaged(&codec.decompress(&packed[..packed.len() / 2], 1 << 20)),
                "{codec}"
            );
            assert!(
                damaged(&codec.decompress(b"no such format", 1 << 20)),
                "{codec}"
            );
        }
        let framed = compress(CompressionType::Snappy, &plain);
        for cut in [&framed[..12], &framed[..18], &framed[..framed.len() - 1]] {
            let result = CompressionType::Snappy.decompress(cut, 1 << 20);
            assert!(!result.is_ok_and(|all| all == plain));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_decompress_to_more_than_the_limit(
            codec in proptest::sample::select(PACKED.to_vec()),
            start in proptest::sample::select(vec![0_usize, 1]),
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            flips in proptest::collection::vec(any::<(proptest::sample::Index, u8)>(), 0..4),
            limit in 0_usize..2000,
        ) {
            // Half of the time a valid frame with a few bytes changed, which gets much further in.
            let mut packed = if start == 0 { bytes } else { compress(codec, &bytes) };
            for (at, value) in flips {
                if !packed.is_empty() {
                    let at = at.index(packed.len());
                    packed[at] = value;
                }
            }
            if let Ok(plain) = codec.decompress(&packed, limit) {
                prop_assert!(plain.len() <= limit);
            }
        }
    }
}
