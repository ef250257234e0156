//! The open pages of a writer of record batches (spec 4.5).
//!
//! Rows are copied into a page of their subpartition. A large batch that goes to one subpartition
//! or to all is not copied: its pages are slices of its own memory.
//!
//! Decision: ADR 0021.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

use headgate_memory::{Buffer, Charge, PooledSegment, lock};
use headgate_protocol::DataType;
use headgate_record::{PageBuilder, PageProfile, PageSchema, Pieces, Source};

use super::emitted::Emitted;
use super::lane::{Lane, buffer_size};
use crate::copies::Copies;
use crate::counters::Counters;
use crate::error::{Interrupt, Result};
use crate::flusher::TimedFlush;
use crate::partition::{OpenBuffers, ResultPartition};

struct Page {
    builder: PageBuilder<PooledSegment>,
    /// True if the page has rows that were copied only to free the large batch behind them.
    is_compacting: bool,
}

/// Rows of a batch to append.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Picked(&'a [u32]),
    Range { start: usize, len: usize },
}

impl Rows<'_> {
    pub(super) fn is_empty(self) -> bool {
        match self {
            Self::Picked(rows) => rows.is_empty(),
            Self::Range { len, .. } => len == 0,
        }
    }

    pub(super) fn first(self) -> Option<u32> {
        match self {
            Self::Picked(rows) => rows.first().copied(),
            Self::Range { start, len } => {
                (len > 0).then(|| u32::try_from(start).expect("sources have at most u32::MAX rows"))
            }
        }
    }

    pub(super) fn skip(self, count: usize) -> Self {
        match self {
            Self::Picked(rows) => Self::Picked(&rows[count..]),
            Self::Range { start, len } => Self::Range { start: start + count, len: len - count },
        }
    }

    fn append_to(self, page: &mut Page, source: &Source) -> usize {
        match self {
            Self::Picked(rows) => page.builder.append(source, rows),
            Self::Range { start, len } => page.builder.append_range(source, start, len),
        }
    }
}

/// The part of a batch that was sent in pieces.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    /// Number of rows at the batch's start that are queued. The others must be copied.
    pub(super) rows: usize,
    /// True if the batch is copied, because it is small compared with the memory that its slices would
    /// keep alive.
    pub(super) is_compacting: bool,
}

struct State {
    /// One page per subpartition, then the page for all subpartitions. Pages for one and for all
    /// are never open at the same time, because that would change the order of records. Empty once
    /// they are discarded.
    open: Vec<Option<Page>>,
    profile: PageProfile,
    /// True if the last batch got its charge. Only then may the next batch wait for its charge.
    waits_for_charge: bool,
}

/// The open pages. The writer's thread fills them, and either it or the output flusher sends them.
pub(super) struct OpenPages {
    partition: Arc<ResultPartition>,
    schema: Arc<PageSchema>,
    counters: Arc<Counters>,
    /// Held while rows are copied and while a page is queued, so that pages are queued in order.
    /// Never held during a wait. Locks of subpartitions may be taken under it, not the reverse.
    state: Mutex<State>,
}

impl OpenPages {
    pub(super) fn new(
        partition: Arc<ResultPartition>,
        schema: Arc<PageSchema>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        let slots = partition.num_subpartitions() + 1;
        let open = std::iter::repeat_with(|| None).take(slots).collect();
        let state = Mutex::new(State { open, profile: PageProfile::new(), waits_for_charge: true });
        let pages = Arc::new(Self { partition, schema, counters, state });
        let open: Weak<Self> = Arc::downgrade(&pages);
        pages.partition.add_open_buffers(open);
        pages
    }

