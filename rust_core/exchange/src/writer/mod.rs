//! Routing records to subpartitions (spec 5).

mod arrow;
mod bytes;
mod stream;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;

use headgate_record::Event;

use crate::error::{ExchangeError, Result};
use crate::event::data_type_of;
use crate::partition::ResultPartition;

/// Appends an event to every subpartition; uses no pool segment, yet must fit one, since nothing
/// larger crosses a connection.
fn broadcast_event(partition: &ResultPartition, event: &Event) -> Result<()> {
    let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
    let (size, limit) = (bytes.len() as u64, partition.segment_size() as u64);
    if size > limit {
        return Err(ExchangeError::EventTooLarge { size, limit });
    }
    let data_type = data_type_of(event, false);
    for subpartition in partition.subpartitions() {
        subpartition.add_event(bytes.clone(), data_type);
    }
    Ok(())
}
