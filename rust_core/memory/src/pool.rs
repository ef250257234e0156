//! The global pool of a process.
//!
//! Decision: ADR 0004.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::error::{PoolTooSmall, UnpooledError};
use crate::fork;
use crate::ledger::Share;
use crate::listener::notify;
use crate::local_pool::LocalPool;
use crate::options::LocalPoolOptions;
use crate::pool_inner::PoolInner;
use crate::pooled_segment::PooledSegment;
use crate::segment::SegmentSource;
use crate::subpartition_counts::SubpartitionCounts;

/// Time between two calls of `interrupted` while `request_unpooled` waits.
const INTERRUPT_PERIOD: Duration = Duration::from_millis(50);

/// Snapshot of a global pool, in segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Size of a segment in bytes.
    pub segment_size: usize,
    /// Budget.
    pub total: usize,
    /// Segments that are mapped and not in use.
    pub idle: usize,
    /// Segments held by local pools or as unpooled segments.
    pub held: usize,
    /// Free segments that are reserved for one local pool.
    pub reserved: usize,
    /// Segments pinned by batches that the caller keeps.
    pub pinned: usize,
    /// Most segments ever held and pinned at once.
    pub peak: usize,
    /// Open local pools.
    pub local_pools: usize,
    /// Demand of all pools in percent of the budget: the maximum of bounded pools, the minimum of
    /// unbounded ones, and unpooled segments. Above 100, pools cannot all get what they want (spec
    /// 1.3).
    pub requested_percent: usize,
}

/// The memory budget of a process, in segments of one size. Memory is committed on first use.
///
/// One lock covers the global pool and all its local pools. It is taken once per segment, a few
/// thousand times per GB, and there is no lock order to violate.
#[derive(Debug, Clone)]
pub struct GlobalPool(pub(crate) Arc<PoolInner>);

impl GlobalPool {
    /// Creates a budget of `total` segments of `segment_size` bytes each, without committing
    /// memory.
    pub fn new(total: usize, segment_size: usize) -> Self {
        let inner = Arc::new(PoolInner::new(total, segment_size));
        fork::register(&inner);
        Self(inner)
    }

    /// Size of a segment in bytes.
    pub fn segment_size(&self) -> usize {
        self.0.segment_size
    }

    /// Creates a pool with `min` guaranteed segments, which may grow to `max` while other pools do
    /// not need them.
    ///
    /// # Errors
    /// [`PoolTooSmall`] if the minimums of all pools exceed the budget.
    pub fn create_local_pool(&self, min: usize, max: usize) -> Result<LocalPool, PoolTooSmall> {
        self.create_local_pool_with(&LocalPoolOptions::new(min, max))
    }

    /// Creates a pool with these options.
    ///
    /// # Errors
    /// As [`create_local_pool`](Self::create_local_pool).
    pub fn create_local_pool_with(
        &self,
        options: &LocalPoolOptions,
    ) -> Result<LocalPool, PoolTooSmall> {
        let LocalPoolOptions { min, max, max_overdraft, num_subpartitions, .. } = *options;
        let share = Share { min, max: max.max(min), size: min, held: 0 };
        let subpartitions =
            SubpartitionCounts::new(num_subpartitions, options.max_buffers_per_channel);
        self.insert(Account::new(share, max_overdraft, subpartitions))
    }

    pub(crate) fn insert(&self, account: Account) -> Result<LocalPool, PoolTooSmall> {
        let arrived = Arc::clone(&account.arrived);
        let id = self.0.lock().insert(account)?;
        Ok(LocalPool::new(Arc::clone(&self.0), id, arrived))
    }

    /// Waits up to `timeout` for `count` segments that belong to no local pool (spec 1.3). They are
    /// guaranteed from the start, so that pools return what they borrowed, and until each is
    /// recycled or pinned. `interrupted` is polled during the wait; true ends it.
    ///
    /// # Errors
    /// [`UnpooledError`]; the segments collected so far are returned and the guarantee ends.
    pub fn request_unpooled(
        &self,
        count: usize,
        timeout: Duration,
        interrupted: impl Fn() -> bool,
    ) -> Result<Vec<PooledSegment>, UnpooledError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut account = self.insert(Account::unpooled(count))?;
        let deadline = Instant::now().checked_add(timeout);
        let mut segments = Vec::with_capacity(count);
        while segments.len() < count {
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            match account.request(left)? {
                Some(segment) => segments.push(segment),
                None if left < INTERRUPT_PERIOD => {
                    let collected = segments.len();
                    return Err(UnpooledError::TimedOut { requested: count, collected, timeout });
                }
                None if interrupted() => return Err(UnpooledError::Interrupted),
                None => {}
            }
        }
        account.detach();
        Ok(segments)
    }

    /// Allocates further segments in regions that other processes of this host can map.
    ///
    /// Does nothing if the kernel commits memory strictly: a write to a memfd can then fail with a
    /// signal, a write to private memory cannot.
    pub fn share(&self) {
        let mut state = self.0.lock();
        if matches!(state.source, SegmentSource::Private) && !commits_strictly() {
            state.source = SegmentSource::Shared { regions: 0, last: None };
        }
    }

    /// Closes every local pool and unmaps idle segments; the others are unmapped when they are
    /// recycled.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let unused = (std::mem::take(&mut state.idle), std::mem::take(&mut state.source));
        let ids: Vec<u64> = state.accounts.keys().copied().collect();
        let woken = ids.into_iter().flat_map(|id| state.close_account(id)).collect();
        drop(state);
        drop(unused);
        notify(woken);
    }

    /// Takes a snapshot of the counts.
    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        let demand = |share: Share| if share.max == usize::MAX { share.min } else { share.max };
        let requested: usize = state.open().map(|account| demand(account.share)).sum();
        PoolStats {
            segment_size: self.0.segment_size,
            total: state.total,
            idle: state.idle.len(),
            held: state.held,
            reserved: state.reserved,
            pinned: state.pinned,
            peak: state.peak,
            local_pools: state.open().filter(|account| !account.unpooled).count(),
            requested_percent: requested.saturating_mul(100) / state.total.max(1),
        }
    }
}

/// Returns true if `vm.overcommit_memory` is 2.
fn commits_strictly() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}
