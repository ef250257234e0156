//! Runs the barrier handler of a reader, and carries out what it asks for (spec 10.5, ADR 0032).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use headgate_protocol::{
    AlignmentMetrics, ChannelNotOpen, CheckpointBarrierHandler, CheckpointEffect,
    CheckpointFailureReason, CheckpointId, Sequence,
};
use headgate_record::Event;

use crate::barrier::{self, Barrier};
use crate::error::{ExchangeError, Result};
use crate::gate::{CheckpointedChannels, DataInput};

/// What a task is told of a checkpoint, in its place among the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointNotice {
    /// Send the barrier to all outputs and take the snapshot. Nothing can be read until
    /// [`snapshot_taken`](crate::RecordReader::snapshot_taken).
    Trigger(Barrier),
    /// The barriers of all channels have arrived.
    Complete {
        /// Completed checkpoint.
        checkpoint: CheckpointId,
        /// Durations of its alignment.
        metrics: AlignmentMetrics,
        /// Bytes of data that were read during the alignment.
        bytes_in_alignment: u64,
        /// Bytes of data in flight that belong to the checkpoint.
        persisted_bytes: u64,
    },
    /// The checkpoint is given up.
    Aborted {
        /// Aborted checkpoint.
        checkpoint: CheckpointId,
        /// Cause for the coordinator.
        reason: String,
    },
}

/// The checkpoints of one reader. All calls are made by the thread that reads.
pub(super) struct Checkpoints {
    handler: CheckpointBarrierHandler<Bytes>,
    /// Steps that are not carried out yet. No data is read before them.
    steps: VecDeque<CheckpointEffect<Bytes>>,
    /// Reasons of the coordinator, of steps that abort.
    reasons: BTreeMap<CheckpointId, String>,
    timer: Option<(CheckpointId, i64)>,
    /// The checkpoint whose snapshot is being taken. No step is carried out meanwhile.
    triggered: Option<CheckpointId>,
    /// The newest checkpoint of which a barrier was read, and the bytes of data read before that.
    aligning: Option<(CheckpointId, u64)>,
    /// Bytes of events, which the counters of the reader include.
    event_bytes: u64,
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn not_open(error: ChannelNotOpen) -> ExchangeError {
    ExchangeError::Event(error.to_string())
}

impl Checkpoints {
    pub(super) fn new(channels: CheckpointedChannels) -> Self {
        let CheckpointedChannels { count, ended, after_finish } = channels;
        let mut handler = CheckpointBarrierHandler::new(count, after_finish);
        for channel in ended {
            let effects = handler.on_end_of_partition(channel, now());
            debug_assert_eq!(effects, Ok(Vec::new()), "no checkpoint is pending");
        }
        Self {
            handler,
            steps: VecDeque::new(),
            reasons: BTreeMap::new(),
            timer: None,
            triggered: None,
            aligning: None,
            event_bytes: 0,
        }
    }

    /// Counts an event that was read.
    pub(super) fn count_event(&mut self, bytes: usize) {
        self.event_bytes += bytes as u64;
    }

    /// Handles an event of a channel; returns it if it is none of checkpoints. `bytes` is all that the
    /// reader has read.
    pub(super) fn on_event(
        &mut self,
        channel: usize,
        event: Event,
        bytes: u64,
    ) -> Result<Option<Event>> {
        let effects = match event {
            Event::CheckpointBarrier(barrier) => {
                let barrier = barrier::of_event(barrier)?;
                if self.aligning.is_none_or(|(newest, _)| barrier.id > newest) {
                    self.aligning = Some((barrier.id, bytes - self.event_bytes));
                }
                self.handler.on_barrier(channel, &barrier, now())
            }
            Event::CancelCheckpointMarker { checkpoint_id } => {
                self.handler.on_cancellation(channel, CheckpointId(checkpoint_id))
            }
            Event::EventAnnouncement { sequence_number, announced } => match *announced {
                Event::CheckpointBarrier(barrier) => {
                    let sequence = Sequence(sequence_number.cast_unsigned());
                    let barrier = barrier::of_event(barrier)?;
                    self.handler.on_announcement(channel, sequence, &barrier, now())
                }
                announced => {
                    let announced = Box::new(announced);
                    return Ok(Some(Event::EventAnnouncement { sequence_number, announced }));
                }
            },
            event => return Ok(Some(event)),
        };
        self.steps.extend(effects.map_err(not_open)?);
        Ok(None)
    }

    /// Handles the end of a channel.
    pub(super) fn on_end_of_partition(&mut self, channel: usize) -> Result<()> {
        let effects = self.handler.on_end_of_partition(channel, now());
        self.steps.extend(effects.map_err(not_open)?);
        Ok(())
    }

