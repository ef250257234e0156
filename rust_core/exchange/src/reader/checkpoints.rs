//! Carries out what the barriers of a reader ask for (spec 10.5).
//!
//! Decisions: ADR 0032, ADR 0039.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use headgate_protocol::{
    AlignmentMetrics, ChannelStateBuilder, CheckpointEffect, CheckpointFailureReason, CheckpointId,
    DataType, Sequence,
};
use headgate_record::Event;
use headgate_record::event::Barrier;
use headgate_trace::{Event as Trace, Kind, record, text};

use crate::clock::{self, now};
use crate::error::{ExchangeError, Result};
use crate::gate::{CheckpointedChannels, DataInput};
use crate::reader::barriers::Barriers;

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

/// The channel state of one channel, by its index.
pub type ChannelStates = Vec<(usize, Vec<u8>)>;

/// What the reader lends to its checkpoints.
pub(super) struct Reading<'a> {
    pub(super) input: &'a dyn DataInput,
    /// Bytes of all buffers and events so far.
    pub(super) bytes: u64,
    /// Returns the bytes of a channel that were read and are not part of a record yet.
    pub(super) unconsumed: &'a dyn Fn(usize) -> Result<Vec<Bytes>>,
}

/// The checkpoints of one reader. All calls are made by the thread that reads.
pub(super) struct Checkpoints {
    barriers: Barriers,
    num_channels: usize,
    /// Steps that are not carried out yet. No data is read before them.
    steps: VecDeque<CheckpointEffect<Bytes>>,
    /// Reasons of the coordinator, of steps that abort.
    reasons: BTreeMap<CheckpointId, String>,
    timer: Option<(CheckpointId, i64)>,
    /// The checkpoint whose snapshot is being taken. No step is carried out meanwhile.
    triggered: Option<CheckpointId>,
    /// The newest checkpoint of which a barrier was read, and the bytes of data read before that.
    aligning: Option<(CheckpointId, u64)>,
    /// The checkpoint with data in flight, and what the reader itself had of it.
    persisting: Option<(CheckpointId, BTreeMap<usize, ChannelStateBuilder>)>,
    /// The checkpoint whose data in flight cannot be had, and why.
    refused: Option<(CheckpointId, CheckpointFailureReason)>,
    /// The newest complete checkpoint and its channel states.
    complete: Option<(CheckpointId, ChannelStates)>,
    /// Bytes of events, which the counters of the reader include.
    event_bytes: u64,
}

