//! Routing records to subpartitions (spec 5).

mod arrow;
mod bytes;
mod stream;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;

use headgate_protocol::DataType;
use headgate_record::Event;

use crate::error::{ExchangeError, Result};
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

/// Appends an event to every subpartition; uses no pool segment, yet must fit one, since nothing
/// larger crosses a connection.
fn broadcast_event(partition: &ResultPartition, event: &Event) -> Result<()> {
    let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
    let (size, limit) = (bytes.len() as u64, partition.segment_size() as u64);
    if size > limit {
        return Err(ExchangeError::EventTooLarge { size, limit });
    }
    for subpartition in partition.subpartitions() {
        subpartition.add_event(bytes.clone(), DataType::EventBuffer);
    }
    Ok(())
}
