//! Routing records to subpartitions (spec 5).

mod arrow;
mod bytes;
mod stream;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;

use headgate_protocol::DataType;
use headgate_record::{Event, EventError};

use crate::partition::ResultPartition;

/// What a writer has emitted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Rows or records, counted once for each subpartition that gets them.
    pub rows: u64,
    /// Bytes in buffers, likewise.
    pub bytes: u64,
    /// Buffers, likewise.
    pub buffers: u64,
}

/// Appends an event to every subpartition; uses no pool segment.
fn broadcast_event(partition: &ResultPartition, event: &Event) -> Result<(), EventError> {
    let bytes = event.encode()?;
    for subpartition in partition.subpartitions() {
        subpartition.add_event(bytes.clone(), DataType::EventBuffer);
    }
    Ok(())
}
