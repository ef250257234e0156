//! `ArrowWriter`: scatters the rows of record batches into the open pages of the subpartitions.

use std::sync::Arc;

use arrow_array::RecordBatch;
use fastrand::Rng;
use headgate_protocol::{CheckpointId, DataType};
use headgate_record::event::Barrier;
use headgate_record::{
    Event, PageSchema, Scatter, Selection, Selector, Source, StopMode, encode_rows, encoded_len,
};

use super::emitted::Emitted;
use super::lane::Lane;
use super::pages::{OpenPages, Rows};
use super::state::{WriterState, random_choices};
use super::stream::StreamWriter;
use super::timeout::BufferTimeout;
use crate::counters::Counters;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::event::data_type_of;
use crate::partition::ResultPartition;
use crate::reader::ChannelStates;

/// Writes record batches as pages. A row that is too wide for a page spans buffers.
pub struct ArrowWriter {
    partition: Arc<ResultPartition>,
    schema: Arc<PageSchema>,
    selector: Selector,
    choices: Rng,
    pages: Arc<OpenPages>,
    stream: StreamWriter,
    max_record_size: usize,
    ids: Vec<u32>,
    scatter: Scatter,
    counters: Arc<Counters>,
    state: WriterState,
}

impl ArrowWriter {
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
        if !partition.fix_schema(schema.hash()) {
            return Err(ExchangeError::WrongRecords(
                "the partition was created for another schema",
            ));
        }
        let counters = Arc::<Counters>::default();
        let parts = (Arc::clone(&partition), Arc::clone(&schema), Arc::clone(&counters));
        Ok(Self {
            pages: OpenPages::new(parts.0, parts.1, parts.2),
            stream: StreamWriter::new(&partition, max_record_size),
            state: WriterState::new(Arc::clone(&partition)),
            partition,
            schema,
            selector,
            choices: random_choices()?,
            max_record_size,
            ids: Vec::new(),
            scatter: Scatter::new(),
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
        let pages = Arc::clone(&self.pages);
        self.state.set_timeout(timeout, environment, move || pages.flush_by_time())?;
        Ok(self)
    }

    /// Emits a batch to the subpartitions that the selector names.
    ///
    /// # Errors
    /// The batch has another schema, a row is above the limit, the partition has failed, or the
    /// interrupt raised an error.
    pub fn emit<'a>(
        &mut self,
        batch: impl Into<Emitted<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let Emitted { batch, pinned } = batch.into();
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        let mut ids = std::mem::take(&mut self.ids);
        let selection = self.selector.select(batch, self.num_subpartitions(), &mut ids);
        let emitted =
            selection.map_err(ExchangeError::from).and_then(|selection| match selection {
                Selection::All => self.append_all(Lane::All, &source, pinned, interrupt),
                Selection::One(index) => {
                    self.append_all(Lane::One(index as usize), &source, pinned, interrupt)
                }
                Selection::Rows => self.scatter(&source, &ids, interrupt),
            });
        self.ids = ids;
        emitted?;
        self.emitted();
        Ok(())
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
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        if ids.len() != source.num_rows() {
            return Err(ExchangeError::SelectorLength { got: ids.len(), rows: source.num_rows() });
        }
        // Checks all ids first: either the whole batch is emitted or none of it.
        let count = self.num_subpartitions();
        if let Some(row) = ids.iter().position(|id| *id >= count) {
            return Err(ExchangeError::OutOfRange { row, channel: ids[row].into(), count });
        }
        self.scatter(&source, ids, interrupt)?;
        self.emitted();
        Ok(())
    }

