//! A task's driver: carries the handler's effects out, and checks that each is possible.

use std::collections::{BTreeMap, BTreeSet};

use headgate_protocol::{
    Alignment, AlignmentMetrics, CheckpointBarrier, CheckpointBarrierHandler, CheckpointEffect,
    CheckpointFailureReason, CheckpointId, CheckpointOptions, Sequence,
};

pub(super) type Effect = CheckpointEffect<()>;
pub(super) use CheckpointFailureReason::{
    Closed, DeclinedOnCancellationBarrier as Cancelled, Expired, InputEndOfStream, Subsumed,
};

pub(super) const ALIGNED: Alignment = Alignment::Aligned;
pub(super) const UNALIGNED: Alignment = Alignment::Unaligned;
/// The timeout of tests that have one.
pub(super) const TIMEOUT: u64 = 10;
pub(super) const TIMEOUTABLE: Alignment = Alignment::Timeoutable { timeout: TIMEOUT };

/// A barrier that was made at time 0.
pub(super) fn barrier(id: i64, alignment: Alignment) -> CheckpointBarrier<()> {
    let options = CheckpointOptions { alignment, snapshot: () };
    CheckpointBarrier { id: CheckpointId(id), timestamp: 0, options }
}

/// A handler and its channels. A channel that delivered a barrier delivers nothing until it is
/// resumed, as its producer has stopped.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Task {
    pub(super) handler: CheckpointBarrierHandler<()>,
    pub(super) now: i64,
    /// Time between the triggers of checkpoints; 0 if all are made at time 0.
    pub(super) interval: i64,
    /// Channels whose producers stopped, with the checkpoint of the barrier.
    pub(super) stopped: BTreeMap<usize, i64>,
    /// Channels that the handler blocked.
    pub(super) blocked: BTreeSet<usize>,
    /// Channels that persist their data, with the checkpoint.
    pub(super) persisting: BTreeMap<usize, i64>,
    pub(super) timer: Option<(i64, i64)>,
    pub(super) log: Log,
}

/// The effects so far that leave no trace in the channels.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Log {
    pub(super) triggers: Vec<(i64, Alignment)>,
    pub(super) completed: Vec<(i64, AlignmentMetrics)>,
    pub(super) aborts: Vec<(i64, CheckpointFailureReason)>,
    pub(super) converted: Vec<(usize, u32)>,
    pub(super) channel_states: Vec<i64>,
}

impl Task {
    pub(super) fn new(channels: usize) -> Self {
        Self::with_handler(CheckpointBarrierHandler::new(channels, true))
    }

    pub(super) fn with_handler(handler: CheckpointBarrierHandler<()>) -> Self {
        Self {
            handler,
            now: 0,
            interval: 0,
            stopped: BTreeMap::new(),
            blocked: BTreeSet::new(),
            persisting: BTreeMap::new(),
            timer: None,
            log: Log::default(),
        }
    }

    fn made(&self, id: i64, alignment: Alignment) -> CheckpointBarrier<()> {
        CheckpointBarrier { timestamp: id * self.interval, ..barrier(id, alignment) }
    }

    pub(super) fn barrier(&mut self, channel: usize, id: i64, alignment: Alignment) -> Vec<Effect> {
        assert!(!self.stopped.contains_key(&channel), "channel {channel} delivers nothing");
        if alignment.blocks_channel() {
            self.stopped.insert(channel, id);
        }
        let barrier = self.made(id, alignment);
        let effects = self.handler.on_barrier(channel, &barrier, self.now).unwrap();
        self.carry_out(effects)
    }

    pub(super) fn announce(
        &mut self,
        channel: usize,
        id: i64,
        alignment: Alignment,
    ) -> Vec<Effect> {
        let barrier = self.made(id, alignment);
        let sequence = Sequence(id as u32);
        let effects = self.handler.on_announcement(channel, sequence, &barrier, self.now);
        self.carry_out(effects.unwrap())
    }

    pub(super) fn cancel(&mut self, channel: usize, id: i64) -> Vec<Effect> {
        let effects = self.handler.on_cancellation(channel, CheckpointId(id)).unwrap();
        self.carry_out(effects)
    }

    pub(super) fn end(&mut self, channel: usize) -> Vec<Effect> {
        assert!(!self.stopped.contains_key(&channel), "channel {channel} delivers nothing");
        self.persisting.remove(&channel);
        let effects = self.handler.on_end_of_partition(channel, self.now).unwrap();
        self.carry_out(effects)
    }

