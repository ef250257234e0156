//! The store of one partition: collects buffers in memory, writes them when segments run short, and
//! lets views read them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use headgate_memory::{Buffer, GlobalPool, LocalPool, SEGMENT_ALIGNMENT, lock};
use headgate_protocol::{Next, PartitionId, crc32c};
use headgate_trace::{Event, Kind, record};

use super::file::{Extent, SpillFile};
use super::index::{Block, Index};
use super::manager::SpillManager;
use crate::error::{ExchangeError, Result};
use crate::subpartition::Subpartition;
use crate::view::DataListener;

/// Blocks that are read ahead of a reader, in one call where they lie side by side.
pub(super) const READ_AHEAD: usize = 4;

/// A view of one lane, as its store uses it.
pub(super) trait StoreReader: Send + Sync {
    /// Index of the lane that it reads.
    fn lane(&self) -> usize;

    /// Returns buffers that were read ahead for it, and that its consumer did not fetch for a
    /// while.
    fn give_back(&self) -> VecDeque<Buffer>;

    /// Ends it with this cause.
    fn fail(&self, cause: &ExchangeError);

    /// Ends it without a cause: there is nothing to read any more.
    fn shut_down(&self);
}

/// A subpartition, and the blocks that were moved out of its queue.
pub(super) struct Lane {
    pub(super) subpartition: Arc<Subpartition>,
    /// Taken before the subpartition's own lock. Never held during I/O.
    pub(super) index: Mutex<Index>,
}

#[derive(Default)]
struct Readers {
    views: Vec<Weak<dyn StoreReader>>,
    open: usize,
    /// True once everything is written, so that views may be created.
    complete: bool,
    /// True once no view may be created any more.
    closed: bool,
    failure: Option<ExchangeError>,
}

/// The blocks of one partition, on disk and on their way there.
pub(crate) struct Store {
    partition: PartitionId,
    /// True if blocks stay after they were read.
    pub(super) is_reconsumable: bool,
    /// Limit of bytes on disk; 0 is no limit.
    max_spill_size: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) manager: Arc<SpillManager>,
    /// The segments that blocks are read into: one per view if there are enough, at least one.
    pub(super) pool: LocalPool,
    /// Created with the first write. Dropped with the last view after a close.
    file: Mutex<Option<Arc<SpillFile>>>,
    /// Offset of the next region. Held during a write: only the partition's writer takes it.
    region: Mutex<u64>,
    /// Taken alone, or before the lock of a view.
    readers: Mutex<Readers>,
}

