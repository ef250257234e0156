//! The barriers that a reader meets: handled exactly once, or counted for at least once (spec 10.2 to 10.4).

use bytes::Bytes;
use headgate_protocol::{
    Alignment, ChannelNotOpen, CheckpointBarrierHandler, CheckpointBarrierTracker,
    CheckpointEffect, CheckpointFailureReason, CheckpointId, Sequence,
};
use headgate_record::event::Barrier;

use crate::error::{ExchangeError, Result};
use crate::gate::CheckpointedChannels;

type Effects = Vec<CheckpointEffect<Bytes>>;

/// The state machine of one reader. The first barrier decides which one it is: at least once, barriers are only counted.
pub(super) struct Barriers {
    machine: Machine,
    /// True once a barrier was read or announced.
    is_decided: bool,
}

enum Machine {
    AtLeastOnce(CheckpointBarrierTracker<Bytes>),
    ExactlyOnce(CheckpointBarrierHandler<Bytes>),
}

fn not_open(error: ChannelNotOpen) -> ExchangeError {
    ExchangeError::Event(error.to_string())
}

impl Barriers {
    /// The barriers of these channels; no checkpoint has begun. With `after_finish` a channel that ends counts
    /// as one whose barrier arrived.
    pub(super) fn new(after_finish: bool, channels: &CheckpointedChannels, now: i64) -> Self {
        let tracker = CheckpointBarrierTracker::new(channels.count, after_finish);
        let mut new = Self { machine: Machine::AtLeastOnce(tracker), is_decided: false };
        for channel in &channels.ended {
            let effects = new.on_end_of_partition(*channel, now);
            debug_assert!(effects.is_ok_and(|effects| effects.is_empty()), "none is pending");
        }
        new
    }

    /// Returns the machine for a barrier.
    ///
    /// # Errors
    /// [`ExchangeError::Event`]: an earlier barrier was of the other kind. A counted one would have the
    /// checkpoint hold records twice where each must count once; one that blocks its channel or overtakes
    /// records must be more than counted.
    fn machine(&mut self, barrier: &Barrier) -> Result<&mut Machine> {
        let is_counted = barrier.options.alignment == Alignment::AtLeastOnce;
        if !std::mem::replace(&mut self.is_decided, true)
            && !is_counted
            && let Machine::AtLeastOnce(tracker) = &self.machine
        {
            self.machine = Machine::ExactlyOnce(tracker.to_handler());
        }
        match (&self.machine, is_counted) {
            (Machine::AtLeastOnce(_), false) => Err(of_other_kind(barrier, "exactly", "at least")),
            (Machine::ExactlyOnce(_), true) => Err(of_other_kind(barrier, "at least", "exactly")),
            _ => Ok(&mut self.machine),
        }
    }

    /// Handles a barrier.
    ///
    /// # Errors
    /// [`ExchangeError::Event`]: the channel has ended, or earlier barriers were of another kind.
    pub(super) fn on_barrier(
        &mut self,
        channel: usize,
        barrier: &Barrier,
        now: i64,
    ) -> Result<Effects> {
        match self.machine(barrier)? {
            Machine::AtLeastOnce(tracker) => tracker.on_barrier(channel, barrier, now),
            Machine::ExactlyOnce(handler) => handler.on_barrier(channel, barrier, now),
        }
        .map_err(not_open)
    }

    /// Handles an announcement.
    ///
    /// # Errors
    /// As [`on_barrier`](Self::on_barrier), or a barrier that is only counted, which needs no announcement.
    pub(super) fn on_announcement(
        &mut self,
        channel: usize,
        sequence: Sequence,
        barrier: &Barrier,
        now: i64,
    ) -> Result<Effects> {
        match self.machine(barrier)? {
            Machine::AtLeastOnce(_) => Err(ExchangeError::Event(format!(
                "the barrier of checkpoint {} is only counted, and was announced",
                barrier.id
            ))),
            Machine::ExactlyOnce(handler) => {
                handler.on_announcement(channel, sequence, barrier, now).map_err(not_open)
            }
        }
    }

    /// Handles a cancel marker.
    pub(super) fn on_cancellation(
        &mut self,
        channel: usize,
        checkpoint: CheckpointId,
        now: i64,
    ) -> Result<Effects> {
        match &mut self.machine {
            Machine::ExactlyOnce(handler) => handler.on_cancellation(channel, checkpoint),
            Machine::AtLeastOnce(tracker) => tracker.on_cancellation(channel, checkpoint, now),
        }
        .map_err(not_open)
    }

    /// Handles the end of a channel.
    pub(super) fn on_end_of_partition(&mut self, channel: usize, now: i64) -> Result<Effects> {
        match &mut self.machine {
            Machine::ExactlyOnce(handler) => handler.on_end_of_partition(channel, now),
            Machine::AtLeastOnce(tracker) => tracker.on_end_of_partition(channel, now),
        }
        .map_err(not_open)
    }

    /// Handles the timer of a checkpoint.
    pub(super) fn on_timer(&mut self, checkpoint: CheckpointId, now: i64) -> Effects {
        match &mut self.machine {
            Machine::ExactlyOnce(handler) => handler.on_timer(checkpoint, now),
            Machine::AtLeastOnce(_) => unreachable!("a tracker arms no timer"),
        }
    }

    /// Aborts a checkpoint.
    pub(super) fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
    ) -> Effects {
        match &mut self.machine {
            Machine::ExactlyOnce(handler) => handler.abort(checkpoint, reason),
            Machine::AtLeastOnce(tracker) => tracker.abort(checkpoint, reason),
        }
    }
}

fn of_other_kind(barrier: &Barrier, of: &str, reads: &str) -> ExchangeError {
    let id = barrier.id;
    ExchangeError::Event(format!(
        "the barrier of checkpoint {id} is for {of} once, and an earlier one was for {reads} once"
    ))
}
