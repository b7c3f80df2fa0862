//! temp
use crate::metadata::dump::*;
use std::path::Path;
use uuid::Uuid;
#[allow(missing_docs, dead_code)]
pub const SNAPSHOT_FILE_NAME: &str = "snapshot";
#[allow(missing_docs)]
pub struct Snapshot {
    pub topic_id: Option<Uuid>,
    pub committed_offsets: Vec<i64>,
    pub dump: RlmmCacheDump,
}
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("x")]
    Io(#[from] std::io::Error),
    #[error("y")]
    Other,
}
impl Snapshot {
    pub fn load(_: &Path) -> Result<Option<Self>, SnapshotError> {
        Ok(None)
    }
}
pub struct SnapshotEncoder;
impl SnapshotEncoder {
    pub fn new(_: Option<Uuid>, _: &[i64]) -> Self {
        Self
    }
    pub fn partition(&mut self, _: &PartitionDump) {}
    pub fn write_atomic(self, _: &Path) -> Result<(), SnapshotError> {
        Ok(())
    }
}
