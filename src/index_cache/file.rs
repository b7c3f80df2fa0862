//! One index in a file.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use zerocopy::FromBytes;

/// How much of a file is read and checked at once: about a page, and a whole number of entries of
/// each kind (8, 12 and 34 bytes).
const BLOCK_BYTES: usize = 4080;

/// How much of each block's start is kept in memory: an entry of an offset or a time index.
const HEAD_BYTES: usize = 12;

/// What is kept of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// CRC-32C.
    checksum: u32,
    /// The first bytes, and zeros where there are fewer.
    head: [u8; HEAD_BYTES],
}

/// An index in a file, which goes away with its last holder.
///
/// What is read is compared with checksums that are kept in memory, so damage on the disk is an
/// error and never a wrong answer. All reads block.
#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    length: usize,
    /// CRC-32C of the whole.
    checksum: u32,
    /// Not known yet of a file that an earlier process left.
    blocks: OnceLock<Box<[Block]>>,
    /// Whether the file outlives this value.
    kept: AtomicBool,
}

impl IndexFile {
    /// The file at `path`, to which `bytes` were just written.
    pub(super) fn written(path: PathBuf, bytes: &[u8], checksum: u32) -> Self {
        let file = Self::found(path, bytes.len(), checksum);
        file.blocks.get_or_init(|| blocks(bytes));
        file
    }

    /// A file whose bytes are not known to be good.
    pub(super) fn found(path: PathBuf, length: usize, checksum: u32) -> Self {
        Self {
            path,
            length,
            checksum,
            blocks: OnceLock::new(),
            kept: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn set_kept(&self, kept: bool) {
        self.kept.store(kept, Ordering::Release);
    }

    /// All of it.
    pub(super) fn read(&self) -> io::Result<Bytes> {
        self.read_from(&File::open(&self.path)?)
    }

    fn read_from(&self, file: &File) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.length];
        file.read_exact_at(&mut bytes, 0)?;
        check(&bytes, self.checksum)?;
        self.blocks.get_or_init(|| blocks(&bytes));
        Ok(bytes.into())
    }

    /// Opens it to read single entries.
    pub(super) fn entries(&self) -> io::Result<FileEntries<'_>> {
        let file = File::open(&self.path)?;
        let blocks = if let Some(blocks) = self.blocks.get() {
            blocks
        } else {
            let bytes = self.read_from(&file)?;
            self.blocks.get_or_init(|| blocks(&bytes))
        };
        Ok(FileEntries {
            file,
            length: self.length,
            blocks,
            number: usize::MAX,
            block: Vec::new(),
        })
    }
}

impl Drop for IndexFile {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            // Where it cannot be removed, the next process empties the directory.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The entries of an index in a file, read by block. The last block is remembered, so that a
/// binary search reads some ten of them and not twenty.
pub(super) struct FileEntries<'a> {
    file: File,
    length: usize,
    blocks: &'a [Block],
    number: usize,
    block: Vec<u8>,
}

impl FileEntries<'_> {
    /// Whole entries of this type.
    pub(super) fn count<T>(&self) -> usize {
        self.length / size_of::<T>()
    }

    pub(super) fn get<T: FromBytes>(&mut self, index: usize) -> io::Result<T> {
        let at = index * size_of::<T>();
        self.load(at / BLOCK_BYTES)?;
        let entry = self.block.get(at % BLOCK_BYTES..).unwrap_or_default();
        let entry = T::read_from_prefix(entry).ok();
        entry.map_or_else(
            || Err(io::ErrorKind::UnexpectedEof.into()),
            |(entry, _)| Ok(entry),
        )
    }

    /// The entries among which a search ends: those of one block, and the first one of the next.
    ///
    /// `search` is one among the first entries of all blocks, which are in memory: so many, read
    /// with the function that it is given. It ends with a look at the entry that it answers.
    pub(super) fn narrowed<T: FromBytes, R>(
        &self,
        search: impl FnOnce(usize, &mut dyn FnMut(usize) -> Result<T, Infallible>) -> R,
    ) -> std::ops::Range<usize> {
        let (count, of_block) = (self.count::<T>(), BLOCK_BYTES / size_of::<T>());
        let mut last = 0;
        search(count.div_ceil(of_block), &mut |block| {
            last = block;
            let head = T::read_from_prefix(&self.blocks[block].head);
            Ok(head.map_or_else(|_| unreachable!("larger than a head"), |(entry, _)| entry))
        });
        let begin = last * of_block;
        begin..(begin + of_block + 1).min(count)
    }

    fn load(&mut self, number: usize) -> io::Result<()> {
        if self.number == number {
            return Ok(());
        }
        let start = number * BLOCK_BYTES;
        self.number = usize::MAX;
        self.block
            .resize(BLOCK_BYTES.min(self.length.saturating_sub(start)), 0);
        self.file.read_exact_at(&mut self.block, start as u64)?;
        check(
            &self.block,
            self.blocks.get(number).map_or(0, |block| block.checksum),
        )?;
        self.number = number;
        Ok(())
    }
}

