//! Exactly-once checkpoints: aligned, unaligned, and aligned until a timeout (spec 10.2, 10.3).

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::effect::{
    AlignmentMetrics, ChannelNotOpen, CheckpointEffect, CheckpointFailureReason, milliseconds,
};
use super::options::{Alignment, CheckpointBarrier};
use crate::{CheckpointId, Sequence};

/// Decides when a task takes its snapshot, and what its channels do until then. One checkpoint is
/// pending at a time: a newer one subsumes it.
///
/// Channels are numbered across all gates of the task. `now` is in milliseconds since 1970, by the
/// clock that stamps barriers. Barriers of [`Alignment::AtLeastOnce`] are for
/// [`CheckpointBarrierTracker`](super::CheckpointBarrierTracker) only. `EndOfData` is no event for
/// the handler: the channel still delivers barriers until its `EndOfPartition`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CheckpointBarrierHandler<S> {
    /// True if a channel that ends counts as one whose barrier arrived, false if its end aborts the
    /// pending checkpoint.
    checkpoints_after_finish: bool,
    /// Channels that have not ended.
    open: BTreeSet<usize>,
    /// Newest checkpoint of a barrier, an announcement or a cancel marker. Invariant: while a
    /// checkpoint is pending, it is this one. Otherwise this one was completed or aborted.
    latest: Option<CheckpointId>,
    pending: Option<Pending<S>>,
    /// Checkpoint and time of the armed timer. Invariant: between two events it is the deadline of
    /// `pending`, while that is aligned.
    timer: Option<(CheckpointId, i64)>,
    /// Duration of the last alignment, in milliseconds; 0 if it was aborted.
    alignment_duration: u64,
}

/// A checkpoint that was neither completed nor aborted.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Pending<S> {
    /// First barrier, or the first announcement of one.
    barrier: CheckpointBarrier<S>,
    /// Channels that were open when the checkpoint began, and that have neither delivered its barrier
    /// nor ended. The checkpoint is complete when this is empty, so each channel counts once.
    missing: BTreeSet<usize>,
    /// Channels whose producers stopped behind the barrier. Invariant: they are resumed when the
    /// checkpoint is completed or aborted, and no other channel is blocked.
    blocked: BTreeSet<usize>,
    /// Time at which the first channel was counted.
    first: Option<i64>,
    state: State,
}

/// The states of Flink's handler, for a pending checkpoint.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    /// Barriers wait for each other. The task has not taken its snapshot.
    Aligned {
        /// Barriers that wait behind data in their channels.
        announced: BTreeMap<usize, Sequence>,
        /// True once a barrier was read.
        has_barrier: bool,
    },
    /// The timeout has passed before the first barrier was read. Announced barriers overtake.
    WaitingForFirstBarrierUnaligned,
    /// The task has taken its snapshot, and channels persist their data in flight.
    CollectingBarriersUnaligned,
}

type Effects<S> = Vec<CheckpointEffect<S>>;

impl<S: Clone> CheckpointBarrierHandler<S> {
    /// Creates the handler of a task with the channels `0..num_channels`.
    #[must_use]
    pub fn new(num_channels: usize, checkpoints_after_finish: bool) -> Self {
        Self::continuing((0..num_channels).collect(), None, checkpoints_after_finish)
    }

    /// Creates the handler of a task with these open channels, and no checkpoint newer than `latest`.
    pub(super) const fn continuing(
        open: BTreeSet<usize>,
        latest: Option<CheckpointId>,
        checkpoints_after_finish: bool,
    ) -> Self {
        Self {
            checkpoints_after_finish,
            open,
            latest,
            pending: None,
            timer: None,
            alignment_duration: 0,
        }
    }

