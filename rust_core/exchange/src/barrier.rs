//! Checkpoint barriers as the state machines see them, and on the wire.

use bytes::Bytes;
use headgate_protocol::{Alignment, CheckpointBarrier, CheckpointId, CheckpointOptions};
use headgate_record::Event;
use headgate_record::event::{self, AlignmentType, SnapshotType};

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
        Alignment::AtLeastOnce => (AlignmentType::AtLeastOnce, NEVER),
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
#[must_use]
pub(crate) fn of_event(barrier: event::CheckpointBarrier) -> Barrier {
    let options = barrier.options;
    let alignment = match options.alignment {
        AlignmentType::Aligned if options.is_timeoutable() => {
            Alignment::Timeoutable { timeout: options.aligned_timeout.unsigned_abs() }
        }
        AlignmentType::Aligned | AlignmentType::ForcedAligned => Alignment::Aligned,
        AlignmentType::Unaligned => Alignment::Unaligned,
        AlignmentType::AtLeastOnce => Alignment::AtLeastOnce,
    };
    let snapshot = options.location.unwrap_or_default();
    let options = CheckpointOptions { alignment, snapshot };
    Barrier { id: CheckpointId(barrier.id), timestamp: barrier.timestamp, options }
}
