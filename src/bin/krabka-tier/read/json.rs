//! Records as JSON.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use krabka_remote_storage::index::{Batch, DEFAULT_MAX_DECOMPRESSED_BYTES};
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::Values;
use crate::failure::Failure;
use crate::output::Output;

/// A record, with the fields and the order of the project's test data.
#[derive(Serialize)]
struct JsonRecord<'a> {
    offset: i64,
    /// −1 when unknown.
    leader_epoch: i32,
    timestamp_ms: i64,
    timestamp_type: &'static str,
    key: Option<Hex<'a>>,
    /// −1 for a null value.
    value_len: i64,
    value_sha256: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(Cow<'a, str>, Option<Hex<'a>>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Null,
    Text(Cow<'a, str>),
    Hex(Hex<'a>),
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Writes the records of a batch from an offset on; those of a control batch are none.
pub(super) fn write(
    batch: &Batch<'_>,
    from: i64,
    values: Option<Values>,
    output: &mut Output,
) -> Result<(), Failure> {
    if (0..2).contains(&batch.magic()) {
        return Err(Failure::Refused(format!(
            "the records up to offset {} are in the format of brokers before 0.11 (magic {}), which is \
             not decoded: --format raw reads them as they are",
            batch.last_offset()?,
            batch.magic()
        )));
    }
    let header = batch.header()?;
    if header.is_control() {
        return Ok(());
    }
    let records = batch.records(DEFAULT_MAX_DECOMPRESSED_BYTES)?;
    for record in records.iter().filter(|record| record.offset >= from) {
        let shown = |values| match (record.value, values) {
            (None, _) => Value::Null,
            (Some(bytes), Values::Hex) => Value::Hex(Hex(bytes)),
            (Some(bytes), Values::Text) => Value::Text(String::from_utf8_lossy(bytes)),
        };
        output.json(&JsonRecord {
            offset: record.offset,
            leader_epoch: header.partition_leader_epoch(),
            timestamp_ms: record.timestamp,
            timestamp_type: header.timestamp_type().as_str(),
            key: record.key.map(Hex),
            value_len: record
                .value
                .map_or(-1, |value| i64::try_from(value.len()).unwrap_or(i64::MAX)),
            value_sha256: record.value.map(sha256),
            headers: record
                .headers()
                .map(|header| (header.key_text(), header.value.map(Hex)))
                .collect(),
            value: values.map(shown),
        })?;
    }
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", Hex(&Sha256::digest(bytes)));
    text
}
