//! The barriers that a reader meets: handled exactly once, or counted for at least once (spec 10.2 to 10.4).

use bytes::Bytes;
use headgate_protocol::{
    Alignment, ChannelNotOpen, CheckpointBarrierHandler, CheckpointBarrierTracker,
    CheckpointEffect, CheckpointFailureReason, CheckpointId, Sequence,
};

use crate::barrier::Barrier;
use crate::error::{ExchangeError, Result};
use crate::gate::{CheckpointedChannels, CheckpointingMode, CheckpointingOptions};

type Effects = Vec<CheckpointEffect<Bytes>>;

/// The state machine of one reader.
pub(super) enum Barriers {
    ExactlyOnce(CheckpointBarrierHandler<Bytes>),
    AtLeastOnce(CheckpointBarrierTracker<Bytes>),
}

fn not_open(error: ChannelNotOpen) -> ExchangeError {
    ExchangeError::Event(error.to_string())
}

impl Barriers {
    /// The barriers of these channels; no checkpoint has begun.
    pub(super) fn new(
        options: CheckpointingOptions,
        channels: &CheckpointedChannels,
        now: i64,
    ) -> Self {
        let (count, after_finish) = (channels.count, options.after_finish);
        let mut new = match options.mode {
            CheckpointingMode::ExactlyOnce => {
                Self::ExactlyOnce(CheckpointBarrierHandler::new(count, after_finish))
            }
            CheckpointingMode::AtLeastOnce => {
                Self::AtLeastOnce(CheckpointBarrierTracker::new(count, after_finish))
            }
        };
        for channel in &channels.ended {
            let effects = new.on_end_of_partition(*channel, now);
            debug_assert!(effects.is_ok_and(|effects| effects.is_empty()), "none is pending");
        }
        new
    }

    /// Handles a barrier.
    ///
    /// # Errors
    /// [`ExchangeError::Event`]: the channel has ended, or the barrier is of the other mode. A counted one
    /// would have the checkpoint hold records twice where each must count once; one that blocks its channel or
    /// overtakes records must be more than counted.
    pub(super) fn on_barrier(
        &mut self,
        channel: usize,
        barrier: &Barrier,
        now: i64,
    ) -> Result<Effects> {
        let is_counted = barrier.options.alignment == Alignment::AtLeastOnce;
        match self {
            Self::ExactlyOnce(handler) if !is_counted => {
                handler.on_barrier(channel, barrier, now).map_err(not_open)
            }
            Self::AtLeastOnce(tracker) if is_counted => {
                tracker.on_barrier(channel, barrier, now).map_err(not_open)
            }
            Self::ExactlyOnce(_) => Err(of_other_mode(barrier, "at least", "exactly")),
            Self::AtLeastOnce(_) => Err(of_other_mode(barrier, "exactly", "at least")),
        }
    }

    /// Handles an announcement. Barriers that are only counted are never announced.
    pub(super) fn on_announcement(
        &mut self,
        channel: usize,
        sequence: Sequence,
        barrier: &Barrier,
        now: i64,
    ) -> Result<Effects> {
        match self {
            Self::ExactlyOnce(handler) => {
                handler.on_announcement(channel, sequence, barrier, now).map_err(not_open)
            }
            Self::AtLeastOnce(_) => Err(of_other_mode(barrier, "exactly", "at least")),
        }
    }

    /// Handles a cancel marker.
    pub(super) fn on_cancellation(
        &mut self,
        channel: usize,
        checkpoint: CheckpointId,
        now: i64,
    ) -> Result<Effects> {
        match self {
            Self::ExactlyOnce(handler) => handler.on_cancellation(channel, checkpoint),
            Self::AtLeastOnce(tracker) => tracker.on_cancellation(channel, checkpoint, now),
        }
        .map_err(not_open)
    }

    /// Handles the end of a channel.
    pub(super) fn on_end_of_partition(&mut self, channel: usize, now: i64) -> Result<Effects> {
        match self {
            Self::ExactlyOnce(handler) => handler.on_end_of_partition(channel, now),
            Self::AtLeastOnce(tracker) => tracker.on_end_of_partition(channel, now),
        }
        .map_err(not_open)
    }

    /// Handles the timer of a checkpoint.
    pub(super) fn on_timer(&mut self, checkpoint: CheckpointId, now: i64) -> Effects {
        match self {
            Self::ExactlyOnce(handler) => handler.on_timer(checkpoint, now),
            Self::AtLeastOnce(_) => unreachable!("a tracker arms no timer"),
        }
    }

    /// Aborts a checkpoint.
    pub(super) fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
    ) -> Effects {
        match self {
            Self::ExactlyOnce(handler) => handler.abort(checkpoint, reason),
            Self::AtLeastOnce(tracker) => tracker.abort(checkpoint, reason),
        }
    }
}

fn of_other_mode(barrier: &Barrier, of: &str, reads: &str) -> ExchangeError {
    let id = barrier.id;
    ExchangeError::Event(format!(
        "the barrier of checkpoint {id} is for {of} once, and the gate takes checkpoints for {reads} once"
    ))
}
