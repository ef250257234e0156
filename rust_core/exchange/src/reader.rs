//! From buffers back to records (spec 0, 6, 8).
//!
//! Decision: ADR 0020.

use std::sync::Arc;
use std::task::Poll;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_protocol::{DataType, Totals};
use headgate_record::{Event, PageSchema, SpanningDeserializer, read_page, read_pieces};

use crate::aligned::Aligned;
use crate::copies::Copies;
use crate::counters::Counters;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::event;
use crate::gate::{DataInput, Received};
use crate::spanning::{RecordFiles, SpanningOptions};

mod coalescing;

use coalescing::Coalescing;

/// What a reader returns.
#[derive(Debug)]
pub enum Record {
    /// Rows, over the segment they arrived in where that is possible.
    Batch(RecordBatch),
    /// A bytes record; it may borrow its segment, so it is not to be kept.
    Bytes(Bytes),
    /// An event of a channel.
    Event {
        /// Index of the channel in the gate.
        channel: usize,
        /// What it is.
        event: Event,
    },
}

struct ChannelState {
    deserializer: SpanningDeserializer<RecordFiles>,
    rows: u64,
}

/// Reads the records of a gate, fair over its channels, each channel in order.
pub struct RecordReader {
    gate: Arc<dyn DataInput>,
    /// `None`: records are bytes.
    schema: Option<Arc<PageSchema>>,
    spanning: SpanningOptions,
    channels: Vec<ChannelState>,
    /// A channel whose current buffer may hold another record.
    current: Option<usize>,
    /// Stops at the end of each superstep.
    iterative: bool,
    /// Where small batches are put together.
    coalescing: Option<Coalescing>,
    copies: Arc<Copies>,
    counters: Arc<Counters>,
}

impl RecordReader {
    /// A reader that is the only one of its gate.
    pub fn new(
        gate: Arc<dyn DataInput>,
        schema: Option<Arc<PageSchema>>,
        spanning: SpanningOptions,
        copies: Arc<Copies>,
    ) -> Self {
        Self {
            gate,
            schema,
            spanning,
            channels: Vec::new(),
            current: None,
            iterative: false,
            coalescing: None,
            copies,
            counters: Arc::default(),
        }
    }

    /// Stops at the end of each superstep, counted over all channels, until the next is started.
    #[must_use]
    pub fn iterative(mut self) -> Self {
        self.iterative = true;
        self
    }

    /// Puts batches together, of one channel or several, into batches of up to so many bytes. What is read
    /// is the same in the same order; a reader of bytes records has no batches to put together.
    ///
    /// Rows wait for others only as long as there is something to read: before the reader would block, or
    /// an event, the end or an error comes, they are returned.
    #[must_use]
    pub fn with_batch_bytes(mut self, batch_bytes: usize) -> Self {
        let schema = self.schema.as_ref().map(Arc::clone);
        self.coalescing = schema.map(|schema| Coalescing::new(schema, batch_bytes));
        self
    }

    /// The gate it reads.
    pub fn gate(&self) -> &Arc<dyn DataInput> {
        &self.gate
    }

    /// What the batches look like; `None` for bytes.
    pub fn schema(&self) -> Option<&Arc<PageSchema>> {
        self.schema.as_ref()
    }

