//! The steps that a barrier handler asks its driver for.

use thiserror::Error;

use super::options::CheckpointBarrier;
use crate::{CheckpointId, Sequence};

/// A step for the driver. Steps must be carried out in the order in which they are returned, and
/// before the task reads more data.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum CheckpointEffect<S> {
    /// Remember that the producer of this channel has stopped behind the barrier. Data that the barrier
    /// overtook can still be read.
    BlockConsumption {
        /// Channel that delivered a barrier.
        channel: usize,
    },
    /// Let the producer of this channel continue behind the barrier.
    ResumeConsumption {
        /// Channel that delivered a barrier.
        channel: usize,
    },
    /// Let the barrier that this channel announced overtake the data before it.
    ConvertToPriority {
        /// Channel whose barrier was not read yet.
        channel: usize,
        /// Number of the barrier in its channel.
        sequence: Sequence,
    },
    /// Start the channel state of this checkpoint, before any data is added to it.
    StartChannelState {
        /// Checkpoint with data in flight.
        checkpoint: CheckpointId,
    },
    /// Add the channel's data in flight to the checkpoint. If the channel refuses, the driver aborts
    /// the channel state with [`Subsumed`](CheckpointFailureReason::Subsumed), carries out the
    /// other steps, and calls [`abort`](super::CheckpointBarrierHandler::abort).
    StartPersisting {
        /// Open channel.
        channel: usize,
        /// Checkpoint with data in flight.
        checkpoint: CheckpointId,
    },
    /// Add no further data of the channel to this checkpoint, or to an older one.
    StopPersisting {
        /// Open channel.
        channel: usize,
        /// Completed or aborted checkpoint.
        checkpoint: CheckpointId,
    },
    /// Send the barrier to all outputs and take the snapshot. The alignment is the one that the
    /// task's outputs begin with.
    TriggerCheckpoint(CheckpointBarrier<S>),
    /// The barriers of all channels have arrived: the input part of the channel state is complete.
    AllBarriersReceived {
        /// Completed checkpoint.
        checkpoint: CheckpointId,
        /// Durations of its alignment.
        metrics: AlignmentMetrics,
    },
    /// Decline the checkpoint, discard its channel state, and send a cancel marker to all outputs.
    AbortCheckpoint {
        /// Aborted checkpoint.
        checkpoint: CheckpointId,
        /// Cause for the coordinator.
        reason: CheckpointFailureReason,
    },
    /// Call [`on_timer`](super::CheckpointBarrierHandler::on_timer) at this time, or at once if it
    /// has passed. Replaces the timer that is armed.
    ArmTimer {
        /// Checkpoint that waits for barriers.
        checkpoint: CheckpointId,
        /// Milliseconds since 1970.
        at: i64,
    },
    /// Disarm the timer.
    CancelTimer,
}

/// Cause for which a task gives up a checkpoint.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
pub enum CheckpointFailureReason {
    /// The task's input was closed before all barriers arrived.
    #[error("the input was closed before all barriers of the checkpoint arrived")]
    Closed,
    /// A task before this one declined the checkpoint and sent a cancel marker.
    #[error("a task before this one declined the checkpoint")]
    DeclinedOnCancellationBarrier,
    /// The checkpoint took longer than the coordinator allows.
    #[error("the checkpoint expired before all barriers arrived")]
    Expired,
    /// A channel ended, and the job takes no checkpoints once tasks have finished.
    #[error(
        "a channel ended during the checkpoint, and checkpoints after the end of a task are off"
    )]
    InputEndOfStream,
    /// A barrier of a newer checkpoint arrived first.
    #[error("a newer checkpoint began before all barriers of this one arrived")]
    Subsumed,
    /// The task cannot take a snapshot yet.
    #[error("the task is not ready for a checkpoint")]
    TaskNotReady,
}

/// Durations of an alignment, in milliseconds. The driver counts the bytes that are read meanwhile, and
/// those of the channel state.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct AlignmentMetrics {
    /// Time from the first barrier to the last one.
    pub alignment_duration: u64,
    /// Time from the trigger of the checkpoint to its first barrier.
    pub start_delay: u64,
}

impl AlignmentMetrics {
    /// Durations of an alignment that began with a barrier at `first` and ends now.
    pub(super) fn of<S>(barrier: &CheckpointBarrier<S>, first: i64, now: i64) -> Self {
        Self {
            alignment_duration: milliseconds(first, now),
            start_delay: milliseconds(barrier.timestamp, first),
        }
    }
}

/// Time from one moment to another; 0 if the clocks disagree about their order.
pub(super) fn milliseconds(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

/// An event of a channel that has ended, or that the task does not have.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("channel {channel} has ended, or the task has no such channel")]
pub struct ChannelNotOpen {
    /// Index of the channel among all channels of the task.
    pub channel: usize,
}
