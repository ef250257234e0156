//! Record batches: rows are scattered straight into the open pages of the subpartitions.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headgate_memory::{Buffer, PooledSegment};
use headgate_protocol::DataType;
use headgate_record::{
    Event, PageBuilder, PageProfile, PageSchema, Scatter, Selection, Selector, Source, encode_rows,
    encoded_len,
};

use crate::copies::Copies;
use crate::counters::Counters;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::partition::ResultPartition;
use crate::writer::broadcast_event;
use crate::writer::stream::StreamWriter;

type Page = PageBuilder<PooledSegment>;

/// Rows to append: scattered ones, or a range.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Picked(&'a [u32]),
    Range { start: usize, len: usize },
}

impl<'a> Rows<'a> {
    fn is_empty(self) -> bool {
        match self {
            Self::Picked(rows) => rows.is_empty(),
            Self::Range { len, .. } => len == 0,
        }
    }

    fn first(self) -> Option<u32> {
        match self {
            Self::Picked(rows) => rows.first().copied(),
            Self::Range { start, len } => {
                (len > 0).then(|| u32::try_from(start).expect("sources have at most u32::MAX rows"))
            }
        }
    }

    fn skip(self, count: usize) -> Self {
        match self {
            Self::Picked(rows) => Self::Picked(&rows[count..]),
            Self::Range { start, len } => Self::Range { start: start + count, len: len - count },
        }
    }

    fn append_to(self, page: &mut Page, source: &Source) -> usize {
        match self {
            Self::Picked(rows) => page.append(source, rows),
            Self::Range { start, len } => page.append_range(source, start, len),
        }
    }
}

/// Which subpartitions a page goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    One(usize),
    All,
}

impl Lane {
    fn subpartition(self) -> Option<usize> {
        match self {
            Self::One(index) => Some(index),
            Self::All => None,
        }
    }
}

/// Writes record batches as pages; a row too wide for a page spans buffers.
pub struct ArrowWriter {
    partition: Arc<ResultPartition>,
    schema: Arc<PageSchema>,
    selector: Selector,
    /// One open page per subpartition, and behind them the one that goes to all of them; unicast
    /// and broadcast pages are never open at the same time, so the order of emits holds.
    open: Vec<Option<Page>>,
    profile: PageProfile,
    stream: StreamWriter,
    max_record_size: usize,
    ids: Vec<u32>,
    scatter: Scatter,
    counters: Arc<Counters>,
    finished: bool,
}

