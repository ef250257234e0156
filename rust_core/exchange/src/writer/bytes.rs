//! `BytesWriter`: writes records of bytes.

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use headgate_protocol::{CheckpointId, DataType};
use headgate_record::event::Barrier;
use headgate_record::{Event, Selection, Selector, StopMode};

use super::lane::Lane;
use super::state::{WriterState, random_choices};
use super::stream::StreamWriter;
use super::timeout::BufferTimeout;
use crate::counters::Counters;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::event::data_type_of;
use crate::partition::ResultPartition;
use crate::reader::ChannelStates;

/// Writes records of bytes one behind the other. A record that does not fit its buffer spans
/// buffers.
pub struct BytesWriter {
    partition: Arc<ResultPartition>,
    stream: StreamWriter,
    selector: Selector,
    choices: Rng,
    counters: Arc<Counters>,
    state: WriterState,
}

impl BytesWriter {
    /// Creates the one writer of a partition.
    ///
    /// # Errors
    /// A selector of columns: bytes have none.
    pub fn new(
        partition: Arc<ResultPartition>,
        selector: Selector,
        max_record_size: usize,
    ) -> Result<Self> {
        if matches!(selector, Selector::Hash { .. } | Selector::KeyGroup { .. }) {
            return Err(ExchangeError::WrongRecords("records of bytes have no columns to hash"));
        }
        let stream = StreamWriter::new(&partition, max_record_size);
        let counters = Arc::default();
        let choices = random_choices()?;
        Ok(Self {
            state: WriterState::new(Arc::clone(&partition)),
            partition,
            stream,
            selector,
            choices,
            counters,
        })
    }

    /// Sets another timeout than [`BufferTimeout::Never`].
    ///
    /// # Errors
    /// When the environment's output flusher cannot be started.
    pub fn with_buffer_timeout(
        mut self,
        timeout: BufferTimeout,
        environment: &ShuffleEnvironment,
    ) -> Result<Self> {
        let partition = Arc::clone(&self.partition);
        let flush = move || {
            StreamWriter::flush(&partition);
            false
        };
        self.state.set_timeout(timeout, environment, flush)?;
        Ok(self)
    }

    /// Emits one record to the subpartition that the selector names.
    ///
    /// # Errors
    /// A record above the limit, the failure of the partition, or what the interrupt says.
    pub fn emit(&mut self, record: &Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        match self.selector.select_record(self.num_subpartitions())? {
            Selection::One(index) => self.emit_to(index, record.clone(), interrupt),
            Selection::All | Selection::Rows => self.broadcast_emit(record, interrupt),
        }
    }

    /// Emits one record to each subpartition. All of them share one segment.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn broadcast_emit(&mut self, record: &Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        self.write(Lane::All, record.clone(), interrupt)
    }

    /// Emits one record to one random subpartition, all equally likely.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn random_emit(&mut self, record: &Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        let index = self.choices.u32(..self.num_subpartitions());
        self.write(Lane::One(index as usize), record.clone(), interrupt)
    }

    /// Emits one record to the named subpartition.
    ///
    /// # Errors
    /// As [`emit`](Self::emit), and a subpartition that does not exist.
    pub fn emit_to(&mut self, index: u32, record: Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        let count = self.num_subpartitions();
        if index >= count {
            self.state.check_open()?;
            return Err(ExchangeError::OutOfRange { row: 0, channel: index.into(), count });
        }
        self.write(Lane::One(index as usize), record, interrupt)
    }

    fn write(&mut self, lane: Lane, record: Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        self.state.check_emits()?;
        if !lane.is_wanted(&self.partition) {
            return self.partition.check();
        }
        let bytes = record.len() as u64;
        let flush = self.state.flush_always;
        let completed = self.stream.write(&self.partition, lane, record, true, flush, interrupt)?;
        if let Some(timed) = &self.state.timed {
            timed.written();
        }
        let targets = lane.targets(&self.partition);
        self.counters.add(targets.len() as u64, targets.len() as u64 * bytes, completed);
        Ok(())
    }

    /// Appends an event to each subpartition, behind all records emitted so far.
    ///
    /// # Errors
    /// After [`finish`](Self::finish), or an event that cannot be encoded.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<()> {
        self.broadcast_event_as(event, data_type_of(event, false))
    }

    /// Like [`broadcast_event`](Self::broadcast_event), with a data type that may give the event
    /// priority over the data, or block the subpartitions until their consumers resume.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub fn broadcast_event_as(&mut self, event: &Event, data_type: DataType) -> Result<()> {
        self.state.check_open()?;
        self.end_all();
        self.state.broadcast_event(event, data_type)
    }

    /// Sends the barrier of a checkpoint to each subpartition: behind all that was emitted, or, if it
    /// is unaligned, ahead of what waits. One with a timeout overtakes what still waits by then.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event), and a partition whose data goes to disk.
    pub fn broadcast_barrier(
        &mut self,
        barrier: &Barrier,
        environment: &ShuffleEnvironment,
    ) -> Result<()> {
        self.state.check_open()?;
        self.end_all();
        self.state.broadcast_barrier(barrier, environment)
    }

    /// Tells the consumers, behind all that was emitted, that a checkpoint was given up.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub fn broadcast_cancellation(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.state.check_open()?;
        self.end_all();
        self.state.broadcast_cancellation(checkpoint)
    }

    /// Takes the data that the newest barrier, of this checkpoint, overtook: for each subpartition
    /// that has any, its index and a part of its channel state. `None` while the barrier waits behind
    /// data and its timeout has not passed.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: another barrier was sent last, or it was taken.
    pub fn take_channel_state(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<ChannelStates>> {
        self.state.take_channel_state(checkpoint)
    }

    /// Announces the end of the user's records. Only events may follow before
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// When it was announced before, or as [`broadcast_event`](Self::broadcast_event).
    pub fn end_of_data(&mut self, mode: StopMode) -> Result<()> {
        self.state.check_not_ended()?;
        self.broadcast_event_as(&Event::EndOfData(mode), DataType::EndOfData)?;
        self.state.end();
        Ok(())
    }

    /// Shows everything emitted so far to the consumers, unfinished buffers too.
    ///
    /// # Errors
    /// Why the output flusher failed.
    pub fn flush(&self) -> Result<()> {
        self.state.check_flusher()?;
        StreamWriter::flush(&self.partition);
        Ok(())
    }

    /// Ends every subpartition. Nothing can be emitted afterwards.
    ///
    /// # Errors
    /// Why the output flusher failed, or a disk that cannot be written; the partition has failed
    /// too then.
    pub fn finish(&mut self) -> Result<()> {
        self.state.check_flusher()?;
        if self.state.finish() {
            self.end_all();
            self.partition.finish()?;
        }
        Ok(())
    }

    /// Returns counters of what was emitted, once for each subpartition that gets it.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the partition that it writes.
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.partition
    }

    fn end_all(&mut self) {
        let ended = self.stream.end_all(&self.partition);
        self.counters.add(0, 0, ended);
    }

    fn num_subpartitions(&self) -> u32 {
        u32::try_from(self.partition.num_subpartitions()).expect("checked when it was made")
    }
}
