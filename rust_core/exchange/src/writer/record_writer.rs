//! `RecordWriter`: the one writer of a partition, its events, and its life up to the end.
//!
//! Decision: ADR 0015.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use fastrand::Rng;
use headgate_protocol::{Alignment, CheckpointId, DataType};
use headgate_record::event::Barrier;
use headgate_record::{Event, PageSchema, Selector, StopMode};

use super::arrow::ArrowRecords;
use super::barriers::Barriers;
use super::lane::Lane;
use super::records::{Destination, Records};
use super::stream::StreamWriter;
use super::timeout::BufferTimeout;
use crate::clock;
use crate::counters::Counters;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::event::data_type_of;
use crate::flusher::TimedFlush;
use crate::partition::{PartitionKind, ResultPartition};
use crate::random::random;
use crate::reader::ChannelStates;

/// Writes record batches as pages. A row that is too wide for a page spans buffers.
pub type ArrowWriter = RecordWriter<ArrowRecords>;

/// Writes records of bytes one behind the other. A record that does not fit its buffer spans
/// buffers.
pub type BytesWriter = RecordWriter<StreamWriter>;

/// The one writer of a partition, for one kind of records.
pub struct RecordWriter<R> {
    records: R,
    to: Destination,
    choices: Rng,
    barriers: Arc<Barriers>,
    /// The newest barrier with the output flusher, if that has a timeout.
    timed_barrier: Option<Arc<TimedFlush>>,
    /// True once the end of data was announced.
    ended: bool,
    finished: bool,
}

impl RecordWriter<ArrowRecords> {
    /// Creates the one writer of a partition.
    ///
    /// # Errors
    /// When the partition was created for another schema.
    pub fn new(
        partition: Arc<ResultPartition>,
        schema: Arc<PageSchema>,
        selector: Selector,
        max_record_size: usize,
    ) -> Result<Self> {
        let counters = Arc::<Counters>::default();
        let records = ArrowRecords::new(&partition, schema, max_record_size, &counters)?;
        Self::of(records, partition, selector, counters)
    }

    /// Emits each row to the subpartition that `ids` names for it.
    ///
    /// # Errors
    /// As [`emit`](Self::emit), and ids that are out of range or too few.
    pub fn emit_to(
        &mut self,
        batch: &RecordBatch,
        ids: &[u32],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        self.check_emits()?;
        self.records.emit_to(&self.to, batch, ids, interrupt)
    }

    /// Returns the schema of its pages.
    pub fn schema(&self) -> &Arc<PageSchema> {
        self.records.schema()
    }
}

impl RecordWriter<StreamWriter> {
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
        let records = StreamWriter::new(&partition, max_record_size);
        Self::of(records, partition, selector, Arc::default())
    }

    /// Emits one record to the named subpartition.
    ///
    /// # Errors
    /// As [`emit`](Self::emit), and a subpartition that does not exist.
    pub fn emit_to(&mut self, index: u32, record: Bytes, interrupt: Interrupt<'_>) -> Result<()> {
        self.check_emits()?;
        let count = self.to.num_subpartitions();
        if index >= count {
            return Err(ExchangeError::OutOfRange { row: 0, channel: index.into(), count });
        }
        let lane = Lane::One(index as usize);
        self.records.emit(&mut self.to, Some(lane), &record, interrupt)
    }
}

