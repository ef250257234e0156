//! The open pages of a writer of record batches, and how rows get into them (spec 4.5).

use std::ops::Range;
use std::sync::{Arc, Mutex};

use headgate_memory::{Buffer, Charge, PooledSegment};
use headgate_protocol::DataType;
use headgate_record::{PageBuilder, PageProfile, PageSchema, Pieces, Source};

use super::emitted::Emitted;
use super::lane::{Lane, buffer_size};
use crate::copies::Copies;
use crate::counters::Counters;
use crate::error::{Interrupt, Result};
use crate::lock::lock;
use crate::partition::ResultPartition;

struct Page {
    builder: PageBuilder<PooledSegment>,
    /// Has rows that are here so that what they are a slice of is not kept.
    compacts: bool,
}

/// Rows to append: scattered ones, or a range.
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

/// What became of a batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    /// So many of its first rows are queued; the others are to be gathered.
    pub(super) rows: usize,
    /// It is a small part of what it would have kept.
    pub(super) compacts: bool,
}

struct State {
    /// One page per subpartition, and behind them the one that goes to all of them; unicast and
    /// broadcast pages are never open at the same time, so the order of emits holds.
    open: Vec<Option<Page>>,
    profile: PageProfile,
    /// Whether it is worth to wait for the charge of a batch.
    waits_for_charge: bool,
}

/// The open pages, filled by the writer's thread and sent by it or by the output flusher.
pub(super) struct OpenPages {
    partition: Arc<ResultPartition>,
    schema: Arc<PageSchema>,
    counters: Arc<Counters>,
    /// Held while rows are gathered and while a page is queued, so that pages are queued in their
    /// order; never while somebody waits. The locks of subpartitions come after it.
    state: Mutex<State>,
}

impl OpenPages {
    pub(super) fn new(
        partition: Arc<ResultPartition>,
        schema: Arc<PageSchema>,
        counters: Arc<Counters>,
    ) -> Self {
        let slots = partition.num_subpartitions() + 1;
        let open = std::iter::repeat_with(|| None).take(slots).collect();
        let state = Mutex::new(State { open, profile: PageProfile::new(), waits_for_charge: true });
        Self { partition, schema, counters, state }
    }

    /// Appends rows up to the first that no page holds, and returns what is left from there on. Pages with
    /// rows to compact are counted as such.
    ///
    /// # Errors
    /// The failure of the partition, or what the interrupt says.
    pub(super) fn append<'a>(
        &self,
        lane: Lane,
        source: &Source,
        mut rows: Rows<'a>,
        compacts: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<Rows<'a>> {
        let slot = lane.slot(&self.partition);
        let mut segment = None;
        loop {
            let mut state = lock(&self.state);
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
                        empty.insert(Page { builder, compacts })
                    }
                    (None, None) => break,
                };
                let appended = rows.append_to(page, source);
                page.compacts |= compacts && appended > 0;
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

    /// Queues pages that are pieces of a batch, which keeps `pinned` bytes of memory, where all its readers
    /// take them as they are and it is worth it.
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
        // Readers in this process need no segment for what they read; wide rows span as they do elsewhere.
        let is_local = !subpartitions.iter().any(|it| it.is_remote());
        let fits =
            if is_local && pieces.has_rows_within(segment) { LOCAL * segment } else { segment };
        let capacity = buffer_size(subpartitions).min(fits);
        if !self.takes_pieces(lane) || capacity < least {
            return Ok(Sent::default());
        }
        let pinned = pinned.max(pieces.pinned());
        if pieces.len().saturating_mul(MAX_PINNED) < pinned {
            return Ok(Sent { rows: 0, compacts: true });
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
        Ok(Sent { rows, compacts: false })
    }

    /// Whether all who will read what goes there are known, and take it in pieces.
    fn takes_pieces(&self, lane: Lane) -> bool {
        let targets = lane.targets(&self.partition);
        let all = || {
            let each = self.partition.subpartitions()[targets.clone()].iter();
            each.filter_map(|target| target.takes_pieces()).all(|takes| takes)
        };
        let is_read = !self.partition.kind().is_stored() && lane.is_wanted(&self.partition);
        is_read && all() && self.partition.buffers().leaves_plain(targets.clone())
    }

    /// So many segments, if they can be had. Waits for them, unless the last wait was in vain.
    fn charge(&self, lane: Lane, count: u64, interrupt: Interrupt<'_>) -> Result<Option<Charge>> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let request = |patient| {
            self.partition.segments().request_charge(lane.subpartition(), count, patient, interrupt)
        };
        let mut charge = request(false)?;
        let waits = std::mem::replace(&mut lock(&self.state).waits_for_charge, charge.is_some());
        if charge.is_none() && waits {
            // What is open may be what holds the segments.
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

    /// Sends the open pages that a consumer may be waiting for. One that has others queued is busy
    /// without: its page goes on filling, or a slow consumer would get ever more and ever smaller
    /// ones, each in a segment of its own.
    pub(super) fn flush_by_time(&self) {
        let mut state = lock(&self.state);
        for slot in 0..state.open.len() {
            if state.open[slot].is_some() && self.is_awaited(slot) {
                self.send(&mut state, slot);
            }
        }
    }

    fn is_awaited(&self, slot: usize) -> bool {
        let mut targets = self.partition.subpartitions()[self.targets(slot)].iter();
        targets.any(|subpartition| subpartition.queued() == 0)
    }

    /// What is open of the other kind goes first.
    fn send_others(&self, state: &mut State, lane: Lane) {
        let all = Lane::All.slot(&self.partition);
        match lane {
            Lane::One(_) => self.send(state, all),
            Lane::All => (0..all).for_each(|slot| self.send(state, slot)),
        }
    }

    /// Finishes the slot's open page and queues it.
    fn send(&self, state: &mut State, slot: usize) {
        let Some(Page { builder: page, compacts }) = state.open[slot].take() else {
            return;
        };
        let rows = page.num_rows() as u64;
        if rows == 0 {
            return;
        }
        page.teach(&mut state.profile);
        let (segment, len) = page.finish();
        let copies = &self.partition.shared().copies;
        Copies::count(if compacts { &copies.compacted } else { &copies.scatter }, len);
        let buffer = self.partition.buffers().freeze(segment, len, self.targets(slot));
        self.queue(self.targets(slot), &buffer, len, rows);
    }

    /// Queues a page, of so many bytes before it was compressed.
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

/// Pages for readers in this process have so many segments' bytes at most: a batch of little more than one
/// stays in one piece.
const LOCAL: usize = 2;
/// A batch keeps at most so many times its own bytes.
const MAX_PINNED: u64 = 4;