    /// Appends rows up to the first that is wider than a page. Returns that row and the rows after
    /// it. Tells `timed` of each page that it opens.
    ///
    /// # Errors
    /// The failure of the partition, or what the interrupt says.
    pub(super) fn append<'a>(
        &self,
        lane: Lane,
        source: &Source,
        mut rows: Rows<'a>,
        is_compacting: bool,
        timed: Option<&Arc<TimedFlush>>,
        interrupt: Interrupt<'_>,
    ) -> Result<Rows<'a>> {
        let slot = lane.slot(&self.partition);
        let mut segment = None;
        loop {
            let mut state = lock(&self.state);
            if state.open.is_empty() {
                return Err(self.partition.ended());
            }
            self.send_others(&mut state, lane);
            while !rows.is_empty() {
                let State { open, profile, .. } = &mut *state;
                let page = match (&mut open[slot], segment.take()) {
                    (Some(page), _) => page,
                    (empty, Some(segment)) => {
                        let page = PageBuilder::new(Arc::clone(&self.schema), segment, profile);
                        let targets = &self.partition.subpartitions()[self.targets(slot)];
                        let wish = buffer_size(targets);
                        let builder = page.with_capacity(wish);
                        if let Some(timed) = timed {
                            timed.written();
                        }
                        empty.insert(Page { builder, is_compacting })
                    }
                    (None, None) => break,
                };
                let appended = rows.append_to(page, source);
                page.is_compacting |= is_compacting && appended > 0;
                let too_wide = appended == 0 && page.builder.is_empty();
                rows = rows.skip(appended);
                if too_wide {
                    state.open[slot] = None;
                    return Ok(rows);
                }
                if !rows.is_empty() {
                    self.send(&mut state, slot);
                }
            }
            if rows.is_empty() {
                return Ok(rows);
            }
            drop(state);
            segment = Some(self.partition.segments().request(lane.subpartition(), interrupt)?);
        }
    }

    /// Queues a batch that keeps `pinned` bytes of memory alive as pages in pieces, if all its
    /// readers take pieces and that costs less than a copy.
    ///
    /// # Errors
    /// The failure of the partition, or what the interrupt says.
    pub(super) fn send_pieces(
        &self,
        lane: Lane,
        source: &Source,
        pinned: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<Sent> {
        let segment = self.partition.segments().segment_size();
        let targets = self.targets(lane.slot(&self.partition));
        let least = Emitted::least_in_pieces(segment);
        let Some(pieces) = Pieces::try_new(&self.schema, source, least as u64) else {
            return Ok(Sent::default());
        };
        let subpartitions = &self.partition.subpartitions()[targets.clone()];
        // Readers in this process need no segment, so a page for them may be larger than one. Wide
        // rows still span buffers.
        let is_local = !subpartitions.iter().any(|it| it.is_remote());
        let fits = if is_local && pieces.has_rows_within(segment) {
            LOCAL_SEGMENTS * segment
        } else {
            segment
        };
        let capacity = buffer_size(subpartitions).min(fits);
        if !self.takes_pieces(lane) || capacity < least {
            return Ok(Sent::default());
        }
        let pinned = pinned.max(pieces.pinned());
        if pieces.len().saturating_mul(MAX_PINNED_RATIO) < pinned {
            return Ok(Sent { rows: 0, is_compacting: true });
        }
        let memory = pinned.saturating_add(pieces.written());
        let Some(charge) = self.charge(lane, memory.div_ceil(segment as u64), interrupt)? else {
            return Ok(Sent::default());
        };
        let charge = Arc::new(charge);
        let mut state = lock(&self.state);
        self.send_others(&mut state, lane);
        self.send(&mut state, lane.slot(&self.partition));
        let mut rows = 0;
        while rows < source.num_rows()
            && let Some(page) = pieces.cut(rows, capacity)
        {
            Copies::count(&self.partition.shared().copies.scatter, page.copied);
            let memory = Arc::clone(&self.partition.shared().foreign);
            let buffer = Buffer::of_pieces(page.pieces, Arc::clone(&charge), memory);
            self.queue(targets.clone(), &buffer, page.len, page.rows as u64);
            rows += page.rows;
        }
        Ok(Sent { rows, is_compacting: false })
    }

    /// True if all readers of the lane are attached and take pieces.
    fn takes_pieces(&self, lane: Lane) -> bool {
        let targets = lane.targets(&self.partition);
        let all = || {
            let each = self.partition.subpartitions()[targets.clone()].iter();
            each.filter_map(|target| target.takes_pieces()).all(|takes| takes)
        };
        let is_read = !self.partition.kind().is_stored() && lane.is_wanted(&self.partition);
        is_read && all() && self.partition.buffers().leaves_plain(targets.clone())
    }

    /// Takes `count` segments as the charge of a batch. Waits for them, unless the last charge was
    /// not granted.
    fn charge(&self, lane: Lane, count: u64, interrupt: Interrupt<'_>) -> Result<Option<Charge>> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let request = |patient| {
            self.partition.segments().request_charge(lane.subpartition(), count, patient, interrupt)
        };
        let mut charge = request(false)?;
        let waits = std::mem::replace(&mut lock(&self.state).waits_for_charge, charge.is_some());
        if charge.is_none() && waits {
            // The open pages may hold the segments that the charge waits for.
            self.flush();
            charge = request(true)?;
            lock(&self.state).waits_for_charge = charge.is_some();
        }
        Ok(charge)
    }

    /// Sends every open page, full or not.
    pub(super) fn flush(&self) {
        let mut state = lock(&self.state);
        for slot in 0..state.open.len() {
            self.send(&mut state, slot);
        }
    }

    /// Sends the open pages of consumers that have nothing else queued. The page for a busy
    /// consumer stays open for more rows. Otherwise a slow consumer would get many small pages,
    /// each in a segment of its own. Returns true if a page stays open.
    pub(super) fn flush_by_time(&self) -> bool {
        let mut state = lock(&self.state);
        for slot in 0..state.open.len() {
            if state.open[slot].is_some() && self.is_awaited(slot) {
                self.send(&mut state, slot);
            }
        }
        state.open.iter().any(Option::is_some)
    }

    fn is_awaited(&self, slot: usize) -> bool {
        let mut targets = self.partition.subpartitions()[self.targets(slot)].iter();
        targets.any(|subpartition| subpartition.queued() == 0)
    }

    /// Sends the open pages of the other kind first, so that records keep their order.
    fn send_others(&self, state: &mut State, lane: Lane) {
        let all = Lane::All.slot(&self.partition);
        match lane {
            Lane::One(_) => self.send(state, all),
            Lane::All => (0..all).for_each(|slot| self.send(state, slot)),
        }
    }

    /// Finishes the slot's open page and queues it.
    fn send(&self, state: &mut State, slot: usize) {
        let open = state.open.get_mut(slot).and_then(Option::take);
        let Some(Page { builder: page, is_compacting }) = open else {
            return;
        };
        let rows = page.num_rows() as u64;
        if rows == 0 {
            return;
        }
        page.teach(&mut state.profile);
        let (segment, len) = page.finish();
        let copies = &self.partition.shared().copies;
        Copies::count(if is_compacting { &copies.compacted } else { &copies.scatter }, len);
        let buffer = self.partition.buffers().freeze(segment, len, self.targets(slot));
        self.queue(self.targets(slot), &buffer, len, rows);
    }

    /// Queues a page that had `len` bytes before it was compressed.
    fn queue(&self, targets: Range<usize>, page: &Buffer, len: usize, rows: u64) {
        self.partition.shared().metrics.finished(targets.len(), len);
        for subpartition in &self.partition.subpartitions()[targets] {
            self.counters.add(rows, len as u64, 1);
            subpartition.add_data(page.clone(), DataType::DataBufferWithClearEnd, rows);
        }
    }

    fn targets(&self, slot: usize) -> Range<usize> {
        let all = Lane::All.slot(&self.partition);
        if slot == all { 0..all } else { slot..slot + 1 }
    }
}

impl OpenBuffers for OpenPages {
    fn discard(&self) {
        let open = std::mem::take(&mut lock(&self.state).open);
        drop(open);
    }
}

/// Size in segments of the largest page for readers in this process, so that a batch slightly
/// larger than a segment stays one page.
const LOCAL_SEGMENTS: usize = 2;
/// Limit of the memory that a batch in pieces may keep alive, as a multiple of its own bytes.
const MAX_PINNED_RATIO: u64 = 4;