impl ArrowWriter {
    /// A writer that is the only one of its partition.
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
        let count = partition.num_subpartitions();
        Ok(Self {
            stream: StreamWriter::new(count, max_record_size),
            open: std::iter::repeat_with(|| None).take(count + 1).collect(),
            partition,
            schema,
            selector,
            profile: PageProfile::new(),
            max_record_size,
            ids: Vec::new(),
            scatter: Scatter::new(),
            counters: Arc::default(),
            finished: false,
        })
    }

    /// Emits a batch by the selector.
    ///
    /// # Errors
    /// A batch of another schema, a row above the limit, the failure of the partition, or what the
    /// interrupt says.
    pub fn emit(&mut self, batch: &RecordBatch, interrupt: Interrupt<'_>) -> Result<()> {
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        let mut ids = std::mem::take(&mut self.ids);
        let selection = self.selector.select(batch, self.num_subpartitions(), &mut ids);
        let emitted = selection.map_err(ExchangeError::from).and_then(|selection| {
            let all = Rows::Range { start: 0, len: source.num_rows() };
            match selection {
                Selection::All => self.append(Lane::All, &source, all, interrupt),
                Selection::One(index) => {
                    self.append(Lane::One(index as usize), &source, all, interrupt)
                }
                Selection::Rows => self.scatter(&source, &ids, interrupt),
            }
        });
        self.ids = ids;
        emitted
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
        // All of them first: either the whole batch is emitted or none of it.
        let count = self.num_subpartitions();
        if let Some(row) = ids.iter().position(|id| *id >= count) {
            return Err(ExchangeError::OutOfRange { row, channel: ids[row].into(), count });
        }
        self.scatter(&source, ids, interrupt)
    }

    /// Emits the whole batch to each subpartition; one segment holds a page for all of them.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn broadcast_emit(&mut self, batch: &RecordBatch, interrupt: Interrupt<'_>) -> Result<()> {
        self.begin(interrupt)?;
        let source = Source::try_new(&self.schema, batch)?;
        let all = Rows::Range { start: 0, len: source.num_rows() };
        self.append(Lane::All, &source, all, interrupt)
    }

    /// Appends an event to each subpartition, behind all rows emitted so far.
    ///
    /// # Errors
    /// After [`finish`](Self::finish), or an event that cannot be encoded.
    pub fn broadcast_event(&mut self, event: &Event) -> Result<()> {
        self.check_open()?;
        self.flush();
        broadcast_event(&self.partition, event)
    }

    /// Sends every open page, full or not.
    pub fn flush(&mut self) {
        for slot in 0..self.open.len() {
            self.send(self.lane(slot));
        }
    }

    /// Ends every subpartition; nothing can be emitted any more.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.flush();
            for subpartition in self.partition.subpartitions() {
                subpartition.finish();
            }
        }
    }

    /// What was emitted so far, once for each subpartition that gets it; open pages count once they
    /// are sent.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The partition it writes.
    pub fn partition(&self) -> &Arc<ResultPartition> {
        &self.partition
    }

    /// What it writes.
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
                done =
                    self.append(Lane::One(index as usize), source, Rows::Picked(rows), interrupt);
                if done.is_err() {
                    break 'blocks;
                }
            }
        }
        self.scatter = scatter;
        done
    }

    fn append(
        &mut self,
        lane: Lane,
        source: &Source,
        mut rows: Rows<'_>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let slot = match lane {
            Lane::One(index) => {
                if self.partition.subpartitions()[index].is_released() {
                    return self.partition.check();
                }
                self.send(Lane::All);
                index
            }
            Lane::All => {
                for index in 0..self.partition.num_subpartitions() {
                    self.send(Lane::One(index));
                }
                self.partition.num_subpartitions()
            }
        };
        while !rows.is_empty() {
            let page = match &mut self.open[slot] {
                Some(page) => page,
                empty => {
                    let segment = self.partition.request_segment(lane.subpartition(), interrupt)?;
                    let page = PageBuilder::new(Arc::clone(&self.schema), segment, &self.profile);
                    empty.insert(page)
                }
            };
            let appended = rows.append_to(page, source);
            let too_wide = appended == 0 && page.is_empty();
            rows = rows.skip(appended);
            if too_wide {
                self.open[slot] = None;
                let row = rows.first().expect("rows is not empty");
                self.span(lane, source, row, interrupt)?;
                rows = rows.skip(1);
            } else if !rows.is_empty() {
                self.send(lane);
            }
        }
        Ok(())
    }

    /// A row that no page holds: a page of its own size in ordinary memory, cut over segments.
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
        let targets = match lane {
            Lane::One(index) => index..index + 1,
            Lane::All => 0..self.partition.num_subpartitions(),
        };
        for index in targets {
            if self.partition.subpartitions()[index].is_released() {
                continue;
            }
            let mut buffers =
                self.stream.write(&self.partition, index, page.clone(), 1, interrupt)?;
            // What follows is a page again, in a buffer of its own.
            buffers += self.stream.end(&self.partition, index);
            self.counters.add(1, page.len() as u64, buffers);
        }
        Ok(())
    }

    /// Finishes the lane's open page and queues it.
    fn send(&mut self, lane: Lane) {
        let count = self.partition.num_subpartitions();
        let (slot, targets) = match lane {
            Lane::One(index) => (index, index..index + 1),
            Lane::All => (count, 0..count),
        };
        let Some(page) = self.open[slot].take() else {
            return;
        };
        let rows = page.num_rows() as u64;
        if rows == 0 {
            return;
        }
        page.teach(&mut self.profile);
        let (segment, len) = page.finish();
        Copies::count(&self.partition.copies().scatter, len);
        let buffer = Buffer::freeze(segment, len);
        for index in targets {
            self.counters.add(rows, len as u64, 1);
            let subpartition = &self.partition.subpartitions()[index];
            subpartition.add_data(buffer.clone(), DataType::DataBufferWithClearEnd, rows);
        }
    }

    fn lane(&self, slot: usize) -> Lane {
        if slot == self.partition.num_subpartitions() { Lane::All } else { Lane::One(slot) }
    }

    /// Waits where the consumers are behind, so that a batch that is begun is rarely held up in its
    /// middle: until then none of it is emitted, and the wait can be ended without a loss.
    fn begin(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.check_open()?;
        self.partition.wait_available(None, interrupt).map(|_| ())
    }

    fn check_open(&self) -> Result<()> {
        if self.finished {
            return Err(ExchangeError::Closed("record writer"));
        }
        self.partition.check()
    }

    fn num_subpartitions(&self) -> u32 {
        u32::try_from(self.partition.num_subpartitions()).expect("checked when it was made")
    }
}