    /// Handles a barrier that was read from a channel. A barrier of a checkpoint that is over only
    /// has its channel resumed.
    pub fn on_barrier(
        &mut self,
        channel: usize,
        barrier: &CheckpointBarrier<S>,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        let mut effects = Vec::new();
        let blocks = barrier.options.alignment.blocks_channel();
        if self.is_over(barrier.id) {
            effects.extend(blocks.then_some(CheckpointEffect::ResumeConsumption { channel }));
            return Ok(effects);
        }
        let mut pending = self.join(barrier, &mut effects);
        if blocks {
            effects.push(CheckpointEffect::BlockConsumption { channel });
            pending.blocked.insert(channel);
        }
        pending.count(channel, now);
        match &mut pending.state {
            State::Aligned { announced, has_barrier } => {
                announced.remove(&channel);
                *has_barrier = true;
                // A complete alignment needs no channel state, however late it is. An unaligned
                // barrier has overtaken data of its channel, even if it is the last one.
                let is_late = barrier.is_timed_out(now) && !pending.missing.is_empty();
                if !blocks || is_late {
                    self.time_out(&mut pending, &mut effects);
                }
            }
            State::WaitingForFirstBarrierUnaligned => {
                self.start_unaligned(&mut pending, &mut effects);
            }
            State::CollectingBarriersUnaligned => {}
        }
        self.settle(pending, now, &mut effects);
        Ok(effects)
    }

    /// Handles the announcement of a barrier that waits behind data in its channel. `sequence` is the
    /// number of the barrier.
    pub fn on_announcement(
        &mut self,
        channel: usize,
        sequence: Sequence,
        barrier: &CheckpointBarrier<S>,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        let mut effects = Vec::new();
        if self.is_over(barrier.id) {
            return Ok(effects);
        }
        let mut pending = self.join(barrier, &mut effects);
        if pending.missing.contains(&channel) {
            if let State::Aligned { announced, .. } = &mut pending.state {
                announced.insert(channel, sequence);
                if barrier.is_timed_out(now) {
                    self.time_out(&mut pending, &mut effects);
                }
            } else {
                effects.push(CheckpointEffect::ConvertToPriority { channel, sequence });
            }
        }
        self.settle(pending, now, &mut effects);
        Ok(effects)
    }

    /// Handles a cancel marker: aborts its checkpoint if that is pending, or has not begun. Barriers
    /// of that checkpoint that arrive later only have their channels resumed.
    pub fn on_cancellation(
        &mut self,
        channel: usize,
        checkpoint: CheckpointId,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        Ok(self.abort(checkpoint, CheckpointFailureReason::DeclinedOnCancellationBarrier))
    }

    /// Handles the end of a channel.
    pub fn on_end_of_partition(
        &mut self,
        channel: usize,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        self.open.remove(&channel);
        let mut effects = Vec::new();
        let Some(mut pending) = self.pending.take() else {
            return Ok(effects);
        };
        // The channel is gone: there is nothing to resume.
        pending.blocked.remove(&channel);
        if !self.checkpoints_after_finish {
            let checkpoint = pending.barrier.id;
            self.pending = Some(pending);
            let reason = CheckpointFailureReason::InputEndOfStream;
            self.abort_pending(checkpoint, reason, &mut effects);
            return Ok(effects);
        }
        pending.count(channel, now);
        if let State::Aligned { announced, .. } = &mut pending.state {
            announced.remove(&channel);
        }
        self.settle(pending, now, &mut effects);
        Ok(effects)
    }

    /// Handles the timer of a checkpoint. Ignored if that is over.
    pub fn on_timer(&mut self, checkpoint: CheckpointId, now: i64) -> Effects<S> {
        let mut effects = Vec::new();
        self.timer.take_if(|(armed, _)| *armed == checkpoint);
        let is_this = |pending: &mut Pending<S>| pending.barrier.id == checkpoint;
        if let Some(mut pending) = self.pending.take_if(is_this) {
            self.time_out(&mut pending, &mut effects);
            self.settle(pending, now, &mut effects);
        }
        effects
    }

    /// Triggers a checkpoint of a task whose producers have all finished, at the coordinator's
    /// request: the barrier counts as delivered by all channels, and blocks none.
    pub fn trigger(&mut self, barrier: &CheckpointBarrier<S>, now: i64) -> Effects<S> {
        let mut effects = Vec::new();
        if self.is_over(barrier.id) {
            return effects;
        }
        let mut pending = self.join(barrier, &mut effects);
        pending.missing.clear();
        pending.first.get_or_insert(now);
        let unaligned = barrier.options.alignment == Alignment::Unaligned;
        if unaligned && matches!(pending.state, State::Aligned { .. }) {
            self.start_unaligned(&mut pending, &mut effects);
        }
        self.settle(pending, now, &mut effects);
        effects
    }