impl Store {
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`] when there is no segment to read with.
    pub(crate) fn new(
        partition: PartitionId,
        is_reconsumable: bool,
        max_spill_size: u64,
        subpartitions: &[Arc<Subpartition>],
        global: &GlobalPool,
        manager: Arc<SpillManager>,
    ) -> Result<Self> {
        let pool = global.create_local_pool(1, READ_AHEAD).map_err(|source| {
            ExchangeError::PoolTooSmall {
                what: "reading a partition from disk",
                needed: 1,
                segment_size: global.segment_size(),
                source,
            }
        })?;
        let lane = |subpartition: &Arc<Subpartition>| Lane {
            subpartition: Arc::clone(subpartition),
            index: Mutex::default(),
        };
        Ok(Self {
            partition,
            is_reconsumable,
            max_spill_size,
            lanes: subpartitions.iter().map(lane).collect(),
            manager,
            pool,
            file: Mutex::default(),
            region: Mutex::default(),
            readers: Mutex::default(),
        })
    }

    /// Becomes the reader of the wanted subpartitions: their buffers come here as soon as they are
    /// written.
    ///
    /// # Errors
    /// When one of them has a reader.
    pub(crate) fn collect_from(self: &Arc<Self>, wanted: &[bool]) -> Result<()> {
        for (index, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let collector = Collector { store: Arc::downgrade(self), index };
            self.lanes[index].subpartition.attach(Arc::new(collector))?;
        }
        Ok(())
    }

    /// Moves the buffers that a reader of the subpartition could take to the index.
    fn collect(&self, index: usize) {
        let lane = &self.lanes[index];
        lane.drain_into(&mut lock(&lane.index));
    }

    /// Writes buffers to disk when the writer finds no segment. True if something was written.
    /// Subpartitions without a reader go first.
    ///
    /// # Errors
    /// A disk that cannot be written.
    pub(crate) fn make_room(&self) -> Result<bool> {
        if self.is_reconsumable {
            return self.spill(|_| true);
        }
        Ok(self.spill(|lane| !lane.subpartition.has_reader())? || self.spill(|_| true)?)
    }

    /// True while the limit is not reached, so that the writer need not wait for a reader.
    pub(crate) fn has_room(&self) -> bool {
        let live = self.file().map_or(0, |file| file.live());
        self.is_reconsumable || self.max_spill_size == 0 || live < self.max_spill_size
    }

    /// Writes the buffers of subpartitions without a reader, so that they hold no segments.
    ///
    /// # Errors
    /// A disk that cannot be written.
    pub(crate) fn settle(&self) -> Result<()> {
        self.spill(|lane| self.is_reconsumable || !lane.subpartition.has_reader()).map(|_| ())
    }

    /// Writes a region. False when there was nothing to write, or the limit leaves no room for it.
    fn spill(&self, which: impl Fn(&Lane) -> bool) -> Result<bool> {
        let mut region = lock(&self.region);
        let mut batch: Vec<(&Lane, u64, Buffer)> = Vec::new();
        let mut spent = Vec::new();
        for lane in self.lanes.iter().filter(|lane| which(lane)) {
            let mut index = lock(&lane.index);
            if !self.is_reconsumable {
                lane.drain_into(&mut index);
            }
            spent.append(&mut index.take_spent());
            let blocks = index.in_memory();
            batch.extend(blocks.into_iter().map(|(number, buffer)| (lane, number, buffer)));
        }
        if batch.is_empty() {
            return Ok(false);
        }
        let file = self.file_to_write()?;
        spent.iter().for_each(|extent| file.discard(extent));
        let (extents, pieces) = self.lay_out(*region, &batch);
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.max_spill_size > 0 && file.live() + bytes as u64 > self.max_spill_size {
            return if self.is_reconsumable {
                let limit = self.max_spill_size;
                Err(ExchangeError::SpillLimit { partition: self.partition, limit })
            } else {
                Ok(false)
            };
        }
        let used = file.used();
        fail_point!("spill.writes", text => return Err(ExchangeError::Aborted(text)));
        *region = file.write(*region, &pieces).map_err(|error| self.io("write", bytes, error))?;
        drop(used);
        record(Kind::Kept, || Event::Spilled { pages: batch.len(), bytes });
        for ((lane, number, _), extent) in batch.iter().zip(extents) {
            // The batch holds the buffer too, so no segment returns to its pool under the lock.
            lock(&lane.index).written(*number, extent);
        }
        Ok(true)
    }

    /// Returns the extent of each buffer of a region, and the bytes to write. A blocking partition
    /// writes a buffer of several subpartitions once. Others do not: an extent is discarded after
    /// its read, so it must not be shared. A blocking partition also aligns its pages, so that they
    /// can be read where the file is mapped.
    fn lay_out<'a>(
        &self,
        mut offset: u64,
        batch: &'a [(&Lane, u64, Buffer)],
    ) -> (Vec<Extent>, Vec<&'a [u8]>) {
        let mut known: HashMap<(*const u8, usize), Extent> = HashMap::new();
        let (mut extents, mut pieces) = (Vec::with_capacity(batch.len()), Vec::new());
        for (_, _, buffer) in batch {
            let bytes = buffer.as_slice();
            let key = (bytes.as_ptr(), bytes.len());
            if let Some(extent) = known.get(&key).filter(|_| self.is_reconsumable) {
                extents.push(*extent);
                continue;
            }
            let page = self.is_reconsumable && buffer.is_pooled() && !buffer.is_compressed();
            let padding = if page { padding_before(offset) } else { &[] };
            if !padding.is_empty() {
                offset += padding.len() as u64;
                pieces.push(padding);
            }
            let len_of = |len| u32::try_from(len).expect("a buffer fits a segment");
            let len = len_of(bytes.len());
            let plain_len = buffer.is_compressed().then(|| len_of(buffer.plain_len()));
            let extent = Extent { offset, len, crc: crc32c(bytes), plain_len };
            offset = extent.end();
            known.insert(key, extent);
            extents.push(extent);
            pieces.push(bytes);
        }
        (extents, pieces)
    }

    fn file_to_write(&self) -> Result<Arc<SpillFile>> {
        if let Some(file) = &*lock(&self.file) {
            return Ok(Arc::clone(file));
        }
        let made = Arc::new(self.manager.create_file()?);
        Ok(Arc::clone(lock(&self.file).insert(made)))
    }

    /// Returns the file, unless it was not created yet or is closed.
    pub(super) fn file(&self) -> Option<Arc<SpillFile>> {
        lock(&self.file).clone()
    }

    /// Returns the error of a failed read or write.
    pub(super) fn io(
        &self,
        doing: &'static str,
        bytes: usize,
        error: std::io::Error,
    ) -> ExchangeError {
        let (partition, source) = (self.partition, Arc::new(error));
        ExchangeError::SpilledPartition { partition, doing, bytes, source }
    }

    /// Returns the error of a block whose checksum is wrong.
    pub(super) fn damaged(&self, lane: usize, extent: &Extent) -> ExchangeError {
        ExchangeError::Integrity {
            channel: format!("partition {}/{lane}", self.partition),
            detail: format!(
                "the checksum of {} bytes at offset {} of its file differs from the one written",
                extent.len, extent.offset
            ),
        }
    }

    /// Allows views: everything is written.
    pub(crate) fn complete(&self) {
        lock(&self.readers).complete = true;
    }

    /// True once everything is written.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.readers).complete
    }

    /// Registers a view.
    ///
    /// # Errors
    /// The failure of the partition, or that it is closed.
    pub(super) fn enter(&self, view: Weak<dyn StoreReader>) -> Result<()> {
        let mut readers = lock(&self.readers);
        if let Some(failure) = &readers.failure {
            return Err(failure.clone());
        }
        if readers.closed {
            return Err(ExchangeError::Closed("result partition"));
        }
        // Not each time: of many views, each would look at all others.
        if readers.views.len() > 2 * readers.open + 16 {
            readers.views.retain(|view| view.strong_count() > 0);
        }
        readers.views.push(view);
        readers.open += 1;
        let open = readers.open;
        drop(readers);
        self.resize(open);
        Ok(())
    }

    /// Unregisters a view that wants nothing more.
    pub(super) fn leave(&self) {
        let mut readers = lock(&self.readers);
        readers.open -= 1;
        let (open, gone) = (readers.open, readers.closed && readers.open == 0);
        drop(readers);
        if gone {
            self.free();
        } else {
            self.resize(open);
        }
    }

    /// Reserves one segment per view if there are enough. Otherwise one for all: the views take
    /// turns.
    fn resize(&self, open: usize) {
        let (min, max) = (open.max(1), (open + 1) * READ_AHEAD);
        let all = self.pool.set_minimum(min, max, 0);
        if all.is_err() {
            let less = self.pool.set_minimum(1, max, 0);
            debug_assert!(less.is_ok(), "one was promised from the start");
        }
    }

    /// Returns the views that are alive.
    pub(super) fn views(&self) -> Vec<Arc<dyn StoreReader>> {
        lock(&self.readers).views.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends all views with this cause.
    pub(crate) fn fail(&self, cause: &ExchangeError) {
        lock(&self.readers).failure.get_or_insert_with(|| cause.clone());
        for view in self.views() {
            view.fail(cause);
        }
    }

    /// Drops the blocks of a subpartition, and ends its views.
    pub(crate) fn release(&self, index: usize) {
        self.views().iter().filter(|view| view.lane() == index).for_each(|view| view.shut_down());
        let blocks = lock(&self.lanes[index].index).clear();
        drop(blocks);
    }

    /// Refuses further views. The blocks and the file are dropped with the last view.
    pub(crate) fn close(&self) {
        let mut readers = lock(&self.readers);
        readers.closed = true;
        let unread = readers.open == 0;
        drop(readers);
        if unread {
            self.free();
        }
    }

    /// Closes, and ends all views: the environment needs its memory back.
    pub(crate) fn shut_down(&self) {
        self.close();
        for view in self.views() {
            view.shut_down();
        }
    }

    fn free(&self) {
        let blocks: Vec<Vec<Block>> =
            self.lanes.iter().map(|lane| lock(&lane.index).clear()).collect();
        drop(blocks);
        let file = lock(&self.file).take();
        drop(file);
        self.pool.close();
    }
}

/// Returns the zeros between this offset and the next one at which a page may start.
fn padding_before(offset: u64) -> &'static [u8] {
    const ZEROS: [u8; SEGMENT_ALIGNMENT] = [0; SEGMENT_ALIGNMENT];
    let beyond = offset % SEGMENT_ALIGNMENT as u64;
    if beyond == 0 { &[] } else { &ZEROS[usize::try_from(beyond).expect("small")..] }
}

impl Lane {
    /// Moves the buffers that a reader could take to the index, in the order of polls.
    fn drain_into(&self, index: &mut Index) {
        let (mut next, _) = self.subpartition.look(true).next_and_backlog();
        while next != Next::None {
            // The partition reports a failure to its readers.
            let Ok(Some(polled)) = self.subpartition.poll() else {
                return;
            };
            index.push(polled.buffer, polled.data_type);
            next = polled.next;
        }
    }
}

/// The reader of a subpartition of a blocking partition. Runs on the thread that wrote the buffers.
struct Collector {
    store: Weak<Store>,
    index: usize,
}

impl DataListener for Collector {
    fn data_available(&self) {
        if let Some(store) = self.store.upgrade() {
            store.collect(self.index);
        }
    }
}
