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
    let mut capacity = bytes.len().saturating_mul(8).min(limit);
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
