//! The counts of segments of a global pool and its local pools. Every decision is made here, under
//! one lock.
//!
//! Decisions: ADR 0004, ADR 0013.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;

use crate::account::Account;
use crate::error::{PoolTooSmall, Unmapped};
use crate::kept::Kept;
use crate::ledger::{Share, admit, redistribute};
use crate::listener::SegmentListener;
use crate::segment::{Segment, SegmentSource};

/// Invariant: `held + reserved + pinned <= total`, and `idle.len() + held + pinned <= total`.
#[derive(Default)]
pub(crate) struct PoolState {
    pub(crate) total: usize,
    /// Segments that are mapped and not in use.
    pub(crate) idle: Vec<Segment>,
    /// Allocator of further segments.
    pub(crate) source: SegmentSource,
    /// Segments held by accounts: the sum of `share.held`.
    pub(crate) held: usize,
    /// Free segments that are reserved: the sum of `unused_reservation()`.
    pub(crate) reserved: usize,
    /// Segments under batches that the caller keeps.
    pub(crate) pinned: usize,
    /// Shared memory under batches that the caller keeps, of which forked children get copies.
    pub(crate) kept: Kept,
    pub(crate) peak: usize,
    pub(crate) closed: bool,
    next_id: u64,
    /// A closed account stays until its last segment is returned.
    pub(crate) accounts: BTreeMap<u64, Account>,
}

impl fmt::Debug for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolState")
            .field("held", &self.held)
            .field("reserved", &self.reserved)
            .field("pinned", &self.pinned)
            .field("accounts", &self.accounts.len())
            .finish_non_exhaustive()
    }
}

impl PoolState {
    pub(crate) fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Allocates a new segment.
    pub(crate) fn cut(&mut self, len: usize) -> rustix::io::Result<Segment> {
        self.source.cut(len, self.total)
    }

    /// Returns the error of a segment for pool `id` that the kernel refused to map.
    pub(crate) fn unmapped(&self, id: u64, segment_size: usize, errno: Errno) -> Unmapped {
        let share = self.accounts.get(&id).map(|account| account.share);
        let (held, size) = share.map_or((0, 0), |share| (share.held, share.size));
        let (used, total) = (self.held + self.pinned, self.total);
        Unmapped { errno, segment_size, held, size, used, total }
    }

    /// Returns true if a segment is neither in use nor reserved.
    pub(crate) fn is_free(&self) -> bool {
        self.held + self.reserved + self.pinned < self.total
    }

