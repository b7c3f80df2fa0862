//! How far a manager has come with an assigned metadata partition.

/// How far the replay of one assigned metadata partition has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPartitionReadiness {
    /// The metadata partition.
    pub partition: i32,
    /// Every record up to this offset was applied or does not exist; −1 when nothing was.
    pub applied_offset: i64,
    /// The high-water mark at the time of the assignment, exclusive; `None` while it is unknown.
    pub target_offset: Option<i64>,
    /// Whether queries are answered. Once true it stays so for the assignment, however far the log
    /// grows: an empty and a fully expired partition are ready at once.
    pub ready: bool,
}

impl MetadataPartitionReadiness {
    /// How many offsets are missing to the mark; `None` while it is unknown.
    pub fn lag(&self) -> Option<i64> {
        let target = self.target_offset?;
        Some((target - 1 - self.applied_offset).max(0))
    }
}
