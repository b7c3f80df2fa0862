//! Records that a broker of Apache Kafka cannot take.

use super::codec_error::CodecError;
use super::event::MetadataEvent;
use super::log::MetadataEventRecord;
use crate::error::RemoteStorageError;

/// Why a record of the metadata topic is no event that every broker takes.
///
/// The metadata thread of a JVM broker ends at such a record, for every partition whose events share
/// the metadata partition. This crate passes over it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoisonReason {
    /// The value is null.
    #[error("the value is null")]
    Tombstone,
    /// The value is no event.
    #[error("the value is no event of the metadata topic")]
    Undecodable(#[from] CodecError),
    /// The value is an event that no broker may publish.
    #[error("no broker may publish this event")]
    Unpublishable(#[source] RemoteStorageError),
}

impl MetadataEventRecord {
    /// The record's event.
    ///
    /// # Errors
    ///
    /// Why a broker of Apache Kafka would stop at this record. The record alone is looked at: an
    /// event that does not fit what came before it is none of these, it is dropped and stops nobody.
    pub fn event(&self) -> Result<MetadataEvent, PoisonReason> {
        if self.tombstone {
            return Err(PoisonReason::Tombstone);
        }
        let event = MetadataEvent::decode(&self.payload)?;
        match event.check_publishable() {
            Ok(()) => Ok(event),
            Err(error) => Err(PoisonReason::Unpublishable(error)),
        }
    }
}