fn blocks(bytes: &[u8]) -> Box<[Block]> {
    let block = |bytes: &[u8]| {
        let mut head = [0; HEAD_BYTES];
        let known = bytes.len().min(HEAD_BYTES);
        head[..known].copy_from_slice(&bytes[..known]);
        Block {
            checksum: crc32c::crc32c(bytes),
            head,
        }
    };
    bytes.chunks(BLOCK_BYTES).map(block).collect()
}

fn check(bytes: &[u8], checksum: u32) -> io::Result<()> {
    if crc32c::crc32c(bytes) == checksum {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the bytes have changed since they were written",
        ))
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;
    use zerocopy::big_endian::{U32, U64};

    use super::*;

    fn file(dir: &tempfile::TempDir, bytes: &[u8]) -> IndexFile {
        let path = dir.path().join("file");
        fs::write(&path, bytes).unwrap();
        IndexFile::written(path, bytes, crc32c::crc32c(bytes))
    }

    fn numbers(count: u64) -> Vec<u8> {
        (0..count)
            .flat_map(|n| U64::new(n).as_bytes().to_vec())
            .collect()
    }

    fn number(entries: &mut FileEntries<'_>, index: usize) -> io::Result<u64> {
        entries.get::<U64>(index).map(U64::get)
    }

    #[test]
    fn blocks_hold_whole_entries_of_each_kind() {
        for size in [8, 12, 34] {
            assert_eq!(BLOCK_BYTES % size, 0, "{size}");
        }
    }

    #[test]
    fn every_entry_can_be_read_and_so_can_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, 509, 510, 511, 1020, 5000] {
            let mut bytes = numbers(count);
            bytes.extend([0xff; 5]);
            let file = file(&dir, &bytes);
            assert_eq!(file.read().unwrap(), bytes);
            let mut entries = file.entries().unwrap();
            let entries_in_it = usize::try_from(count).unwrap();
            assert_eq!(entries.count::<U64>(), entries_in_it);
            for index in (0..entries_in_it).rev() {
                assert_eq!(number(&mut entries, index).unwrap(), index as u64);
            }
            assert!(number(&mut entries, entries_in_it).is_err());
            assert!(number(&mut entries, 1_000_000).is_err());
            assert!(
                entries.get::<U32>(entries_in_it * 2).is_ok(),
                "four of the five bytes"
            );
        }
    }

    #[test]
    fn a_search_is_narrowed_to_one_block_by_what_is_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0_u64, 1, 509, 510, 511, 1020, 5000] {
            let mut bytes = numbers(count);
            bytes.extend([0xff; 5]);
            let file = file(&dir, &bytes);
            let entries = file.entries().unwrap();
            for wanted in [0, 1, 509, 510, 511, 1020, 4999, 5000] {
                // Looks from the front for the last one that is not above the wanted.
                let range = entries.narrowed::<U64, _>(|blocks, first| {
                    let below = (0..blocks)
                        .take_while(|&block| first(block).unwrap().get() <= wanted)
                        .last();
                    below.map(first)
                });
                assert!(range.len() <= 511 && range.end as u64 <= count, "{range:?}");
                let is_there = wanted < count;
                assert_eq!(is_there, range.contains(&usize::try_from(wanted).unwrap()));
            }
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_where_it_is_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = numbers(2000);
        let file = file(&dir, &bytes);
        bytes[600 * 8] ^= 1;
        fs::write(&file.path, &bytes).unwrap();
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut entries = file.entries().unwrap();
        assert_eq!(number(&mut entries, 100).unwrap(), 100);
        for _ in 0..2 {
            let error = number(&mut entries, 700).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(number(&mut entries, 1999).unwrap(), 1999);
    }

    #[test]
    fn a_cut_or_missing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(&dir, &numbers(2000));
        fs::write(&file.path, numbers(1000)).unwrap();
        assert!(file.read().is_err());
        assert!(number(&mut file.entries().unwrap(), 1500).is_err());
        fs::remove_file(&file.path).unwrap();
        assert!(file.read().is_err());
        assert!(file.entries().is_err());
    }

    #[test]
    fn a_file_of_an_earlier_process_is_checked_before_its_first_use() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = numbers(2000);
        let path = dir.path().join("file");
        for (checksum, is_good) in [(crc32c::crc32c(&bytes), true), (7, false)] {
            fs::write(&path, &bytes).unwrap();
            let file = IndexFile::found(path.clone(), bytes.len(), checksum);
            assert_eq!(file.entries().is_ok(), is_good);
            assert_eq!(file.read().is_ok(), is_good);
        }
    }

    #[test]
    fn the_file_goes_with_its_value_unless_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        for kept in [true, false] {
            let file = file(&dir, b"index");
            file.set_kept(kept);
            let path = file.path.clone();
            drop(file);
            assert_eq!(path.exists(), kept);
        }
    }
}
