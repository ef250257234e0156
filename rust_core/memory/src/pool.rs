//! The global pool of a process.

use std::sync::Arc;

use crate::channels::Channels;
use crate::error::PoolTooSmall;
use crate::ledger::Share;
use crate::listener::notify;
use crate::local::Local;
use crate::local_pool::LocalPool;
use crate::options::LocalPoolOptions;
use crate::segment::Source;
use crate::shared::Shared;

/// How many segments are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of one segment.
    pub segment_size: usize,
    /// The budget, in segments.
    pub total: usize,
    /// Segments mapped so far and waiting to be used again.
    pub idle: usize,
    /// Segments out on the account of a local pool, or of none.
    pub held: usize,
    /// Segments that are not out, but set aside for one local pool.
    pub reserved: usize,
    /// Segments under batches that the caller keeps.
    pub pinned: usize,
    /// The most that was ever out at once.
    pub peak: usize,
    /// Open local pools.
    pub local_pools: usize,
    /// What all of them would like to have, in percent of the budget: the maximum of bounded pools,
    /// the minimum of others, and unpooled segments. From 100 on they share too little (spec 1.3).
    pub requested_percent: usize,
}

/// The byte budget of a process, in segments of one size, committed as they are first used.
///
/// One lock covers the global pool and all its local pools: at segment granularity it is taken a
/// few thousand times per GB/s, and no order of locks can be got wrong.
#[derive(Debug, Clone)]
pub struct GlobalPool(pub(crate) Arc<Shared>);

impl GlobalPool {
    /// A budget of `total` segments of `segment_size` bytes each; nothing is committed yet.
    pub fn new(total: usize, segment_size: usize) -> Self {
        Self(Arc::new(Shared::new(total, segment_size)))
    }

    /// Bytes of one segment.
    pub fn segment_size(&self) -> usize {
        self.0.segment_size
    }

    /// A pool that is guaranteed `min` segments and may grow to `max` while others do not need them.
    ///
    /// # Errors
    /// [`PoolTooSmall`] when the minimums of all pools no longer fit the budget.
    pub fn create_local_pool(&self, min: usize, max: usize) -> Result<LocalPool, PoolTooSmall> {
        self.create_local_pool_with(&LocalPoolOptions::new(min, max))
    }

    /// A pool with these options.
    ///
    /// # Errors
    /// As [`create_local_pool`](Self::create_local_pool).
    pub fn create_local_pool_with(
        &self,
        options: &LocalPoolOptions,
    ) -> Result<LocalPool, PoolTooSmall> {
        let LocalPoolOptions { min, max, max_overdraft, num_subpartitions, .. } = *options;
        let share = Share { min, max: max.max(min), size: min, held: 0 };
        let channels = Channels::new(num_subpartitions, options.max_buffers_per_channel);
        self.insert(Local::new(share, max_overdraft, channels))
    }

    pub(crate) fn insert(&self, local: Local) -> Result<LocalPool, PoolTooSmall> {
        let arrived = Arc::clone(&local.arrived);
        let id = self.0.lock().insert(local)?;
        Ok(LocalPool::new(Arc::clone(&self.0), id, arrived))
    }

    /// From now on segments are mapped where other processes of this host can be let read them.
    /// Where the kernel commits memory strictly they are not: what it promised to a file can be
    /// refused by a signal, and what it promised to a process cannot.
    pub fn share(&self) {
        let mut state = self.0.lock();
        if matches!(state.source, Source::Private) && !commits_strictly() {
            state.source = Source::Shared { regions: 0, last: None };
        }
    }

    /// Closes every local pool and unmaps what is idle; the rest is unmapped as it is recycled.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let unused = (std::mem::take(&mut state.idle), std::mem::take(&mut state.source));
        let ids: Vec<u64> = state.locals.keys().copied().collect();
        let woken = ids.into_iter().flat_map(|id| state.close_local(id)).collect();
        drop(state);
        drop(unused);
        notify(woken);
    }

    /// A snapshot.
    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        let wish = |share: Share| if share.max == usize::MAX { share.min } else { share.max };
        let requested: usize = state.open().map(|local| wish(local.share)).sum();
        PoolStats {
            segment_size: self.0.segment_size,
            total: state.total,
            idle: state.idle.len(),
            held: state.held,
            reserved: state.reserved,
            pinned: state.pinned,
            peak: state.peak,
            local_pools: state.open().filter(|local| !local.unpooled).count(),
            requested_percent: requested.saturating_mul(100) / state.total.max(1),
        }
    }
}

/// Whether `vm.overcommit_memory` is 2.
fn commits_strictly() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}
