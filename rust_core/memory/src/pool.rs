//! The global pool of a process.

use std::sync::{Arc, Condvar, Mutex};

use crate::error::PoolTooSmall;
use crate::ledger::{Share, admit};
use crate::local_pool::LocalPool;
use crate::shared::{Local, Shared, State, notify};

/// How many segments are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of one segment.
    pub segment_size: usize,
    /// The budget, in segments.
    pub total: usize,
    /// Segments mapped so far and waiting to be used again.
    pub idle: usize,
    /// Segments out on the account of a local pool.
    pub held: usize,
    /// Segments under batches that the caller keeps.
    pub pinned: usize,
    /// The most that was ever out at once.
    pub peak: usize,
    /// Open local pools.
    pub local_pools: usize,
}

/// The byte budget of a process, in segments of one size, committed as they are first used.
///
/// One lock covers the global pool and all its local pools: at segment granularity it is taken a
/// few thousand times per GB/s, and no order of locks can be got wrong.
#[derive(Debug, Clone)]
pub struct GlobalPool(Arc<Shared>);

impl GlobalPool {
    /// A budget of `total` segments of `segment_size` bytes each; nothing is committed yet.
    pub fn new(total: usize, segment_size: usize) -> Self {
        Self(Arc::new(Shared {
            total,
            segment_size,
            process: std::process::id(),
            state: Mutex::new(State::default()),
        }))
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
        let max = max.max(min);
        let mut state = self.0.lock();
        let total = if state.closed { 0 } else { self.0.total };
        let open = state.locals.values().filter(|local| !local.closed);
        admit(open.map(|local| local.share), min, state.pinned, total)?;
        let id = state.next_id;
        state.next_id += 1;
        let arrived = Arc::new(Condvar::new());
        state.locals.insert(
            id,
            Local {
                share: Share { min, max, size: min, held: 0 },
                closed: false,
                arrived: Arc::clone(&arrived),
                listeners: Vec::new(),
            },
        );
        state.rebalance(self.0.total);
        drop(state);
        Ok(LocalPool::new(Arc::clone(&self.0), id, arrived))
    }

    /// Closes every local pool and unmaps what is idle; the rest is unmapped as it is recycled.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let idle = std::mem::take(&mut state.idle);
        for local in state.locals.values_mut() {
            local.closed = true;
        }
        let woken = state.wake(self.0.total);
        state.locals.retain(|_, local| local.share.held > 0);
        drop(state);
        drop(idle);
        notify(woken);
    }

    /// A snapshot.
    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        PoolStats {
            segment_size: self.0.segment_size,
            total: self.0.total,
            idle: state.idle.len(),
            held: state.held,
            pinned: state.pinned,
            peak: state.peak,
            local_pools: state.locals.values().filter(|local| !local.closed).count(),
        }
    }
}