    /// Emits the whole batch to each subpartition. All of them share one copy of it, or its own
    /// memory.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn broadcast_emit<'a>(
        &mut self,
        batch: impl Into<Emitted<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let Emitted { batch, pinned } = batch.into();
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        self.append_all(Lane::All, &source, pinned, interrupt)?;
        self.emitted();
        Ok(())
    }

    /// Emits the whole batch to one random subpartition, all equally likely.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn random_emit<'a>(
        &mut self,
        batch: impl Into<Emitted<'a>>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let Emitted { batch, pinned } = batch.into();
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        let index = self.choices.u32(..self.num_subpartitions());
        self.append_all(Lane::One(index as usize), &source, pinned, interrupt)?;
        self.emitted();
        Ok(())
    }

    /// Appends an event to each subpartition, behind all rows emitted so far.
    ///
    /// # Errors
    /// After [`finish`](Self::finish), or an event that cannot be encoded.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<()> {
        self.broadcast_event_as(event, data_type_of(event, false))
    }

    /// Like [`broadcast_event`](Self::broadcast_event), with a data type that may give the event
    /// priority over the data, or block the subpartitions until their consumers resume.
    pub fn broadcast_event_as(&mut self, event: &Event, data_type: DataType) -> Result<()> {
        self.state.check_open()?;
        self.pages.flush();
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
        self.pages.flush();
        self.state.broadcast_barrier(barrier, environment)
    }

    /// Tells the consumers, behind all that was emitted, that a checkpoint was given up.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub fn broadcast_cancellation(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.state.check_open()?;
        self.pages.flush();
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

    /// Announces the end of the user's records to the consumers. Only events may be emitted between
    /// this and [`finish`](Self::finish).
    ///
    /// # Errors
    /// When it was announced before.
    pub fn end_of_data(&mut self, mode: StopMode) -> Result<()> {
        self.state.check_not_ended()?;
        self.broadcast_event_as(&Event::EndOfData(mode), DataType::EndOfData)?;
        self.state.end();
        Ok(())
    }

    /// Sends every open page, full or not.
    ///
    /// # Errors
    /// Why the output flusher failed.
    pub fn flush(&mut self) -> Result<()> {
        self.state.check_flusher()?;
        self.pages.flush();
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
            self.pages.flush();
            self.partition.finish()?;
        }
        Ok(())
    }

    /// Returns the counters of emitted data. Data for several subpartitions counts once for each,
    /// and open pages count only when they are sent.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the partition that it writes.
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.partition
    }

    /// Returns the schema of its pages.
    pub fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    fn scatter(&mut self, source: &Source, ids: &[u32], interrupt: Interrupt<'_>) -> Result<()> {
        let count = self.num_subpartitions();
        let block = Scatter::block_rows(count);
        let mut scatter = std::mem::take(&mut self.scatter);
        let mut done = Ok(());
        'blocks: for (number, ids) in ids.chunks(block).enumerate() {
            let first = u32::try_from(number * block).expect("sources have at most u32::MAX rows");
            if let Err(error) = scatter.group(ids, first, count) {
                let (row, channel) = (error.row as usize, error.id.into());
                done = Err(ExchangeError::OutOfRange { row, channel, count });
                break;
            }
            source.warm(&self.schema, number * block..number * block + ids.len());
            for (index, rows) in scatter.groups() {
                let (lane, rows) = (Lane::One(index as usize), Rows::Picked(rows));
                done = self.append(lane, source, rows, false, interrupt);
                if done.is_err() {
                    break 'blocks;
                }
            }
        }
        self.scatter = scatter;
        done
    }

    /// Appends a batch that keeps `pinned` bytes of memory. Sends its first rows, often all, as
    /// pieces of that memory and copies the others into pages.
    fn append_all(
        &mut self,
        lane: Lane,
        source: &Source,
        pinned: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let sent = self.pages.send_pieces(lane, source, pinned, interrupt)?;
        let rows = Rows::Range { start: sent.rows, len: source.num_rows() - sent.rows };
        self.append(lane, source, rows, sent.is_compacting, interrupt)
    }

    fn append(
        &mut self,
        lane: Lane,
        source: &Source,
        mut rows: Rows<'_>,
        is_compacting: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if !lane.is_wanted(&self.partition) {
            return self.partition.check();
        }
        loop {
            let timed = self.state.timed.as_ref();
            rows = self.pages.append(lane, source, rows, is_compacting, timed, interrupt)?;
            let Some(row) = rows.first() else {
                return Ok(());
            };
            self.span(lane, source, row, interrupt)?;
            rows = rows.skip(1);
        }
    }

    /// Writes a row that is wider than a page: encodes it into ordinary memory, and distributes the
    /// bytes over segments.
    fn span(
        &mut self,
        lane: Lane,
        source: &Source,
        row: u32,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let size = encoded_len(&self.schema, source, &[row]);
        let limit = self.max_record_size as u64;
        if size > limit {
            return Err(ExchangeError::RecordTooLarge { size, limit });
        }
        let page = encode_rows(&self.schema, source, &[row])
            .map_err(|_| ExchangeError::RecordTooLarge { size, limit })?;
        let page = bytes::Bytes::from(page);
        if !lane.is_wanted(&self.partition) {
            return Ok(());
        }
        let mut buffers =
            self.stream.write(&self.partition, lane, page.clone(), false, false, interrupt)?;
        // The next page needs a buffer of its own.
        buffers += self.stream.end_all(&self.partition);
        let targets = lane.targets(&self.partition).len() as u64;
        self.counters.add(targets, targets * page.len() as u64, buffers);
        Ok(())
    }

    fn emitted(&self) {
        if self.state.flush_always {
            self.pages.flush();
        }
    }

    /// Waits until the partition is available. It is called before a batch is begun: an interrupted
    /// wait then emits no row, while one within the batch would leave a part of it emitted.
    fn begin(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.state.check_emits()?;
        self.partition.wait_for_room(interrupt)
    }

    fn num_subpartitions(&self) -> u32 {
        u32::try_from(self.partition.num_subpartitions()).expect("checked when it was made")
    }
}
