//! At-least-once checkpoints: barriers are counted and block nothing (spec 10.4).

use std::collections::{BTreeSet, VecDeque};

use super::barrier_handler::CheckpointBarrierHandler;
use super::effect::{AlignmentMetrics, ChannelNotOpen, CheckpointEffect, CheckpointFailureReason};
use super::options::CheckpointBarrier;
use crate::CheckpointId;

/// Maximum number of checkpoints for which some, but not all barriers have arrived.
pub const MAX_CHECKPOINTS_TO_TRACK: usize = 50;

/// Triggers a checkpoint when its barriers have arrived on all channels. Records behind a barrier are
/// processed before that, so they may be processed twice after a recovery.
///
/// Channels and times are those of [`CheckpointBarrierHandler`](super::CheckpointBarrierHandler).
/// Announcements are no events for the tracker.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CheckpointBarrierTracker<S> {
    /// True if a channel that ends counts as one whose barrier arrived, false if its end aborts all
    /// pending checkpoints.
    checkpoints_after_finish: bool,
    /// Channels that have not ended.
    open: BTreeSet<usize>,
    /// Newest checkpoint of a barrier or a cancel marker.
    latest: Option<CheckpointId>,
    /// Checkpoints that wait for barriers, ascending. Invariant: at most
    /// [`MAX_CHECKPOINTS_TO_TRACK`], none newer than `latest`, and none complete.
    pending: VecDeque<BarrierCount<S>>,
}

/// A checkpoint whose barriers are counted.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct BarrierCount<S> {
    id: CheckpointId,
    /// First barrier and the time of its arrival; `None` once the checkpoint is aborted.
    begun: Option<(CheckpointBarrier<S>, i64)>,
    /// Channels that were open when the first barrier or marker arrived, and that have delivered
    /// neither, nor ended.
    missing: BTreeSet<usize>,
}

type Effects<S> = Vec<CheckpointEffect<S>>;

impl<S: Clone> CheckpointBarrierTracker<S> {
    /// Creates the tracker of a task with the channels `0..num_channels`.
    #[must_use]
    pub fn new(num_channels: usize, checkpoints_after_finish: bool) -> Self {
        Self {
            checkpoints_after_finish,
            open: (0..num_channels).collect(),
            latest: None,
            pending: VecDeque::new(),
        }
    }

    /// Handles a barrier that was read from a channel.
    pub fn on_barrier(
        &mut self,
        channel: usize,
        barrier: &CheckpointBarrier<S>,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        if Some(barrier.id) > self.latest {
            self.begin(barrier.id, Some((barrier.clone(), now)));
        }
        Ok(self.count(channel, |id| id == barrier.id, now))
    }

    /// Handles a cancel marker: aborts its checkpoint and all older ones. Later barriers of that
    /// checkpoint are only counted.
    pub fn on_cancellation(
        &mut self,
        channel: usize,
        checkpoint: CheckpointId,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        let reason = CheckpointFailureReason::DeclinedOnCancellationBarrier;
        let mut effects = Vec::new();
        let older = self.pending.partition_point(|count| count.id < checkpoint);
        effects.extend(abort_begun(self.pending.drain(..older), reason));
        let abort = CheckpointEffect::AbortCheckpoint { checkpoint, reason };
        if Some(checkpoint) > self.latest {
            self.begin(checkpoint, None);
            effects.push(abort);
        } else if let Some(count) = self.pending.front_mut().filter(|count| count.id == checkpoint)
        {
            effects.extend(count.begun.take().map(|_| abort));
        }
        effects.extend(self.count(channel, |id| id == checkpoint, now));
        Ok(effects)
    }

    /// Handles the end of a channel.
    pub fn on_end_of_partition(
        &mut self,
        channel: usize,
        now: i64,
    ) -> Result<Effects<S>, ChannelNotOpen> {
        self.check_open(channel)?;
        self.open.remove(&channel);
        if self.checkpoints_after_finish {
            return Ok(self.count(channel, |_| true, now));
        }
        Ok(self.abort_all(CheckpointFailureReason::InputEndOfStream))
    }

    /// Triggers a checkpoint of a task whose producers have all finished, at the coordinator's
    /// request: the barrier counts as delivered by all channels.
    pub fn trigger(&mut self, barrier: &CheckpointBarrier<S>, now: i64) -> Effects<S> {
        if Some(barrier.id) > self.latest {
            self.begin(barrier.id, Some((barrier.clone(), now)));
        }
        let found = self.pending.iter_mut().find(|count| count.id == barrier.id);
        found.into_iter().for_each(|count| count.missing.clear());
        self.take_complete(now)
    }

