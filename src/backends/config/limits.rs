//! How often, how long, how much at once: the limits of one store's requests.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::RemoteStorageError;

/// Files of this length and more are uploaded in parts: 100 MiB.
pub const DEFAULT_MULTIPART_THRESHOLD: u64 = 100 * 1024 * 1024;

/// Length of a part, in bytes: 16 MiB.
pub const DEFAULT_MULTIPART_CHUNK_SIZE: usize = 16 * 1024 * 1024;

/// The longest segment that Kafka writes, in bytes: its size is a signed 32-bit number.
#[cfg(feature = "_http")]
const MAX_SEGMENT_BYTES: u64 = i32::MAX as u64;

/// The limits that the layers above a store keep.
///
/// Each store's configuration has these as fields of its own and makes this value of them; the
/// `Default` is the same for every store but a local directory, where files of 2 MiB and more go in
/// parts of 2 MiB, eight at once. Memory of one copy is bounded by `max_parts_in_flight` ×
/// `multipart_chunk_size`, and two parts more that are read ahead (five in an archive, which hashes
/// them), or by `multipart_threshold` for a file that goes in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// How often a failed request to the store is repeated: 0 is one attempt, n is n + 1. Default
    /// 10.
    pub max_retries: usize,
    /// All attempts of one request together, pauses included. Longer than `request_timeout`.
    /// Default 180 s.
    pub retry_timeout: Duration,
    /// One attempt of one request. While bytes of a body move, this limits the silence between
    /// them and not the whole. Default 30 s.
    pub request_timeout: Duration,
    /// A whole copy, waiting included. Default 30 min.
    pub copy_deadline: Duration,
    /// Making a connection; stores that are not reached over a network ignore it. Default 5 s.
    pub connect_timeout: Duration,
    /// Parts of one copy under way at once. Default 4.
    pub max_parts_in_flight: usize,
    /// Requests that read, under way at once over all calls. Default 64.
    pub max_reads: usize,
    /// Requests that write, under way at once over all calls. Default 16.
    pub max_writes: usize,
    /// Length in bytes from which on (inclusive) a file is uploaded in parts. Default
    /// [`DEFAULT_MULTIPART_THRESHOLD`].
    pub multipart_threshold: u64,
    /// Length of a part in bytes; the last may be shorter. Default
    /// [`DEFAULT_MULTIPART_CHUNK_SIZE`].
    pub multipart_chunk_size: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_retries: 10,
            retry_timeout: Duration::from_mins(3),
            request_timeout: Duration::from_secs(30),
            copy_deadline: Duration::from_mins(30),
            connect_timeout: Duration::from_secs(5),
            max_parts_in_flight: 4,
            max_reads: 64,
            max_writes: 16,
            multipart_threshold: DEFAULT_MULTIPART_THRESHOLD,
            multipart_chunk_size: DEFAULT_MULTIPART_CHUNK_SIZE,
        }
    }
}