    pub(super) fn trigger(&mut self, id: i64, alignment: Alignment) -> Vec<Effect> {
        let effects = self.handler.trigger(&self.made(id, alignment), self.now);
        self.carry_out(effects)
    }

    /// Advances the clock, and fires the timer if it is due.
    pub(super) fn advance(&mut self, milliseconds: i64) -> Vec<Effect> {
        self.now += milliseconds;
        match self.timer.take_if(|(_, at)| *at <= self.now) {
            Some((id, _)) => {
                let effects = self.handler.on_timer(CheckpointId(id), self.now);
                self.carry_out(effects)
            }
            None => Vec::new(),
        }
    }

    pub(super) fn abort(&mut self, id: i64) -> Vec<Effect> {
        let effects = self.handler.abort(CheckpointId(id), Expired);
        self.carry_out(effects)
    }

    pub(super) fn blocked(&self) -> Vec<usize> {
        self.blocked.iter().copied().collect()
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut resumed = BTreeSet::new();
        for effect in &effects {
            match effect {
                Effect::BlockConsumption { channel } => {
                    assert!(self.stopped.contains_key(channel) && self.blocked.insert(*channel));
                }
                Effect::ResumeConsumption { channel } => {
                    self.blocked.remove(channel);
                    resumed.insert(self.stopped.remove(channel).expect("the channel is blocked"));
                }
                Effect::ConvertToPriority { channel, sequence } => {
                    self.log.converted.push((*channel, sequence.0));
                }
                Effect::StartChannelState { checkpoint } => {
                    self.log.channel_states.push(checkpoint.0);
                }
                Effect::StartPersisting { channel, checkpoint } => {
                    assert_eq!(self.log.channel_states.last(), Some(&checkpoint.0), "no writer");
                    assert_eq!(self.persisting.insert(*channel, checkpoint.0), None);
                }
                Effect::StopPersisting { channel, checkpoint } => {
                    assert!(self.persisting.remove(channel) <= Some(checkpoint.0));
                }
                Effect::TriggerCheckpoint(barrier) => {
                    assert!(!resumed.contains(&barrier.id.0), "resumed before the snapshot");
                    self.log.triggers.push((barrier.id.0, barrier.options.alignment));
                }
                Effect::AllBarriersReceived { checkpoint, metrics } => {
                    self.log.completed.push((checkpoint.0, *metrics));
                }
                Effect::AbortCheckpoint { checkpoint, reason } => {
                    self.log.aborts.push((checkpoint.0, *reason));
                }
                Effect::ArmTimer { checkpoint, at } => self.timer = Some((checkpoint.0, *at)),
                Effect::CancelTimer => assert!(self.timer.take().is_some(), "no timer is armed"),
            }
        }
        effects
    }
}

/// Effects, for comparison with those of a step.
pub(super) mod effects {
    use super::{Alignment, AlignmentMetrics, CheckpointId, Effect, Sequence, barrier};
    use headgate_protocol::CheckpointFailureReason;

    pub(crate) fn block(channel: usize) -> Effect {
        Effect::BlockConsumption { channel }
    }

    pub(crate) fn resume(channel: usize) -> Effect {
        Effect::ResumeConsumption { channel }
    }

    pub(crate) fn convert(channel: usize, sequence: u32) -> Effect {
        Effect::ConvertToPriority { channel, sequence: Sequence(sequence) }
    }

    pub(crate) fn channel_state(id: i64) -> Effect {
        Effect::StartChannelState { checkpoint: CheckpointId(id) }
    }

    pub(crate) fn start(channel: usize, id: i64) -> Effect {
        Effect::StartPersisting { channel, checkpoint: CheckpointId(id) }
    }

    pub(crate) fn stop(channel: usize, id: i64) -> Effect {
        Effect::StopPersisting { channel, checkpoint: CheckpointId(id) }
    }

    pub(crate) fn trigger(id: i64, alignment: Alignment) -> Effect {
        Effect::TriggerCheckpoint(barrier(id, alignment))
    }

    pub(crate) fn received(id: i64, alignment_duration: u64, start_delay: u64) -> Effect {
        let metrics = AlignmentMetrics { alignment_duration, start_delay };
        Effect::AllBarriersReceived { checkpoint: CheckpointId(id), metrics }
    }

    pub(crate) fn abort(id: i64, reason: CheckpointFailureReason) -> Effect {
        Effect::AbortCheckpoint { checkpoint: CheckpointId(id), reason }
    }

    pub(crate) fn arm(id: i64, at: i64) -> Effect {
        Effect::ArmTimer { checkpoint: CheckpointId(id), at }
    }
}