    /// Aborts a checkpoint that the driver cannot go on with, or that the coordinator gave up. One that
    /// has not begun never will. Ignored if it is over.
    pub fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
    ) -> Effects<S> {
        let mut effects = Vec::new();
        if !self.is_over(checkpoint) {
            self.latest = Some(checkpoint);
            self.abort_pending(checkpoint, reason, &mut effects);
        }
        effects
    }

    /// Ends the handler: aborts the pending checkpoint.
    pub fn close(mut self) -> Effects<S> {
        let mut effects = Vec::new();
        if let Some(pending) = &self.pending {
            let checkpoint = pending.barrier.id;
            self.abort_pending(checkpoint, CheckpointFailureReason::Closed, &mut effects);
        }
        effects
    }

    /// Returns true if no barrier of this checkpoint, or of an older one, is awaited.
    ///
    /// # Errors
    /// The checkpoint has not begun.
    pub fn all_barriers_received(
        &self,
        checkpoint: CheckpointId,
    ) -> Result<bool, CheckpointNotStarted> {
        if self.open.is_empty() || Some(checkpoint) < self.latest {
            return Ok(true);
        }
        if Some(checkpoint) > self.latest {
            return Err(CheckpointNotStarted { checkpoint, latest: self.latest });
        }
        Ok(self.pending.is_none())
    }

    /// The newest checkpoint that the handler has heard of.
    #[must_use]
    pub const fn latest_checkpoint(&self) -> Option<CheckpointId> {
        self.latest
    }

    /// Returns true while a checkpoint waits for barriers.
    #[must_use]
    pub const fn is_checkpoint_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Number of channels that have not ended.
    #[must_use]
    pub fn num_open_channels(&self) -> usize {
        self.open.len()
    }

    /// Milliseconds since the current alignment began, or that the last one took; 0 if it was aborted.
    #[must_use]
    pub fn alignment_duration(&self, now: i64) -> u64 {
        let first = self.pending.as_ref().and_then(|pending| pending.first);
        first.map_or(self.alignment_duration, |first| milliseconds(first, now))
    }

    fn check_open(&self, channel: usize) -> Result<(), ChannelNotOpen> {
        if self.open.contains(&channel) { Ok(()) } else { Err(ChannelNotOpen { channel }) }
    }

    /// Returns true for a checkpoint that was completed or aborted, or that a newer one replaced.
    fn is_over(&self, checkpoint: CheckpointId) -> bool {
        Some(checkpoint) < self.latest || Some(checkpoint) == self.latest && self.pending.is_none()
    }

    /// Takes the pending checkpoint of a barrier, or begins it and aborts an older one.
    /// [`settle`](Self::settle) must follow.
    fn join(&mut self, barrier: &CheckpointBarrier<S>, effects: &mut Effects<S>) -> Pending<S> {
        if let Some(pending) = self.pending.take_if(|pending| pending.barrier.id == barrier.id) {
            return pending;
        }
        if let Some(older) = &self.pending {
            let older = older.barrier.id;
            self.abort_pending(older, CheckpointFailureReason::Subsumed, effects);
        }
        self.latest = Some(barrier.id);
        Pending {
            barrier: barrier.clone(),
            missing: self.open.clone(),
            blocked: BTreeSet::new(),
            first: None,
            state: State::Aligned { announced: BTreeMap::new(), has_barrier: false },
        }
    }

    /// Puts the pending checkpoint back, or completes it.
    fn settle(&mut self, mut pending: Pending<S>, now: i64, effects: &mut Effects<S>) {
        if !pending.missing.is_empty() {
            self.pending = Some(pending);
            return self.settle_timer(effects);
        }
        match pending.state {
            State::Aligned { .. } => {
                let checkpoint = pending.barrier.id;
                if pending.barrier.options.alignment.needs_channel_state() {
                    effects.push(CheckpointEffect::StartChannelState { checkpoint });
                }
                effects.push(CheckpointEffect::TriggerCheckpoint(pending.barrier.clone()));
            }
            State::WaitingForFirstBarrierUnaligned => self.start_unaligned(&mut pending, effects),
            State::CollectingBarriersUnaligned => {}
        }
        let checkpoint = pending.barrier.id;
        self.release(&pending, checkpoint, effects);
        let metrics = AlignmentMetrics::of(&pending.barrier, pending.first.unwrap_or(now), now);
        self.alignment_duration = metrics.alignment_duration;
        effects.push(CheckpointEffect::AllBarriersReceived { checkpoint, metrics });
        self.settle_timer(effects);
    }

    /// Drops the pending checkpoint, if there is one, and reports `checkpoint` as aborted: the pending
    /// one, or a newer one.
    fn abort_pending(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
        effects: &mut Effects<S>,
    ) {
        if let Some(pending) = self.pending.take() {
            self.release(&pending, checkpoint, effects);
        }
        self.alignment_duration = 0;
        effects.push(CheckpointEffect::AbortCheckpoint { checkpoint, reason });
        self.settle_timer(effects);
    }

    /// Undoes what the checkpoint asked of its channels.
    fn release(&self, pending: &Pending<S>, checkpoint: CheckpointId, effects: &mut Effects<S>) {
        if pending.state == State::CollectingBarriersUnaligned {
            let stop = |channel: &usize| CheckpointEffect::StopPersisting {
                channel: *channel,
                checkpoint,
            };
            effects.extend(self.open.iter().map(stop));
        }
        let resume = |channel: &usize| CheckpointEffect::ResumeConsumption { channel: *channel };
        effects.extend(pending.blocked.iter().map(resume));
    }

    /// Lets all announced barriers overtake. The snapshot is taken with the first barrier. Ignored if
    /// the alignment was given up before.
    fn time_out(&self, pending: &mut Pending<S>, effects: &mut Effects<S>) {
        let State::Aligned { announced, has_barrier } = &pending.state else { return };
        for (channel, sequence) in announced {
            let (channel, sequence) = (*channel, *sequence);
            effects.push(CheckpointEffect::ConvertToPriority { channel, sequence });
        }
        if *has_barrier {
            self.start_unaligned(pending, effects);
        } else {
            pending.state = State::WaitingForFirstBarrierUnaligned;
        }
    }

    /// Takes the snapshot before all barriers have arrived.
    fn start_unaligned(&self, pending: &mut Pending<S>, effects: &mut Effects<S>) {
        pending.state = State::CollectingBarriersUnaligned;
        let checkpoint = pending.barrier.id;
        effects.push(CheckpointEffect::StartChannelState { checkpoint });
        let start =
            |channel: &usize| CheckpointEffect::StartPersisting { channel: *channel, checkpoint };
        effects.extend(self.open.iter().map(start));
        let barrier = pending.barrier.clone().into_unaligned();
        effects.push(CheckpointEffect::TriggerCheckpoint(barrier));
    }

    /// Arms the timer for the deadline of an aligned checkpoint, or disarms it.
    fn settle_timer(&mut self, effects: &mut Effects<S>) {
        let aligned =
            self.pending.as_ref().filter(|pending| matches!(pending.state, State::Aligned { .. }));
        let deadline =
            aligned.and_then(|pending| Some((pending.barrier.id, pending.barrier.deadline()?)));
        if self.timer == deadline {
            return;
        }
        self.timer = deadline;
        effects.push(match deadline {
            Some((checkpoint, at)) => CheckpointEffect::ArmTimer { checkpoint, at },
            None => CheckpointEffect::CancelTimer,
        });
    }
}

impl<S> Pending<S> {
    /// Counts a channel that delivered its barrier or ended.
    fn count(&mut self, channel: usize, now: i64) {
        self.missing.remove(&channel);
        self.first.get_or_insert(now);
    }
}

/// A question about a checkpoint of which no barrier arrived.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("checkpoint {checkpoint} has not begun, the newest one is {latest:?}")]
pub struct CheckpointNotStarted {
    /// Checkpoint that was asked about.
    pub checkpoint: CheckpointId,
    /// Newest checkpoint.
    pub latest: Option<CheckpointId>,
}