impl RequestLimits {
    /// Checks what holds for every store.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](RemoteStorageError::InvalidArgument) that names the field: for a time
    /// of zero, a `retry_timeout` that is not longer than `request_timeout`, nothing allowed at
    /// once (or more than can be counted), and parts of no length.
    pub fn validate(&self) -> Result<(), RemoteStorageError> {
        for (field, time) in [
            ("retry_timeout", self.retry_timeout),
            ("request_timeout", self.request_timeout),
            ("copy_deadline", self.copy_deadline),
            ("connect_timeout", self.connect_timeout),
        ] {
            if time.is_zero() {
                return Err(invalid(format!(
                    "`{field}` is zero: nothing could ever be answered in time"
                )));
            }
        }
        if self.retry_timeout <= self.request_timeout {
            return Err(invalid(format!(
                "`retry_timeout` ({:?}) must be longer than `request_timeout` ({:?}): it bounds all \
                 attempts together",
                self.retry_timeout, self.request_timeout
            )));
        }
        for (field, at_once) in [
            ("max_parts_in_flight", self.max_parts_in_flight),
            ("max_reads", self.max_reads),
            ("max_writes", self.max_writes),
        ] {
            if !(1..=Semaphore::MAX_PERMITS).contains(&at_once) {
                return Err(invalid(format!(
                    "`{field}` is {at_once}: give a number from 1 to {}",
                    Semaphore::MAX_PERMITS
                )));
            }
        }
        if self.multipart_chunk_size == 0 {
            return Err(invalid(
                "`multipart_chunk_size` is 0: a part needs a length".to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks the length of parts against what a store takes, where a segment can be long enough
    /// to be uploaded in parts.
    #[cfg(feature = "_http")]
    pub(in crate::backends) fn check_parts(
        &self,
        rule: &PartRule,
    ) -> Result<(), RemoteStorageError> {
        if self.multipart_threshold > MAX_SEGMENT_BYTES {
            return Ok(());
        }
        let PartRule {
            store,
            min_bytes,
            max_parts,
        } = rule;
        let chunk = self.multipart_chunk_size as u64;
        if chunk < *min_bytes {
            return Err(invalid(format!(
                "`multipart_chunk_size` is {chunk} bytes: {store} takes no part under {min_bytes} \
                 bytes but the last"
            )));
        }
        let parts = MAX_SEGMENT_BYTES.div_ceil(chunk);
        if parts > *max_parts {
            return Err(invalid(format!(
                "`multipart_chunk_size` of {chunk} bytes cuts a segment of 2 GiB into {parts} \
                 parts: {store} takes {max_parts}"
            )));
        }
        Ok(())
    }
}

/// What a store asks of the parts of an upload.
#[cfg(feature = "_http")]
pub(in crate::backends) struct PartRule {
    pub(in crate::backends) store: &'static str,
    pub(in crate::backends) min_bytes: u64,
    pub(in crate::backends) max_parts: u64,
}

fn invalid(text: String) -> RemoteStorageError {
    RemoteStorageError::InvalidArgument(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_ones_and_valid() {
        let limits = RequestLimits::default();
        limits.validate().unwrap();
        assert_eq!(limits.max_retries, 10);
        assert_eq!(limits.retry_timeout, Duration::from_mins(3));
        assert_eq!(limits.request_timeout, Duration::from_secs(30));
        assert_eq!(limits.copy_deadline, Duration::from_mins(30));
        assert_eq!(limits.connect_timeout, Duration::from_secs(5));
        assert_eq!(limits.max_parts_in_flight, 4);
        assert_eq!((limits.max_reads, limits.max_writes), (64, 16));
        assert_eq!(limits.multipart_threshold, 104_857_600);
        assert_eq!(limits.multipart_chunk_size, 16_777_216);
    }

    #[test]
    fn a_limit_that_lets_nothing_through_is_refused_by_name() {
        type Change = fn(&mut RequestLimits);
        let rows: [(&str, Change); 10] = [
            ("retry_timeout", |l| l.retry_timeout = Duration::ZERO),
            ("request_timeout", |l| l.request_timeout = Duration::ZERO),
            ("copy_deadline", |l| l.copy_deadline = Duration::ZERO),
            ("connect_timeout", |l| l.connect_timeout = Duration::ZERO),
            ("retry_timeout", |l| l.retry_timeout = l.request_timeout),
            ("max_parts_in_flight", |l| l.max_parts_in_flight = 0),
            ("max_reads", |l| l.max_reads = 0),
            ("max_writes", |l| l.max_writes = 0),
            ("max_writes", |l| l.max_writes = usize::MAX),
            ("multipart_chunk_size", |l| l.multipart_chunk_size = 0),
        ];
        for (field, change) in rows {
            let mut limits = RequestLimits::default();
            change(&mut limits);
            let error = limits.validate().unwrap_err();
            let RemoteStorageError::InvalidArgument(text) = error else {
                panic!("{field}: {error:?}");
            };
            assert!(text.starts_with(&format!("`{field}` ")), "{text}");
        }
    }

    #[test]
    fn one_attempt_and_any_threshold_are_valid() {
        for threshold in [0, 1, u64::MAX] {
            let limits = RequestLimits {
                max_retries: 0,
                multipart_threshold: threshold,
                ..RequestLimits::default()
            };
            limits.validate().unwrap();
        }
    }

    #[cfg(feature = "_http")]
    #[test]
    fn parts_are_held_against_the_store_only_where_a_segment_can_reach_the_threshold() {
        let rule = PartRule {
            store: "the store",
            min_bytes: 5 * 1024 * 1024,
            max_parts: 10_000,
        };
        let limits = |multipart_threshold, multipart_chunk_size| RequestLimits {
            multipart_threshold,
            multipart_chunk_size,
            ..RequestLimits::default()
        };
        let longest = i32::MAX as u64;
        assert!(limits(0, 5 * 1024 * 1024).check_parts(&rule).is_ok());
        assert!(
            limits(longest, 5 * 1024 * 1024 - 1)
                .check_parts(&rule)
                .is_err()
        );
        assert!(limits(longest + 1, 1).check_parts(&rule).is_ok());

        let rule = PartRule {
            min_bytes: 1,
            ..rule
        };
        // 2147483647 bytes in 10,000 parts.
        assert!(limits(0, 214_749).check_parts(&rule).is_ok());
        let error = limits(0, 214_748).check_parts(&rule).unwrap_err();
        assert!(error.to_string().contains("10001 parts"), "{error}");
    }
}
