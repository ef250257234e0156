//! Routing records to subpartitions (spec 5).

mod arrow;
mod bytes;
mod emitted;
mod flusher;
mod pages;
mod state;
mod stream;
mod timeout;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;
pub use emitted::Emitted;
pub use timeout::BufferTimeout;

pub(crate) use flusher::OutputFlusher;

use std::ops::Range;

use headgate_protocol::DataType;
use headgate_record::{Event, SplitMix64};

use crate::error::{ExchangeError, Result};
use crate::partition::ResultPartition;
use crate::random::random;

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

    /// The subpartitions.
    fn targets(self, partition: &ResultPartition) -> Range<usize> {
        match self {
            Self::One(index) => index..index + 1,
            Self::All => 0..partition.num_subpartitions(),
        }
    }

    /// Where its open buffer is among those of a writer: behind those of the subpartitions is the one
    /// that goes to all of them.
    fn slot(self, partition: &ResultPartition) -> usize {
        match self {
            Self::One(index) => index,
            Self::All => partition.num_subpartitions(),
        }
    }

    /// Whether somebody may still read what is written to it.
    fn is_wanted(self, partition: &ResultPartition) -> bool {
        let mut targets = partition.subpartitions()[self.targets(partition)].iter();
        targets.any(|subpartition| !subpartition.is_released())
    }
}

/// Appends an event to every subpartition; uses no pool segment, yet must fit one, since nothing
/// larger crosses a connection.
fn broadcast_event(partition: &ResultPartition, event: &Event, data_type: DataType) -> Result<()> {
    let overtakes_or_blocks = data_type.has_priority() || data_type.blocks_upstream();
    if overtakes_or_blocks && partition.kind().is_stored() {
        return Err(ExchangeError::State(
            "a blocking or hybrid partition takes no barrier and no event with priority: what is on \
             disk cannot be overtaken",
        ));
    }
    let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
    let (size, limit) = (bytes.len() as u64, partition.segment_size() as u64);
    if size > limit {
        return Err(ExchangeError::EventTooLarge { size, limit });
    }
    for subpartition in partition.subpartitions() {
        subpartition.add_event(bytes.clone(), data_type);
    }
    Ok(())
}

/// Choices for `random_emit` that no other writer makes.
fn random_choices() -> Result<SplitMix64> {
    Ok(SplitMix64::new(u64::from_le_bytes(random()?)))
}
