//! Routing records to subpartitions (spec 5).

mod arrow;
mod bytes;
mod flusher;
mod pages;
mod stream;
mod timeout;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;
pub use timeout::BufferTimeout;

pub(crate) use flusher::OutputFlusher;

use headgate_protocol::DataType;
use headgate_record::Event;

use crate::error::{ExchangeError, Result};
use crate::partition::ResultPartition;

/// Which subpartitions something goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    One(usize),
    All,
}

impl Lane {
    /// Whom its segments count for, if for one.
    fn subpartition(self) -> Option<usize> {
        match self {
            Self::One(index) => Some(index),
            Self::All => None,
        }
    }
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
