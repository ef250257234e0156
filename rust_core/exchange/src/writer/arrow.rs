//! `ArrowRecords`: scatters the rows of record batches into the open pages of the subpartitions.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headgate_record::{PageSchema, Scatter, Source, encode_rows, encoded_len};

use super::emitted::Emitted;
use super::lane::Lane;
use super::pages::{OpenPages, Rows};
use super::records::{Destination, Records};
use super::stream::StreamWriter;
use crate::counters::Counters;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;

/// Record batches, written as pages. A row that is too wide for a page spans buffers.
pub struct ArrowRecords {
    schema: Arc<PageSchema>,
    pages: Arc<OpenPages>,
    stream: StreamWriter,
    max_record_size: usize,
    ids: Vec<u32>,
    scatter: Scatter,
}

impl ArrowRecords {
    /// # Errors
    /// When the partition was created for another schema.
    pub(super) fn new(
        partition: &Arc<ResultPartition>,
        schema: Arc<PageSchema>,
        max_record_size: usize,
        counters: &Arc<Counters>,
    ) -> Result<Self> {
        if !partition.fix_schema(schema.hash()) {
            return Err(ExchangeError::WrongRecords(
                "the partition was created for another schema",
            ));
        }
        let parts = (Arc::clone(partition), Arc::clone(&schema), Arc::clone(counters));
        Ok(Self {
            pages: OpenPages::new(parts.0, parts.1, parts.2),
            stream: StreamWriter::new(partition, max_record_size),
            schema,
            max_record_size,
            ids: Vec::new(),
            scatter: Scatter::new(),
        })
    }

    pub(super) fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    /// Emits each row to the subpartition that `ids` names for it.
    ///
    /// # Errors
    /// As [`emit`](Records::emit), and ids that are out of range or too few.
    pub(super) fn emit_to(
        &mut self,
        to: &Destination,
        batch: &RecordBatch,
        ids: &[u32],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let source = self.begin(to, batch, interrupt)?;
        if ids.len() != source.num_rows() {
            return Err(ExchangeError::SelectorLength { got: ids.len(), rows: source.num_rows() });
        }
        // Checks all ids first: either the whole batch is emitted or none of it.
        let count = to.num_subpartitions();
        if let Some(row) = ids.iter().position(|id| *id >= count) {
            return Err(ExchangeError::OutOfRange { row, channel: ids[row].into(), count });
        }
        self.scatter(to, &source, ids, interrupt)?;
        self.emitted(to);
        Ok(())
    }

    /// Waits until the partition is available. It is called before a batch is begun: an interrupted
    /// wait then emits no row, while one within the batch would leave a part of it emitted.
    fn begin(
        &self,
        to: &Destination,
        batch: &RecordBatch,
        interrupt: Interrupt<'_>,
    ) -> Result<Source> {
        to.partition.wait_for_room(interrupt)?;
        Ok(Source::try_new(&self.schema, batch)?)
    }

    fn emitted(&self, to: &Destination) {
        if to.flush_always {
            self.pages.flush();
        }
    }

    fn scatter(
        &mut self,
        to: &Destination,
        source: &Source,
        ids: &[u32],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let count = to.num_subpartitions();
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
                done = self.append(to, lane, source, rows, false, interrupt);
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
        to: &Destination,
        lane: Lane,
        source: &Source,
        pinned: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let sent = self.pages.send_pieces(lane, source, pinned, interrupt)?;
        let rows = Rows::Range { start: sent.rows, len: source.num_rows() - sent.rows };
        self.append(to, lane, source, rows, sent.is_compacting, interrupt)
    }

    fn append(
        &mut self,
        to: &Destination,
        lane: Lane,
        source: &Source,
        mut rows: Rows<'_>,
        is_compacting: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if !lane.is_wanted(&to.partition) {
            return to.partition.check();
        }
        loop {
            let timed = to.timed.as_ref();
            rows = self.pages.append(lane, source, rows, is_compacting, timed, interrupt)?;
            let Some(row) = rows.first() else {
                return Ok(());
            };
            self.span(to, lane, source, row, interrupt)?;
            rows = rows.skip(1);
        }
    }

    /// Writes a row that is wider than a page: encodes it into ordinary memory, and distributes the
    /// bytes over segments.
    fn span(
        &mut self,
        to: &Destination,
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
        let partition = &to.partition;
        if !lane.is_wanted(partition) {
            return Ok(());
        }
        let mut buffers =
            self.stream.write(partition, lane, page.clone(), false, false, interrupt)?;
        // The next page needs a buffer of its own.
        buffers += self.stream.end_buffers(partition);
        let targets = lane.targets(partition).len() as u64;
        to.counters.add(targets, targets * page.len() as u64, buffers);
        Ok(())
    }
}

impl Records for ArrowRecords {
    type Record<'a> = Emitted<'a>;

    fn emit(
        &mut self,
        to: &mut Destination,
        lane: Option<Lane>,
        Emitted { batch, pinned }: Emitted<'_>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let source = self.begin(to, batch, interrupt)?;
        let count = to.num_subpartitions();
        let lane = match lane.or_else(|| to.lane_by_load()) {
            Some(lane) => Some(lane),
            None => Lane::of(to.selector.select(batch, count, &mut self.ids)?),
        };
        if let Some(lane) = lane {
            self.append_all(to, lane, &source, pinned, interrupt)?;
        } else {
            let ids = std::mem::take(&mut self.ids);
            let scattered = self.scatter(to, &source, &ids, interrupt);
            self.ids = ids;
            scattered?;
        }
        self.emitted(to);
        Ok(())
    }

    fn end_all(&mut self, _to: &Destination) {
        self.pages.flush();
    }

    fn flush(&self, _to: &Destination) {
        self.pages.flush();
    }

    fn timed_flush(&self, _to: &Destination) -> Box<dyn Fn() -> bool + Send + Sync> {
        let pages = Arc::clone(&self.pages);
        Box::new(move || pages.flush_by_time())
    }
}
