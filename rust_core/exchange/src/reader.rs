//! `RecordReader`: turns buffers back into records (spec 0, 6, 8).
//!
//! Decision: ADR 0020.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_protocol::{CheckpointId, DataType, Totals};
use headgate_record::{Event, PageSchema};

use crate::copies::Copies;
use crate::counters::Counters;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::event;
use crate::gate::{DataInput, Received};
use crate::spanning::SpanningOptions;

mod barriers;
mod channel;
mod checkpoints;
mod coalescing;
mod pages;
mod record;

use channel::{ChannelState, unconsumed};
use checkpoints::{Checkpoints, Reading};
use coalescing::Coalescing;
use pages::Pages;

pub use checkpoints::{ChannelStates, CheckpointNotice};
pub use record::Record;

/// Reads the records of a gate, fair over its channels, each channel in order.
pub struct RecordReader {
    gate: Arc<dyn DataInput>,
    pages: Pages,
    spanning: SpanningOptions,
    channels: Vec<ChannelState>,
    /// The channel whose current buffer may hold another record.
    current: Option<usize>,
    /// Coalesces small batches, if that was asked for.
    coalescing: Option<Coalescing>,
    /// Present if the gate takes checkpoints.
    checkpoints: Option<Box<Checkpoints>>,
    counters: Arc<Counters>,
}

impl RecordReader {
    /// Creates the one reader of a gate.
    pub fn new(
        gate: Arc<dyn DataInput>,
        schema: Option<Arc<PageSchema>>,
        spanning: SpanningOptions,
        copies: Arc<Copies>,
    ) -> Self {
        let mut reader = Self {
            gate,
            pages: Pages { schema, copies },
            spanning,
            channels: Vec::new(),
            current: None,
            coalescing: None,
            checkpoints: None,
            counters: Arc::default(),
        };
        reader.take_checkpointed();
        reader
    }

    /// Coalesces batches, of one channel or several, into batches of up to `batch_bytes`. The rows
    /// and their order stay the same. A reader of bytes ignores it.
    ///
    /// Rows wait for others only while more can be read at once. They are returned before the
    /// reader would block, and before an event, the end or an error.
    #[must_use]
    pub fn with_batch_bytes(mut self, batch_bytes: usize) -> Self {
        let schema = self.pages.schema.as_ref().map(Arc::clone);
        self.coalescing = schema.map(|schema| Coalescing::new(schema, batch_bytes));
        self
    }

    /// Returns the gate that it reads.
    pub fn gate(&self) -> &Arc<dyn DataInput> {
        &self.gate
    }

    /// Returns the schema of the batches; none for bytes.
    pub fn schema(&self) -> Option<&Arc<PageSchema>> {
        self.pages.schema.as_ref()
    }