impl<R: Records> RecordWriter<R> {
    fn of(
        records: R,
        partition: Arc<ResultPartition>,
        selector: Selector,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        if matches!(selector, Selector::LeastLoaded { .. }) {
            partition.balance_loads();
        }
        // Seeded by the operating system: fastrand's own seeds repeat in forked processes.
        let choices = Rng::with_seed(u64::from_le_bytes(random()?));
        Ok(Self {
            records,
            barriers: Arc::new(Barriers::new(Arc::clone(&partition))),
            to: Destination { partition, selector, counters, flush_always: false, timed: None },
            choices,
            timed_barrier: None,
            ended: false,
            finished: false,
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
        self.to.flush_always = timeout == BufferTimeout::EveryRecord;
        self.to.timed = None;
        // A blocking partition is not read before its end.
        let is_timed = self.to.partition.kind() != PartitionKind::Blocking;
        if let (true, BufferTimeout::After(timeout)) = (is_timed, timeout) {
            let flush = self.records.timed_flush(&self.to);
            let timed =
                environment.flusher().register(timeout, flush, failing(&self.to.partition))?;
            self.to.timed = Some(timed);
        }
        Ok(self)
    }

    /// Emits a record, or a batch, to the subpartitions that the selector names.
    ///
    /// # Errors
    /// A batch of another schema, a record or a row above the limit, the failure of the partition, or
    /// what the interrupt says.
    pub fn emit<'a>(
        &mut self,
        record: impl Into<R::Record<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        self.check_emits()?;
        self.records.emit(&mut self.to, None, record.into(), interrupt)
    }

    /// Emits a record, or a whole batch, to each subpartition. All of them share one copy of it, or its
    /// own memory.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn broadcast_emit<'a>(
        &mut self,
        record: impl Into<R::Record<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        self.check_emits()?;
        self.records.emit(&mut self.to, Some(Lane::All), record.into(), interrupt)
    }