impl Checkpoints {
    pub(super) fn new(after_finish: bool, channels: CheckpointedChannels) -> Self {
        Self {
            barriers: Barriers::new(after_finish, &channels, now()),
            num_channels: channels.count,
            steps: VecDeque::new(),
            reasons: BTreeMap::new(),
            timer: None,
            triggered: None,
            aligning: None,
            persisting: None,
            refused: None,
            complete: None,
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
                record(Kind::Gate, || Trace::Barrier { channel, checkpoint: barrier.id.0 });
                if self.aligning.is_none_or(|(newest, _)| barrier.id > newest) {
                    self.aligning = Some((barrier.id, bytes - self.event_bytes));
                }
                self.barriers.on_barrier(channel, &barrier, now())?
            }
            Event::CancelCheckpointMarker { checkpoint_id } => {
                self.barriers.on_cancellation(channel, CheckpointId(checkpoint_id), now())?
            }
            Event::EventAnnouncement { sequence_number, announced } => match *announced {
                Event::CheckpointBarrier(barrier) => {
                    let sequence = Sequence(sequence_number.cast_unsigned());
                    self.barriers.on_announcement(channel, sequence, &barrier, now())?
                }
                announced => {
                    let announced = Box::new(announced);
                    return Ok(Some(Event::EventAnnouncement { sequence_number, announced }));
                }
            },
            event => return Ok(Some(event)),
        };
        self.steps.extend(effects);
        Ok(None)
    }

    /// Handles the end of a channel.
    pub(super) fn on_end_of_partition(&mut self, channel: usize) -> Result<()> {
        self.steps.extend(self.barriers.on_end_of_partition(channel, now())?);
        Ok(())
    }

    /// Carries out all steps up to the next one that the task must hear of, and handles what is due
    /// meanwhile.
    ///
    /// # Errors
    /// A snapshot that was not taken, or a step that cannot be carried out.
    pub(super) fn next(&mut self, reading: &Reading<'_>) -> Result<Option<CheckpointNotice>> {
        if self.triggered.is_some() {
            return Err(ExchangeError::State(
                "a checkpoint was triggered and its snapshot was not taken: what follows the barrier \
                 cannot be read",
            ));
        }
        loop {
            while let Some(step) = self.steps.pop_front() {
                if let Some(notice) = self.carry_out(step, reading)? {
                    return Ok(Some(notice));
                }
            }
            if let Some((checkpoint, reason)) = self.refused.take() {
                self.steps.extend(self.barriers.abort(checkpoint, reason));
            }
            for (checkpoint, reason) in reading.input.checkpointing().take_aborts() {
                let effects = self.barriers.abort(checkpoint, CheckpointFailureReason::Expired);
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
                let effects = self.barriers.on_timer(checkpoint, now());
                self.steps.extend(effects);
            }
        }
    }

    fn carry_out(
        &mut self,
        step: CheckpointEffect<Bytes>,
        reading: &Reading<'_>,
    ) -> Result<Option<CheckpointNotice>> {
        let input = reading.input;
        match step {
            // The channel's own barrier has stopped the producer.
            CheckpointEffect::BlockConsumption { .. } => {}
            CheckpointEffect::ResumeConsumption { channel } => {
                record(Kind::Gate, || Trace::Resumed { channel });
                input.resume_consumption(channel)?;
            }
            CheckpointEffect::ConvertToPriority { channel, sequence } => {
                // False for a barrier that was read meanwhile.
                input.convert_to_priority(channel, sequence)?;
            }
            CheckpointEffect::ArmTimer { checkpoint, at } => self.timer = Some((checkpoint, at)),
            CheckpointEffect::CancelTimer => self.timer = None,
            CheckpointEffect::StartChannelState { checkpoint } => {
                self.persisting = Some((checkpoint, BTreeMap::new()));
            }
            CheckpointEffect::StartPersisting { channel, checkpoint } => {
                self.start_persisting(channel, checkpoint, reading)?;
            }
            CheckpointEffect::StopPersisting { channel, checkpoint } => {
                if let Some(channel) = input.checkpointed_channel(channel)? {
                    channel.stop_persisting(checkpoint);
                }
            }
            CheckpointEffect::TriggerCheckpoint(barrier) => {
                self.triggered = Some(barrier.id);
                return Ok(Some(CheckpointNotice::Trigger(barrier)));
            }
            CheckpointEffect::AllBarriersReceived { checkpoint, metrics } => {
                if let Some((_, reason)) = self.refused.take_if(|(of, _)| *of == checkpoint) {
                    return self.abort(checkpoint, reason.to_string(), input).map(Some);
                }
                return self.finish(checkpoint, metrics, reading).map(Some);
            }
            CheckpointEffect::AbortCheckpoint { checkpoint, reason } => {
                let reason = self.reasons.remove(&checkpoint).unwrap_or_else(|| reason.to_string());
                return self.abort(checkpoint, reason, input).map(Some);
            }
        }
        Ok(None)
    }

    /// Copies the data in flight of a channel. What is a part of a record comes first.
    fn start_persisting(
        &mut self,
        channel: usize,
        checkpoint: CheckpointId,
        reading: &Reading<'_>,
    ) -> Result<()> {
        let mut state = ChannelStateBuilder::default();
        for piece in (reading.unconsumed)(channel)? {
            state.push(DataType::DataBuffer, false, piece.len(), std::iter::once(&piece[..]));
        }
        if let Some((_, states)) = &mut self.persisting {
            states.insert(channel, state);
        }
        let refused = match reading.input.checkpointed_channel(channel)? {
            Some(channel) if channel.start_persisting(checkpoint)? => return Ok(()),
            Some(_) => CheckpointFailureReason::Subsumed,
            // Data of a channel whose producer is not known yet would be missed.
            None => CheckpointFailureReason::TaskNotReady,
        };
        self.refused = Some((checkpoint, refused));
        Ok(())
    }

    /// Takes the data in flight of all channels, ended ones included.
    fn take_persisted(
        &mut self,
        checkpoint: CheckpointId,
        input: &dyn DataInput,
    ) -> Result<Vec<(usize, ChannelStateBuilder)>> {
        let mut all = Vec::new();
        let persisting = self.persisting.take_if(|(of, _)| *of == checkpoint);
        let Some((_, mut states)) = persisting else { return Ok(all) };
        for channel in 0..self.num_channels {
            let mut state = states.remove(&channel).unwrap_or_default();
            let of_channel = input.checkpointed_channel(channel)?;
            if let Some(arrived) = of_channel.and_then(|one| one.take_persisted(checkpoint)) {
                state.append(&arrived);
            }
            if !state.is_empty() {
                all.push((channel, state));
            }
        }
        Ok(all)
    }

    fn finish(
        &mut self,
        checkpoint: CheckpointId,
        metrics: AlignmentMetrics,
        reading: &Reading<'_>,
    ) -> Result<CheckpointNotice> {
        let states = self.take_persisted(checkpoint, reading.input)?;
        let persisted_bytes = states.iter().map(|(_, state)| state.payload_bytes()).sum();
        let states = states.into_iter().map(|(channel, state)| (channel, state.finish()));
        self.complete = Some((checkpoint, states.collect()));
        record(Kind::Gate, || Trace::Aligned { checkpoint: checkpoint.0 });
        let began = self.aligning.filter(|(aligning, _)| *aligning == checkpoint);
        let bytes = reading.bytes - self.event_bytes;
        let bytes_in_alignment = began.map_or(0, |(_, before)| bytes - before);
        Ok(CheckpointNotice::Complete { checkpoint, metrics, bytes_in_alignment, persisted_bytes })
    }

    fn abort(
        &mut self,
        checkpoint: CheckpointId,
        reason: String,
        input: &dyn DataInput,
    ) -> Result<CheckpointNotice> {
        self.take_persisted(checkpoint, input)?;
        let id = checkpoint.0;
        record(Kind::Gate, || Trace::Aborted { checkpoint: id, reason: text(&reason) });
        Ok(CheckpointNotice::Aborted { checkpoint, reason })
    }

    /// Takes the channel states of the newest complete checkpoint.
    ///
    /// # Errors
    /// It is not this one, or they were taken.
    pub(super) fn take_channel_state(&mut self, checkpoint: CheckpointId) -> Result<ChannelStates> {
        let states = self.complete.take_if(|(complete, _)| *complete == checkpoint);
        states.map(|(_, states)| states).ok_or(ExchangeError::State(
            "the channel state of this checkpoint is not there: it is taken once, between its completion \
             and that of the next",
        ))
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
        self.timer().map(clock::until)
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
            || input.checkpointing().has_aborts()
            || self.until_timer().is_some_and(|left| left.is_zero())
    }
}
