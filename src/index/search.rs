//! What searching the indexes has in common.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{LogOffset, RelativeOffset};

/// The entries of an index, in place. A partial last one is dropped.
pub(super) fn whole_entries<T>(bytes: &[u8]) -> &[T]
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let count = bytes.len() / size_of::<T>();
    <[T]>::ref_from_prefix_with_elems(bytes, count)
        .map(|(entries, _)| entries)
        .unwrap_or_default()
}

/// The entries up to the first pair of neighbours that are not in `order`.
pub(super) fn ordered_prefix<T>(entries: &[T], order: impl Fn(&T, &T) -> bool) -> &[T] {
    let end = entries
        .windows(2)
        .position(|pair| matches!(pair, [before, after] if !order(before, after)))
        .map_or(entries.len(), |last| last + 1);
    entries.get(..end).unwrap_or_default()
}

/// How many of `count` entries satisfy `holds`, when those that do come first. The first error
/// ends the search.
pub(super) fn partition_point<E>(
    count: usize,
    mut holds: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// The offset that an entry of a segment's index means.
pub(super) fn absolute(base_offset: LogOffset, relative_offset: RelativeOffset) -> LogOffset {
    base_offset.saturating_add(relative_offset.into())
}

/// The offset as an index entry can hold it: `None` below the segment's start, the greatest
/// number far above it.
pub(super) fn relative(base_offset: LogOffset, offset: LogOffset) -> Option<RelativeOffset> {
    let above = i128::from(offset) - i128::from(base_offset);
    (above >= 0).then(|| RelativeOffset::try_from(above).unwrap_or(RelativeOffset::MAX))
}
