//! The numbers of a global pool and its local pools: every decision is made here, under one lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::PoolTooSmall;
use crate::ledger::{Share, admit, redistribute};
use crate::listener::SegmentListener;
use crate::local::Local;
use crate::segment::{Segment, Source};

/// Invariant: `held + reserved + pinned <= total`, and `idle.len() + held + pinned <= total`.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) total: usize,
    /// Mapped and unused.
    pub(crate) idle: Vec<Segment>,
    /// Where the others come from as they are first used.
    pub(crate) source: Source,
    /// Out on the account of a local pool: the sum of `share.held`.
    pub(crate) held: usize,
    /// Set aside and not out: the sum of `set_aside()`.
    pub(crate) reserved: usize,
    /// Under batches that the caller keeps.
    pub(crate) pinned: usize,
    pub(crate) peak: usize,
    pub(crate) closed: bool,
    next_id: u64,
    /// Closed ones stay until their last segment is back.
    pub(crate) locals: BTreeMap<u64, Local>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("held", &self.held)
            .field("reserved", &self.reserved)
            .field("pinned", &self.pinned)
            .field("local_pools", &self.locals.len())
            .finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// A segment that was never used.
    pub(crate) fn cut(&mut self, len: usize) -> rustix::io::Result<Segment> {
        self.source.cut(len, self.total)
    }

    /// Whether a segment is left that is neither out nor set aside.
    pub(crate) fn is_free(&self) -> bool {
        self.held + self.reserved + self.pinned < self.total
    }

    /// The pools that are open, and the minimums of the unpooled segments that are out.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Local> {
        self.locals.values().filter(|local| !local.closed)
    }

    /// Enters a new pool, if what is promised to all of them fits.
    pub(crate) fn insert(&mut self, local: Local) -> Result<u64, PoolTooSmall> {
        let total = if self.closed { 0 } else { self.total };
        let shares = self.open().map(|local| local.share);
        admit(shares, local.share.min, self.pinned, total)?;
        let id = self.next_id;
        self.next_id += 1;
        self.locals.insert(id, local);
        self.rebalance();
        Ok(id)
    }

    /// Whether pool `id` may take a segment; ordinary, or else beyond its size if `overdraw` is set.
    ///
    /// Overdraft is only what no other pool may take: what redistribution leaves to a pool is not
    /// queued by another one, which could wait for just that pool to go on.
    pub(crate) fn can_take(&self, id: u64, overdraw: bool) -> bool {
        let Some(local) = self.locals.get(&id) else {
            return false;
        };
        let Share { size, held, .. } = local.share;
        if held < size || local.closed {
            return local.can_take(self.is_free());
        }
        if !overdraw || held - size >= local.max_overdraft {
            return false;
        }
        let of_others: usize = self.locals.values().map(Local::unfilled).sum();
        self.held + self.reserved + self.pinned + of_others < self.total
    }

    /// Whether pool `id` may take so many at once, all of them ordinary.
    pub(crate) fn can_take_all(&self, id: u64, count: usize) -> bool {
        self.locals.get(&id).is_some_and(|local| {
            let others = self.held + self.reserved - local.set_aside() + self.pinned;
            let fits = local.share.held + count <= local.share.size;
            !local.closed && fits && others + count <= self.total
        })
    }

    /// Puts one more segment on the account of pool `id`.
    pub(crate) fn charge(&mut self, id: u64, channel: Option<usize>) {
        let Some(local) = self.locals.get_mut(&id) else {
            return;
        };
        self.reserved -= usize::from(local.set_aside() > 0);
        local.share.held += 1;
        local.channels.taken(channel);
        self.held += 1;
        self.peak = self.peak.max(self.held + self.pinned);
    }

    /// Takes one segment off the account of pool `id`.
    pub(crate) fn discharge(&mut self, id: u64, channel: Option<usize>) {
        self.held -= 1;
        let Some(local) = self.locals.get_mut(&id) else {
            return;
        };
        local.share.held -= 1;
        local.channels.returned(channel);
        self.reserved += usize::from(local.set_aside() > 0);
        let Share { min, max, held, .. } = &mut local.share;
        let gone = *held == 0 && (local.closed || local.unpooled);
        if local.unpooled {
            (*min, *max) = (*min - 1, *max - 1);
        }
        let promise_changed = local.unpooled;
        if gone {
            self.locals.remove(&id);
        }
        if promise_changed {
            self.rebalance();
        }
    }

    /// Moves a segment from its pool's account to that of batches the caller keeps, unless these
    /// already hold half of the budget or what is promised or set aside would no longer fit.
    pub(crate) fn pin(&mut self, id: u64, channel: Option<usize>) -> bool {
        let promised: usize = self.open().map(|local| local.share.min).sum();
        let local = self.locals.get(&id);
        // Its pool will want another one in its place.
        let replaced = usize::from(local.is_some_and(|local| local.share.held <= local.floor));
        let used = self.held + self.reserved + self.pinned;
        // An unpooled segment takes its own promise with it.
        let own = usize::from(local.is_some_and(|local| local.unpooled && !local.closed));
        if (self.pinned + 1) * 2 > self.total
            || promised - own + self.pinned + 1 > self.total
            || used + replaced > self.total
        {
            return false;
        }
        self.pinned += 1;
        self.discharge(id, channel);
        self.rebalance();
        true
    }

    /// Sets segments aside for pool `id`, one by one while they are free, up to `count` in all.
    pub(crate) fn set_aside(&mut self, id: u64, count: usize) -> usize {
        let mut given = 0;
        while let Some(local) = self.locals.get(&id)
            && local.floor < count
            && (local.share.held > local.floor || self.is_free())
        {
            self.change_floor(id, |floor| floor + 1);
            given += 1;
        }
        given
    }

    /// Changes what is set aside for pool `id`.
    pub(crate) fn change_floor(&mut self, id: u64, floor: impl FnOnce(usize) -> usize) {
        if let Some(local) = self.locals.get_mut(&id) {
            self.reserved -= local.set_aside();
            local.floor = floor(local.floor);
            self.reserved += local.set_aside();
        }
    }

    /// Promises pool `id` nothing more; it is gone with its last segment.
    pub(crate) fn close_local(&mut self, id: u64) -> Vec<Arc<dyn SegmentListener>> {
        self.change_floor(id, |_| 0);
        let Some(local) = self.locals.get_mut(&id) else {
            return Vec::new();
        };
        local.closed = true;
        let woken = local.wake(false);
        if local.share.held == 0 {
            self.locals.remove(&id);
        }
        woken
    }

    /// Lends what is not promised, by the rules of redistribution.
    pub(crate) fn rebalance(&mut self) {
        let open = self.locals.values_mut().filter(|local| !local.closed);
        let mut shares: Vec<&mut Share> = open.map(|local| &mut local.share).collect();
        redistribute(&mut shares, self.pinned, self.total);
    }

    /// Wakes whoever may have what it waits for; listeners are called after the lock is gone.
    pub(crate) fn wake(&mut self) -> Vec<Arc<dyn SegmentListener>> {
        let free = self.is_free();
        self.locals.values_mut().flat_map(|local| local.wake(free)).collect()
    }
}