    /// Returns counters of the rows that were returned, and of the bytes and buffers they arrived
    /// in.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the next record or event; none after the end of all channels.
    ///
    /// # Errors
    /// The error that ended a channel or the gate, or what the interrupt says.
    pub fn next(&mut self, interrupt: Interrupt<'_>) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.next_ready()? {
                return Ok(Some(record));
            }
            if self.checkpoints.is_some() {
                match self.poll_next()? {
                    Poll::Ready(record) => return Ok(record),
                    Poll::Pending => self.wait(interrupt)?,
                }
                continue;
            }
            let Some(received) = self.gate.next(interrupt).inspect_err(|e| self.release(e))? else {
                return Ok(None);
            };
            if let Some(record) = self.receive(received)? {
                return Ok(Some(record));
            }
        }
    }

    /// Waits for data, or until the checkpoints have something to do.
    fn wait(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.gate.wait_available(self.until_timer(), interrupt).map(|_| ())
    }

    /// Like [`next`](Self::next), but pending where that would block.
    ///
    /// # Errors
    /// The error that ended a channel or the gate.
    pub fn poll_next(&mut self) -> Result<Poll<Option<Record>>> {
        self.poll(|_| true)
    }

    /// Like [`poll_next`](Self::poll_next), but takes only priority events from the gate. A task whose
    /// outputs are full handles unaligned barriers with it and reads no data meanwhile, except what
    /// was taken from the gate before. Source: `processPriorityEvents` of Flink's
    /// `CheckpointedInputGate`.
    ///
    /// # Errors
    /// As [`poll_next`](Self::poll_next).
    pub fn poll_priority_event(&mut self) -> Result<Poll<Option<Record>>> {
        self.poll(|gate| gate.has_priority_event())
    }

    fn poll(&mut self, may_take: fn(&dyn DataInput) -> bool) -> Result<Poll<Option<Record>>> {
        loop {
            if let Some(record) = self.next_ready()? {
                return Ok(Poll::Ready(Some(record)));
            }
            if let Some(notice) = self.next_of_checkpoints()? {
                return Ok(Poll::Ready(Some(notice)));
            }
            if !may_take(&*self.gate) {
                return Ok(Poll::Pending);
            }
            match self.gate.poll_next().inspect_err(|e| self.release(e))? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => return Ok(Poll::Ready(None)),
                Poll::Ready(Some(received)) => {
                    if let Some(record) = self.receive(received)? {
                        return Ok(Poll::Ready(Some(record)));
                    }
                }
            }
        }
    }

    /// Does what the checkpoints ask for, up to the next thing that the task must hear of.
    fn next_of_checkpoints(&mut self) -> Result<Option<Record>> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(None) };
        let reading = Reading {
            input: &*self.gate,
            bytes: self.counters.bytes(),
            unconsumed: &|channel| unconsumed(&self.channels, channel),
        };
        Ok(checkpoints.next(&reading)?.map(Record::Checkpoint))
    }

    /// Takes the data in flight that belongs to a complete checkpoint: for each channel that has any,
    /// its index and a part of its channel state.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: another checkpoint is the newest complete one, or it was taken.
    pub fn take_channel_state(&mut self, checkpoint: CheckpointId) -> Result<ChannelStates> {
        self.checkpoints_mut()?.take_channel_state(checkpoint)
    }

    fn checkpoints_mut(&mut self) -> Result<&mut Checkpoints> {
        let none = ExchangeError::State("the gate takes no checkpoints");
        self.checkpoints.as_deref_mut().ok_or(none)
    }

    /// Records that the task took its snapshot after [`CheckpointNotice::Trigger`]. Until then the
    /// reader returns nothing.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: no snapshot of this checkpoint is due.
    pub fn snapshot_taken(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.checkpoints_mut()?.snapshot_taken(checkpoint)
    }

    /// Returns the time at which a poll should be repeated although no data arrives, in milliseconds
    /// since 1970; `None` for never.
    pub fn next_timer(&self) -> Option<i64> {
        self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.timer())
    }

    /// Returns the time until [`next_timer`](Self::next_timer).
    pub fn until_timer(&self) -> Option<Duration> {
        self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.until_timer())
    }

    /// True if a poll may return something. It may still be pending, after half of a record.
    pub fn is_available(&self) -> bool {
        let is_due = |checkpoints: &Checkpoints| checkpoints.is_due(&*self.gate);
        self.current.is_some()
            || self.has_rows()
            || self.gate.is_available()
            || self.checkpoints.as_deref().is_some_and(is_due)
    }

    /// True once everything was read: all channels have ended, and none can be added.
    pub fn is_finished(&self) -> bool {
        let is_idle = self.checkpoints.as_ref().is_none_or(|checkpoints| checkpoints.is_idle());
        is_idle && !self.has_rows() && self.gate.is_finished()
    }

    fn has_rows(&self) -> bool {
        self.coalescing.as_ref().is_some_and(|coalescing| !coalescing.is_empty())
    }

    /// Returns the next record that needs no wait: from the current buffer, or coalesced rows once
    /// nothing can be added to them.
    fn next_ready(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(next) = self.coalescing.as_mut().and_then(Coalescing::next) {
                return next.map(Some);
            }
            let next = match self.next_buffered() {
                Ok(None) if self.has_rows() => self.receive_available(),
                next => next.map(Poll::Ready),
            };
            let next = match next {
                Ok(Poll::Pending) => continue,
                Ok(Poll::Ready(next)) => Ok(next),
                Err(error) => Err(error),
            };
            let Some(coalescing) = &mut self.coalescing else {
                return next;
            };
            coalescing.end_batch(next);
            return coalescing.next().transpose();
        }
    }

    /// Receives one buffer if one is available, and returns its first record. None if none is
    /// available, or at an end. Pending if the buffer completed no record.
    fn receive_available(&mut self) -> Result<Poll<Option<Record>>> {
        // A poll that finds nothing would start the reader's idle time, although it has rows to
        // return.
        if !self.gate.is_available() {
            return Ok(Poll::Ready(None));
        }
        match self.gate.poll_next().inspect_err(|e| self.release(e))? {
            Poll::Ready(Some(received)) => Ok(match self.receive(received)? {
                None => Poll::Pending,
                next => Poll::Ready(next),
            }),
            Poll::Pending | Poll::Ready(None) => Ok(Poll::Ready(None)),
        }
    }

    /// Returns the next record of the current buffer, if it holds another one.
    fn next_buffered(&mut self) -> Result<Option<Record>> {
        while let Some(channel) = self.current {
            let Some(record) = self.next_in_buffer(channel)? else {
                self.current = None;
                break;
            };
            if let Some(record) = self.record(channel, record)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns all bytes of a channel that were taken from the gate and not yet returned as a
    /// record, unchanged: a checkpoint of the channel would have to keep them. Coalesced rows that
    /// were not returned yet are not among them.
    ///
    /// # Errors
    /// A spill file that cannot be read.
    pub fn unconsumed(&self, channel: usize) -> Result<Vec<Bytes>> {
        unconsumed(&self.channels, channel)
    }

    /// Frees incomplete records after an error: their ends will not come.
    fn release(&mut self, error: &ExchangeError) {
        if !matches!(error, ExchangeError::Interrupted(_)) {
            self.channels.iter_mut().for_each(|channel| channel.deserializer.clear());
        }
    }

    fn receive(&mut self, received: Received) -> Result<Option<Record>> {
        let Received { channel, buffer, data_type, totals, .. } = received;
        if self.channels.len() <= channel {
            self.add_channels(channel + 1)?;
        }
        self.counters.add(0, buffer.len() as u64, 1);
        let within = self.channels[channel].deserializer.has_unconsumed();
        // Only an event with priority may come between two parts of a record.
        if within && data_type != DataType::DataBuffer && !data_type.has_priority() {
            let detail = format!("a record is cut off by {data_type:?}");
            return Err(ExchangeError::Integrity {
                channel: self.gate.channel_name(channel),
                detail,
            });
        }
        match data_type {
            DataType::DataBufferWithClearEnd => self.page(channel, buffer),
            DataType::DataBuffer => {
                let bytes = buffer.into_bytes();
                let deserializer = &mut self.channels[channel].deserializer;
                deserializer
                    .set_next_buffer(bytes)
                    .map_err(|e| ExchangeError::of_spanning(e, &self.gate.channel_name(channel)))?;
                self.current = Some(channel);
                Ok(None)
            }
            DataType::EndOfPartition => self.end(channel, totals, buffer.len()),
            _ => {
                let event = event::decode(buffer.as_slice(), data_type)?;
                self.event(channel, event, buffer.len())
            }
        }
    }

    /// Creates the state of channels before their first buffer is read.
    fn add_channels(&mut self, count: usize) -> Result<()> {
        self.take_checkpointed();
        self.gate.checkpointing().begin_reading()?;
        while self.channels.len() < count {
            self.channels.push(ChannelState::new(self.spanning.deserializer(&self.pages.copies)));
        }
        Ok(())
    }

    /// Starts the barrier handler if the gate has come to take checkpoints.
    fn take_checkpointed(&mut self) {
        if let Some((after_finish, channels)) = self.gate.take_checkpointed() {
            self.checkpoints = Some(Box::new(Checkpoints::new(after_finish, channels)));
        }
    }

    /// Hands an event to the barrier handler if the gate takes checkpoints; returns other events.
    fn event(&mut self, channel: usize, event: Event, size: usize) -> Result<Option<Record>> {
        let bytes = self.counters.bytes();
        let Some(checkpoints) = &mut self.checkpoints else {
            return Ok(Some(Record::Event { channel, event }));
        };
        checkpoints.count_event(size);
        match checkpoints.on_event(channel, event, bytes)? {
            Some(event) => Ok(Some(Record::Event { channel, event })),
            None => self.next_of_checkpoints(),
        }
    }

    /// Returns the bytes of the next record in the channel's current buffer.
    fn next_in_buffer(&mut self, channel: usize) -> Result<Option<Bytes>> {
        let result = self.channels[channel]
            .deserializer
            .next_record()
            .map_err(|e| ExchangeError::of_deserialize(e, &self.gate.channel_name(channel)))?;
        Ok(result.into_record())
    }

    fn record(&mut self, channel: usize, record: Bytes) -> Result<Option<Record>> {
        if self.pages.schema.is_some() {
            Copies::count(&self.pages.copies.spanning, record.len());
            return self.page(channel, record.into());
        }
        self.channels[channel].rows += 1;
        self.counters.add(1, 0, 0);
        Ok(Some(Record::Bytes(record)))
    }

    /// Returns the batch of a page, or copies its rows to be coalesced.
    fn page(&mut self, channel: usize, page: Buffer) -> Result<Option<Record>> {
        let waits = self.coalescing.as_ref().is_some_and(|coalescing| {
            // With nothing to coalesce it with, the page is returned without a copy.
            let is_alone = coalescing.is_empty() && !self.gate.is_available();
            !is_alone && !coalescing.is_large(page.len())
        });
        // Dropped last where no batch is returned: a buffer leaves foreign memory to the user's threads,
        // but a batch over it frees it at once, here under the caller's locks.
        let memory = page.clone();
        if !waits {
            let batch = self.batch(channel, page, true)?;
            // The batch holds all foreign memory of the page, which must end with the batch.
            drop(memory.into_pieces());
            return Ok(Some(Record::Batch(batch)));
        }
        Copies::count(&self.pages.copies.coalesced, page.len());
        let batch = self.batch(channel, page, false)?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.push(&batch, || self.gate.channel_name(channel))?;
        }
        Ok(None)
    }

    fn batch(&mut self, channel: usize, page: Buffer, is_kept: bool) -> Result<RecordBatch> {
        let batch = self.pages.batch(page, is_kept, || self.gate.channel_name(channel))?;
        self.channels[channel].rows += batch.num_rows() as u64;
        self.counters.add(batch.num_rows() as u64, 0, 0);
        Ok(batch)
    }

    /// Compares the rows that arrived with the rows that were sent.
    fn end(
        &mut self,
        channel: usize,
        totals: Option<Totals>,
        size: usize,
    ) -> Result<Option<Record>> {
        let state = &self.channels[channel];
        let sent = totals.map_or(0, |totals| totals.rows);
        if state.rows == sent {
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.count_event(size);
                checkpoints.on_end_of_partition(channel)?;
            }
            return self.next_of_checkpoints();
        }
        let detail = format!("{} rows arrived, {sent} were sent", state.rows);
        Err(ExchangeError::Integrity { channel: self.gate.channel_name(channel), detail })
    }
}
