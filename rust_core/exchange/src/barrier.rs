//! Checkpoint barriers as the state machines see them, and on the wire.

use bytes::Bytes;
use headgate_protocol::{Alignment, CheckpointBarrier, CheckpointId, CheckpointOptions};
use headgate_record::Event;
use headgate_record::event::{self, AlignmentType, SnapshotType};

use crate::error::{ExchangeError, Result};

/// A barrier whose snapshot is described by bytes that only the task reads.
pub type Barrier = CheckpointBarrier<Bytes>;

/// Returns the event of a barrier. The description travels as the location of the snapshot.
#[must_use]
pub(crate) fn to_event(barrier: &Barrier) -> Event {
    const NEVER: i64 = event::CheckpointOptions::NO_TIMEOUT;
    let (alignment, aligned_timeout) = match barrier.options.alignment {
        Alignment::Aligned => (AlignmentType::Aligned, NEVER),
        Alignment::Timeoutable { timeout } => {
            (AlignmentType::Aligned, i64::try_from(timeout).unwrap_or(NEVER))
        }
        Alignment::Unaligned => (AlignmentType::Unaligned, NEVER),
    };
    let description = &barrier.options.snapshot;
    Event::CheckpointBarrier(event::CheckpointBarrier {
        id: barrier.id.0,
        timestamp: barrier.timestamp,
        options: event::CheckpointOptions {
            snapshot_type: SnapshotType::Checkpoint,
            location: (!description.is_empty()).then(|| description.clone()),
            alignment,
            aligned_timeout,
        },
    })
}

/// Returns the barrier of an event.
///
/// # Errors
/// [`ExchangeError::Event`] for a barrier that does not wait for the others and does not overtake
/// either: a checkpoint would hold records twice.
pub(crate) fn of_event(barrier: event::CheckpointBarrier) -> Result<Barrier> {
    let options = barrier.options;
    let alignment = match options.alignment {
        AlignmentType::Aligned if options.is_timeoutable() => {
            Alignment::Timeoutable { timeout: options.aligned_timeout.unsigned_abs() }
        }
        AlignmentType::Aligned | AlignmentType::ForcedAligned => Alignment::Aligned,
        AlignmentType::Unaligned => Alignment::Unaligned,
        AlignmentType::AtLeastOnce => {
            let id = barrier.id;
            let text =
                format!("the barrier of checkpoint {id} is of at least once, not exactly once");
            return Err(ExchangeError::Event(text));
        }
    };
    let snapshot = options.location.unwrap_or_default();
    let options = CheckpointOptions { alignment, snapshot };
    Ok(Barrier { id: CheckpointId(barrier.id), timestamp: barrier.timestamp, options })
}