    /// Aborts a checkpoint that the coordinator gave up. Its barriers are only counted from now on; one
    /// that has not begun never will. Ignored if it is over.
    pub fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
    ) -> Effects<S> {
        let abort = CheckpointEffect::AbortCheckpoint { checkpoint, reason };
        if Some(checkpoint) > self.latest {
            self.begin(checkpoint, None);
            // No barrier will come if all channels have ended.
            self.pending.retain(|count| !count.missing.is_empty());
            return vec![abort];
        }
        let pending = self.pending.iter_mut().find(|count| count.id == checkpoint);
        let begun = pending.and_then(|count| count.begun.take());
        begun.map(|_| abort).into_iter().collect()
    }

    /// Returns the handler of the same channels for checkpoints exactly once, before any barrier was counted.
    /// Barriers of a checkpoint that was cancelled only have their channels resumed.
    #[must_use]
    pub fn to_handler(&self) -> CheckpointBarrierHandler<S> {
        let (open, latest) = (self.open.clone(), self.latest);
        CheckpointBarrierHandler::continuing(open, latest, self.checkpoints_after_finish)
    }

    /// Ends the tracker: aborts all pending checkpoints.
    pub fn close(mut self) -> Effects<S> {
        self.abort_all(CheckpointFailureReason::Closed)
    }

    /// The newest checkpoint that the tracker has heard of.
    #[must_use]
    pub const fn latest_checkpoint(&self) -> Option<CheckpointId> {
        self.latest
    }

    /// Checkpoints that wait for barriers, ascending. Aborted ones are among them.
    pub fn pending_checkpoints(&self) -> impl ExactSizeIterator<Item = CheckpointId> {
        self.pending.iter().map(|count| count.id)
    }

    /// Number of channels that have not ended.
    #[must_use]
    pub fn num_open_channels(&self) -> usize {
        self.open.len()
    }

    fn check_open(&self, channel: usize) -> Result<(), ChannelNotOpen> {
        if self.open.contains(&channel) { Ok(()) } else { Err(ChannelNotOpen { channel }) }
    }

    /// Begins to count a checkpoint that is newer than all others.
    fn begin(&mut self, id: CheckpointId, begun: Option<(CheckpointBarrier<S>, i64)>) {
        self.latest = Some(id);
        self.pending.push_back(BarrierCount { id, begun, missing: self.open.clone() });
        if self.pending.len() > MAX_CHECKPOINTS_TO_TRACK {
            self.pending.pop_front();
        }
    }

    /// Counts a channel for the pending checkpoints of these ids.
    fn count(&mut self, channel: usize, of: impl Fn(CheckpointId) -> bool, now: i64) -> Effects<S> {
        for count in self.pending.iter_mut().filter(|count| of(count.id)) {
            count.missing.remove(&channel);
        }
        self.take_complete(now)
    }

    /// Takes out the newest complete checkpoint and all older ones. Triggers it unless it is aborted.
    fn take_complete(&mut self, now: i64) -> Effects<S> {
        let Some(newest) = self.pending.iter().rposition(|count| count.missing.is_empty()) else {
            return Vec::new();
        };
        let complete = self.pending.drain(..=newest).next_back();
        let Some((barrier, first)) = complete.and_then(|count| count.begun) else {
            return Vec::new();
        };
        let metrics = AlignmentMetrics::of(&barrier, first, now);
        let checkpoint = barrier.id;
        vec![
            CheckpointEffect::TriggerCheckpoint(barrier),
            CheckpointEffect::AllBarriersReceived { checkpoint, metrics },
        ]
    }

    fn abort_all(&mut self, reason: CheckpointFailureReason) -> Effects<S> {
        abort_begun(self.pending.drain(..), reason).collect()
    }
}

/// Reports the checkpoints that are not aborted yet.
fn abort_begun<S>(
    counts: impl Iterator<Item = BarrierCount<S>>,
    reason: CheckpointFailureReason,
) -> impl Iterator<Item = CheckpointEffect<S>> {
    let begun = counts.filter(|count| count.begun.is_some());
    begun.map(move |count| CheckpointEffect::AbortCheckpoint { checkpoint: count.id, reason })
}