    /// Carries out all steps up to the next one that the task must hear of, and handles what is due
    /// meanwhile.
    ///
    /// # Errors
    /// A snapshot that was not taken, or a step that cannot be carried out.
    pub(super) fn next(
        &mut self,
        input: &dyn DataInput,
        bytes: u64,
    ) -> Result<Option<CheckpointNotice>> {
        if self.triggered.is_some() {
            return Err(ExchangeError::State(
                "a checkpoint was triggered and its snapshot was not taken: what follows the barrier \
                 cannot be read",
            ));
        }
        loop {
            while let Some(step) = self.steps.pop_front() {
                if let Some(notice) = self.carry_out(step, input, bytes)? {
                    return Ok(Some(notice));
                }
            }
            for (checkpoint, reason) in input.take_aborts() {
                let effects = self.handler.abort(checkpoint, CheckpointFailureReason::Expired);
                if !effects.is_empty() {
                    self.reasons.insert(checkpoint, reason);
                }
                self.steps.extend(effects);
            }
            if self.steps.is_empty() {
                let Some((checkpoint, _)) = self.timer.filter(|(_, at)| *at <= now()) else {
                    return Ok(None);
                };
                self.timer = None;
                let effects = self.handler.on_timer(checkpoint, now());
                self.steps.extend(effects);
            }
        }
    }

    fn carry_out(
        &mut self,
        step: CheckpointEffect<Bytes>,
        input: &dyn DataInput,
        bytes: u64,
    ) -> Result<Option<CheckpointNotice>> {
        match step {
            // The channel's own barrier stopped the producer. Channel states have no data yet.
            CheckpointEffect::BlockConsumption { .. }
            | CheckpointEffect::StartChannelState { .. }
            | CheckpointEffect::StartPersisting { .. }
            | CheckpointEffect::StopPersisting { .. } => {}
            CheckpointEffect::ResumeConsumption { channel } => input.resume_consumption(channel)?,
            CheckpointEffect::ConvertToPriority { channel, sequence } => {
                // A barrier that was read meanwhile needs none.
                input.convert_to_priority(channel, sequence)?;
            }
            CheckpointEffect::ArmTimer { checkpoint, at } => self.timer = Some((checkpoint, at)),
            CheckpointEffect::CancelTimer => self.timer = None,
            CheckpointEffect::TriggerCheckpoint(barrier) => {
                self.triggered = Some(barrier.id);
                return Ok(Some(CheckpointNotice::Trigger(barrier)));
            }
            CheckpointEffect::AllBarriersReceived { checkpoint, metrics } => {
                let began = self.aligning.filter(|(aligning, _)| *aligning == checkpoint);
                let bytes = bytes - self.event_bytes;
                let bytes_in_alignment = began.map_or(0, |(_, before)| bytes - before);
                return Ok(Some(CheckpointNotice::Complete {
                    checkpoint,
                    metrics,
                    bytes_in_alignment,
                    persisted_bytes: 0,
                }));
            }
            CheckpointEffect::AbortCheckpoint { checkpoint, reason } => {
                let reason = self.reasons.remove(&checkpoint).unwrap_or_else(|| reason.to_string());
                return Ok(Some(CheckpointNotice::Aborted { checkpoint, reason }));
            }
        }
        Ok(None)
    }

    /// Records that the task took its snapshot, so that the reader goes on.
    ///
    /// # Errors
    /// This checkpoint was not triggered.
    pub(super) fn snapshot_taken(&mut self, checkpoint: CheckpointId) -> Result<()> {
        match self.triggered.take_if(|triggered| *triggered == checkpoint) {
            Some(_) => Ok(()),
            None => Err(ExchangeError::State("no snapshot of this checkpoint is due")),
        }
    }

    /// Time until the timer is due; `None` if none is armed.
    pub(super) fn until_timer(&self) -> Option<Duration> {
        let (_, at) = self.timer?;
        Some(Duration::from_millis(u64::try_from(at.saturating_sub(now())).unwrap_or(0)))
    }

    /// Returns the time of the timer, in milliseconds since 1970.
    pub(super) fn timer(&self) -> Option<i64> {
        self.timer.map(|(_, at)| at)
    }

    /// Returns true if no step waits.
    pub(super) fn is_idle(&self) -> bool {
        self.steps.is_empty() && self.triggered.is_none()
    }

    /// Returns true if [`next`](Self::next) may return something.
    pub(super) fn is_due(&self, input: &dyn DataInput) -> bool {
        !self.is_idle()
            || input.has_aborts()
            || self.until_timer().is_some_and(|left| left.is_zero())
    }
}