    /// What was returned so far, and the bytes and buffers it came in.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The next record or event; `None` after the end of all channels, or of the superstep.
    ///
    /// # Errors
    /// What ended a channel or the gate, or what the interrupt says.
    pub fn next(&mut self, interrupt: Interrupt<'_>) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.next_at_hand()? {
                return Ok(Some(record));
            }
            let Some(received) = self.gate.next(interrupt).inspect_err(|e| self.release(e))? else {
                return Ok(None);
            };
            if let Some(record) = self.receive(received)? {
                return Ok(Some(record));
            }
        }
    }

    /// Like [`next`](Self::next), but pending where that would block.
    ///
    /// # Errors
    /// What ended a channel or the gate.
    pub fn poll_next(&mut self) -> Result<Poll<Option<Record>>> {
        loop {
            if let Some(record) = self.next_at_hand()? {
                return Ok(Poll::Ready(Some(record)));
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

    /// Whether a poll is worth it; it may still find nothing, such as half of a record.
    pub fn is_available(&self) -> bool {
        self.current.is_some() || self.has_rows() || self.gate.is_available()
    }

    /// Whether everything was read: all channels have ended, and none can come.
    pub fn is_finished(&self) -> bool {
        !self.has_rows() && self.gate.is_finished()
    }

    /// Whether all channels reached the end of the superstep; of a reader that is iterative.
    pub fn has_reached_end_of_superstep(&self) -> bool {
        !self.has_rows() && self.gate.has_reached_end_of_superstep()
    }

    /// Goes on with the records after the end of the superstep.
    ///
    /// # Errors
    /// [`ExchangeError::State`] before all channels reached that end.
    pub fn start_next_superstep(&self) -> Result<()> {
        if self.has_rows() {
            return Err(ExchangeError::State(
                "rows of this superstep are not read yet: read on before the next",
            ));
        }
        self.gate.start_next_superstep()
    }

    fn has_rows(&self) -> bool {
        self.coalescing.as_ref().is_some_and(|coalescing| !coalescing.is_empty())
    }

    /// What the buffer that was read last still holds; and rows that were put together, once there is
    /// nothing to read any more that could follow them.
    fn next_at_hand(&mut self) -> Result<Option<Record>> {
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

    /// The next record of what waits to be read, none if nothing does, or at an end; pending if there is
    /// none yet in what was received.
    fn receive_available(&mut self) -> Result<Poll<Option<Record>>> {
        // A poll that finds nothing would begin the reader's idle time, and it has rows to work on.
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

    /// The next record of the buffer that was read last, if it holds another one.
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

    /// All bytes of a channel that were taken from the gate and not yet returned as a record, exactly as
    /// they came: what a checkpoint would have to keep of it. Rows that were put together and wait to be
    /// returned are not among them.
    ///
    /// # Errors
    /// A spill file that cannot be read.
    pub fn unconsumed(&self, channel: usize) -> Result<Vec<Bytes>> {
        let state = self.channels.get(channel);
        state.map_or_else(|| Ok(Vec::new()), |state| state.deserializer.unconsumed().collect())
    }

    /// Gives back what parts of records hold once no more will come.
    fn release(&mut self, error: &ExchangeError) {
        if !matches!(error, ExchangeError::Interrupted) {
            self.channels.iter_mut().for_each(|channel| channel.deserializer.clear());
        }
    }

    fn receive(&mut self, received: Received) -> Result<Option<Record>> {
        let Received { channel, buffer, data_type, totals, .. } = received;
        while self.channels.len() <= channel {
            let deserializer = self.spanning.deserializer(&self.copies);
            self.channels.push(ChannelState { deserializer, rows: 0 });
        }
        self.counters.add(0, buffer.len() as u64, 1);
        let within = self.channels[channel].deserializer.has_unconsumed();
        // Only what overtakes may come between two parts of a record.
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
            DataType::EndOfPartition => self.end(channel, totals).map(|()| None),
            _ => self.event(channel, event::decode(buffer.as_slice(), data_type)?),
        }
    }

    fn event(&self, channel: usize, event: Event) -> Result<Option<Record>> {
        match event {
            Event::EndOfSuperstep if self.iterative => {
                self.gate.end_superstep(channel);
                Ok(None)
            }
            Event::EndOfSuperstep => Err(ExchangeError::State(
                "a superstep ended, and this reader is not iterative: create it with iterative=True",
            )),
            event => Ok(Some(Record::Event { channel, event })),
        }
    }

    /// The bytes of the next record of the channel's current buffer.
    fn next_in_buffer(&mut self, channel: usize) -> Result<Option<Bytes>> {
        let result = self.channels[channel]
            .deserializer
            .next_record()
            .map_err(|e| ExchangeError::of_deserialize(e, &self.gate.channel_name(channel)))?;
        Ok(result.into_record())
    }

    fn record(&mut self, channel: usize, record: Bytes) -> Result<Option<Record>> {
        if self.schema.is_some() {
            Copies::count(&self.copies.spanning, record.len());
            return self.page(channel, record.into());
        }
        self.channels[channel].rows += 1;
        self.counters.add(1, 0, 0);
        Ok(Some(Record::Bytes(record)))
    }

    /// The batch of a page, unless its rows wait for others.
    fn page(&mut self, channel: usize, page: Buffer) -> Result<Option<Record>> {
        let waits = self.coalescing.as_ref().is_some_and(|coalescing| {
            // What comes alone goes alone, without a copy.
            let is_alone = coalescing.is_empty() && !self.gate.is_available();
            !is_alone && !coalescing.is_large(page.len())
        });
        if !waits {
            let batch = self.batch(channel, page, true)?;
            return Ok(Some(Record::Batch(batch)));
        }
        Copies::count(&self.copies.coalesced, page.len());
        let batch = self.batch(channel, page, false)?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.push(&batch, || self.gate.channel_name(channel))?;
        }
        Ok(None)
    }

    fn batch(&mut self, channel: usize, page: Buffer, is_kept: bool) -> Result<RecordBatch> {
        let Some(schema) = &self.schema else {
            return Err(ExchangeError::WrongRecords(
                "the producer writes Arrow batches, this reader expects bytes",
            ));
        };
        let read = match page.into_pieces() {
            Ok(pieces) => read_pieces(schema, pieces),
            Err(page) if is_kept => read_page(schema, self.keep(page)),
            Err(page) => read_page(schema, page.into_bytes()),
        };
        let batch = read.map_err(|source| {
            let channel = self.gate.channel_name(channel);
            ExchangeError::Page { channel, source: Arc::new(source) }
        })?;
        self.channels[channel].rows += batch.num_rows() as u64;
        self.counters.add(batch.num_rows() as u64, 0, 0);
        Ok(batch)
    }

    /// Memory the caller may keep: the segment itself, or a copy when too many are kept already.
    fn keep(&self, buffer: Buffer) -> Bytes {
        if buffer.pin() {
            return buffer.into_bytes();
        }
        Copies::count(&self.copies.pool_low, buffer.len());
        Bytes::from_owner(Aligned(arrow_buffer::Buffer::from_slice_ref(buffer.as_slice())))
    }

    fn end(&self, channel: usize, totals: Option<Totals>) -> Result<()> {
        let state = &self.channels[channel];
        let sent = totals.map_or(0, |totals| totals.rows);
        if state.rows == sent {
            return Ok(());
        }
        let detail = format!("{} rows arrived, {sent} were sent", state.rows);
        Err(ExchangeError::Integrity { channel: self.gate.channel_name(channel), detail })
    }
}