    /// Iterates over the accounts that are not closed, those of unpooled segments included.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().filter(|account| !account.closed)
    }

    /// Adds an account if the guarantees of all accounts still fit the budget.
    pub(crate) fn insert(&mut self, account: Account) -> Result<u64, PoolTooSmall> {
        let total = if self.closed { 0 } else { self.total };
        let shares = self.open().map(|account| account.share);
        admit(shares, account.share.min, self.pinned, total)?;
        let id = self.next_id;
        self.next_id += 1;
        self.accounts.insert(id, account);
        self.rebalance();
        Ok(id)
    }

    /// Returns true if pool `id` may take a segment: within its size, or by overdraft if `overdraw`
    /// is set.
    ///
    /// Overdraft leaves all pools the segments that they may take within their size. Otherwise a
    /// pool could hold another pool's segment while it waits for that pool to proceed.
    pub(crate) fn can_take(&self, id: u64, overdraw: bool) -> bool {
        let Some(account) = self.accounts.get(&id) else {
            return false;
        };
        let Share { size, held, .. } = account.share;
        if held < size || account.closed {
            return account.can_take(self.is_free());
        }
        if !overdraw || held - size >= account.max_overdraft {
            return false;
        }
        let of_others: usize = self.accounts.values().map(Account::unfilled).sum();
        self.held + self.reserved + self.pinned + of_others < self.total
    }

    /// Returns true if pool `id` may take `count` segments at once without overdraft.
    pub(crate) fn can_take_all(&self, id: u64, count: usize) -> bool {
        self.accounts.get(&id).is_some_and(|account| {
            let others = self.held + self.reserved - account.unused_reservation() + self.pinned;
            let fits = account.share.held + count <= account.share.size;
            !account.closed && fits && others + count <= self.total
        })
    }

    /// Counts one more segment as held by pool `id`.
    pub(crate) fn charge(&mut self, id: u64, subpartition: Option<usize>) {
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        self.reserved -= usize::from(account.unused_reservation() > 0);
        account.share.held += 1;
        account.subpartitions.taken(subpartition);
        self.held += 1;
        self.peak = self.peak.max(self.held + self.pinned);
    }

    /// Counts one segment less as held by pool `id`.
    pub(crate) fn discharge(&mut self, id: u64, subpartition: Option<usize>) {
        self.held -= 1;
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        account.share.held -= 1;
        account.subpartitions.returned(subpartition);
        self.reserved += usize::from(account.unused_reservation() > 0);
        let Share { min, max, held, .. } = &mut account.share;
        let gone = *held == 0 && (account.closed || account.unpooled);
        if account.unpooled {
            (*min, *max) = (*min - 1, *max - 1);
        }
        let promise_changed = account.unpooled;
        if gone {
            self.accounts.remove(&id);
        }
        if promise_changed {
            self.rebalance();
        }
    }

    /// Counts a segment of pool `id` as pinned by the caller. Returns false if pinned segments
    /// already make up half of the budget, or if the guarantees or reservations would not fit any
    /// more.
    pub(crate) fn pin(&mut self, id: u64, subpartition: Option<usize>) -> bool {
        let promised: usize = self.open().map(|account| account.share.min).sum();
        let account = self.accounts.get(&id);
        // The pool of the pinned segment reserves another segment in its place.
        let replaced =
            usize::from(account.is_some_and(|account| account.share.held <= account.reservation));
        let used = self.held + self.reserved + self.pinned;
        // The guarantee of an unpooled segment ends when it is pinned.
        let own = usize::from(account.is_some_and(|account| account.unpooled && !account.closed));
        if (self.pinned + 1) * 2 > self.total
            || promised - own + self.pinned + 1 > self.total
            || used + replaced > self.total
        {
            return false;
        }
        self.pinned += 1;
        self.discharge(id, subpartition);
        self.rebalance();
        true
    }

    /// Reserves free segments for pool `id` until its reservation is `count`; returns the number
    /// added.
    pub(crate) fn reserve_up_to(&mut self, id: u64, count: usize) -> usize {
        let mut given = 0;
        while let Some(account) = self.accounts.get(&id)
            && account.reservation < count
            && (account.share.held > account.reservation || self.is_free())
        {
            self.change_reservation(id, |reserved| reserved + 1);
            given += 1;
        }
        given
    }

    /// Changes the reservation of pool `id`.
    pub(crate) fn change_reservation(&mut self, id: u64, change: impl FnOnce(usize) -> usize) {
        if let Some(account) = self.accounts.get_mut(&id) {
            self.reserved -= account.unused_reservation();
            account.reservation = change(account.reservation);
            self.reserved += account.unused_reservation();
        }
    }

    /// Ends the guarantee and the reservation of pool `id`; its account is removed with its last
    /// segment.
    pub(crate) fn close_account(&mut self, id: u64) -> Vec<Arc<dyn SegmentListener>> {
        self.change_reservation(id, |_| 0);
        let Some(account) = self.accounts.get_mut(&id) else {
            return Vec::new();
        };
        account.closed = true;
        let woken = account.wake(false);
        if account.share.held == 0 {
            self.accounts.remove(&id);
        }
        woken
    }

    /// Recomputes the size of every open pool.
    pub(crate) fn rebalance(&mut self) {
        let open = self.accounts.values_mut().filter(|account| !account.closed);
        let mut shares: Vec<&mut Share> = open.map(|account| &mut account.share).collect();
        redistribute(&mut shares, self.pinned, self.total);
    }

    /// Wakes all threads whose condition may hold now; returns the listeners to call once the lock
    /// is released.
    pub(crate) fn wake(&mut self) -> Vec<Arc<dyn SegmentListener>> {
        let free = self.is_free();
        self.accounts.values_mut().flat_map(|account| account.wake(free)).collect()
    }
}
