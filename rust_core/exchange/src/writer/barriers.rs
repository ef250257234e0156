//! The barriers that a writer sends, and the data that they overtook (spec 10.9).
//!
//! Decision: ADR 0039.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headgate_memory::lock;
use headgate_protocol::{Alignment, ChannelStateBuilder, CheckpointId, DataType};
use headgate_record::Event;
use headgate_record::event::Barrier;

use crate::clock;
use crate::error::{ExchangeError, Result};
use crate::partition::ResultPartition;
use crate::reader::ChannelStates;
use crate::subpartition::{Overtaken, Subpartition};

/// The newest barrier of a writer. Also called by the output flusher, when its timeout has passed.
pub(super) struct Barriers {
    partition: Arc<ResultPartition>,
    /// Locks of subpartitions may be taken under it, not the reverse.
    newest: Mutex<Option<Sent>>,
}

struct Sent {
    checkpoint: CheckpointId,
    /// Present while a subpartition may have the barrier behind data.
    timeoutable: Option<Barrier>,
    /// Data that the barrier overtook in each subpartition.
    overtaken: Vec<ChannelStateBuilder>,
}

fn encoded(event: &Event) -> Result<Bytes> {
    event.encode().map_err(|error| ExchangeError::Event(error.to_string()))
}

fn push(state: &mut ChannelStateBuilder, overtaken: Overtaken) {
    for (buffer, data_type) in overtaken {
        if !buffer.is_empty() {
            state.push(data_type, buffer.is_compressed(), buffer.len(), buffer.chunks());
        }
    }
}

impl Barriers {
    pub(super) fn new(partition: Arc<ResultPartition>) -> Self {
        Self { partition, newest: Mutex::default() }
    }

    /// Sends a barrier whose event fits a segment.
    ///
    /// # Errors
    /// An event that cannot be encoded.
    pub(super) fn send(&self, barrier: &Barrier, data_type: DataType) -> Result<()> {
        let event = encoded(&Event::CheckpointBarrier(barrier.clone()))?;
        let mut newest = lock(&self.newest);
        let send = |subpartition: &Arc<Subpartition>| {
            let mut state = ChannelStateBuilder::default();
            if data_type.has_priority() {
                push(&mut state, subpartition.add_overtaking(event.clone()));
            } else {
                subpartition.add_event(event.clone(), data_type);
            }
            state
        };
        let overtaken = self.partition.subpartitions().iter().map(send).collect();
        let is_timeoutable = matches!(barrier.options.alignment, Alignment::Timeoutable { .. });
        let timeoutable = is_timeoutable.then(|| barrier.clone());
        *newest = Some(Sent { checkpoint: barrier.id, timeoutable, overtaken });
        Ok(())
    }

    /// Lets the newest barrier overtake where it waits behind data, if its timeout has passed.
    ///
    /// # Errors
    /// An event that cannot be encoded.
    pub(super) fn time_out(&self) -> Result<()> {
        self.time_out_newest(lock(&self.newest).as_mut())
    }

    fn time_out_newest(&self, newest: Option<&mut Sent>) -> Result<()> {
        let Some(sent) = newest else { return Ok(()) };
        let is_due =
            |barrier: &mut Barrier| barrier.deadline().is_some_and(|at| at <= clock::now());
        let Some(barrier) = sent.timeoutable.take_if(is_due) else { return Ok(()) };
        let event = encoded(&Event::CheckpointBarrier(barrier.into_unaligned()))?;
        for (subpartition, state) in self.partition.subpartitions().iter().zip(&mut sent.overtaken)
        {
            if let Some(overtaken) = subpartition.time_out(sent.checkpoint, event.clone()) {
                push(state, overtaken);
            }
        }
        Ok(())
    }

    /// Takes the data that the barrier of this checkpoint overtook, for each subpartition that has
    /// any. `None` while the barrier may still overtake some.
    ///
    /// # Errors
    /// Another barrier was sent last, or it was taken.
    pub(super) fn take_channel_state(
        &self,
        checkpoint: CheckpointId,
    ) -> Result<Option<ChannelStates>> {
        let mut newest = lock(&self.newest);
        self.time_out_newest(newest.as_mut())?;
        let is_decided = |sent: &Sent| {
            let mut waiting = self.partition.subpartitions().iter();
            sent.timeoutable.is_none()
                || !waiting.any(|one| one.has_timeoutable_barrier(checkpoint))
        };
        match &*newest {
            Some(sent) if sent.checkpoint == checkpoint && !is_decided(sent) => return Ok(None),
            _ => {}
        }
        let sent = newest.take_if(|sent| sent.checkpoint == checkpoint);
        let none = ExchangeError::State(
            "the channel state of this checkpoint is not there: it is taken once, between its barrier and \
             that of the next",
        );
        let states = sent.ok_or(none)?.overtaken.into_iter().enumerate();
        let states = states.filter(|(_, state)| !state.is_empty());
        Ok(Some(states.map(|(index, state)| (index, state.finish())).collect()))
    }

    /// Forgets the barrier of a checkpoint that was given up.
    pub(super) fn cancel(&self, checkpoint: CheckpointId) {
        lock(&self.newest).take_if(|sent| sent.checkpoint == checkpoint);
    }
}