    /// Emits a record, or a whole batch, to one random subpartition, all equally likely.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn random_emit<'a>(
        &mut self,
        record: impl Into<R::Record<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        self.check_emits()?;
        let lane = Lane::One(self.choices.u32(..self.to.num_subpartitions()) as usize);
        self.records.emit(&mut self.to, Some(lane), record.into(), interrupt)
    }

    /// Appends an event to each subpartition, behind all that was emitted so far. It needs no segment of
    /// the pool, yet must fit one: nothing larger crosses a connection.
    ///
    /// # Errors
    /// After [`finish`](Self::finish), or an event that cannot be encoded or is too large.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<()> {
        self.broadcast_event_as(event, data_type_of(event, false))
    }

    /// Like [`broadcast_event`](Self::broadcast_event), with a data type that may give the event
    /// priority over the data, or block the subpartitions until their consumers resume.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event), and a type that a stored partition cannot take.
    pub fn broadcast_event_as(&mut self, event: &Event, data_type: DataType) -> Result<()> {
        self.end_all()?;
        let bytes = self.checked(event, data_type)?;
        for subpartition in self.to.partition.subpartitions() {
            subpartition.add_event(bytes.clone(), data_type);
        }
        Ok(())
    }

    /// Sends the barrier of a checkpoint to each subpartition: behind all that was emitted, or, if it
    /// is unaligned, ahead of what waits. One with a timeout overtakes what still waits by then: the
    /// environment's output flusher sees to it.
    ///
    /// # Errors
    /// As [`broadcast_event_as`](Self::broadcast_event_as), or when the flusher cannot be started.
    pub fn broadcast_barrier(
        &mut self,
        barrier: &Barrier,
        environment: &ShuffleEnvironment,
    ) -> Result<()> {
        self.end_all()?;
        let is_priority = barrier.options.alignment == Alignment::Unaligned;
        let event = Event::CheckpointBarrier(barrier.clone());
        let data_type = data_type_of(&event, is_priority);
        self.checked(&event, data_type)?;
        self.timed_barrier = None;
        self.barriers.send(barrier, data_type)?;
        if let Some(deadline) = barrier.deadline() {
            let (barriers, fail) = (Arc::clone(&self.barriers), failing(&self.to.partition));
            let overtake = move || {
                if let Err(error) = barriers.time_out() {
                    fail(&error);
                }
                false
            };
            let (after, fail) = (clock::until(deadline), failing(&self.to.partition));
            let timed = environment.flusher().register(after, overtake, fail)?;
            timed.written();
            self.timed_barrier = Some(timed);
        }
        Ok(())
    }

    /// Tells the consumers, behind all that was emitted, that a checkpoint was given up.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub fn broadcast_cancellation(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.check_open()?;
        self.barriers.cancel(checkpoint);
        let event = Event::CancelCheckpointMarker { checkpoint_id: checkpoint.0 };
        self.broadcast_event_as(&event, DataType::EventBuffer)
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
        self.barriers.take_channel_state(checkpoint)
    }

    /// Announces the end of the user's records to the consumers. Only events may be emitted between
    /// this and [`finish`](Self::finish).
    ///
    /// # Errors
    /// When it was announced before, or as [`broadcast_event`](Self::broadcast_event).
    pub fn end_of_data(&mut self, mode: StopMode) -> Result<()> {
        if self.ended {
            return Err(ExchangeError::State("the end of data was announced before"));
        }
        self.broadcast_event_as(&Event::EndOfData(mode), DataType::EndOfData)?;
        self.ended = true;
        Ok(())
    }

    /// Shows everything emitted so far to the consumers, in buffers that are not full.
    ///
    /// # Errors
    /// Why the output flusher failed.
    pub fn flush(&mut self) -> Result<()> {
        self.check_flusher()?;
        self.records.flush(&self.to);
        Ok(())
    }

    /// Ends every subpartition. Nothing can be emitted afterwards.
    ///
    /// # Errors
    /// Why the output flusher failed, or a disk that cannot be written; the partition has failed
    /// too then.
    pub fn finish(&mut self) -> Result<()> {
        self.check_flusher()?;
        if !std::mem::replace(&mut self.finished, true) {
            self.to.timed = None;
            self.records.end_all(&self.to);
            self.to.partition.finish()?;
        }
        Ok(())
    }

    /// Returns the counters of emitted data. Data for several subpartitions counts once for each,
    /// and open pages count only when they are sent.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.to.counters
    }

    /// Returns the partition that it writes.
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.to.partition
    }

    /// Ends all open buffers, so that an event can follow them.
    ///
    /// # Errors
    /// As [`check_open`](Self::check_open).
    fn end_all(&mut self) -> Result<()> {
        self.check_open()?;
        self.records.end_all(&self.to);
        Ok(())
    }

    /// # Errors
    /// Why the output flusher failed.
    fn check_flusher(&self) -> Result<()> {
        self.to.timed.as_ref().map_or(Ok(()), |timed| timed.check())
    }

    /// # Errors
    /// After the end, or the failure of the flusher or of the partition.
    fn check_open(&self) -> Result<()> {
        if self.finished {
            return Err(ExchangeError::Closed("record writer"));
        }
        self.check_flusher()?;
        self.to.partition.check()
    }

    /// # Errors
    /// As [`check_open`](Self::check_open), and after the end of data.
    fn check_emits(&self) -> Result<()> {
        if self.ended {
            return Err(ExchangeError::State(
                "the end of data was announced: no record can follow it",
            ));
        }
        self.check_open()
    }

    /// Encodes an event that can be sent to every subpartition.
    fn checked(&self, event: &Event, data_type: DataType) -> Result<Bytes> {
        let partition = &self.to.partition;
        let overtakes_or_blocks = data_type.has_priority() || data_type.blocks_upstream();
        if overtakes_or_blocks && partition.kind().is_stored() {
            return Err(ExchangeError::State(
                "a blocking or hybrid partition takes no barrier and no event with priority: what is \
                 on disk cannot be overtaken",
            ));
        }
        let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
        let limit = partition.segments().segment_size() as u64;
        let size = bytes.len() as u64;
        if size > limit {
            return Err(ExchangeError::EventTooLarge { size, limit });
        }
        Ok(bytes)
    }
}

/// Returns the call by which the output flusher fails a partition.
fn failing(partition: &Arc<ResultPartition>) -> impl Fn(&ExchangeError) + Send + Sync + use<> {
    let partition = Arc::clone(partition);
    move |cause| partition.fail(cause)
}
