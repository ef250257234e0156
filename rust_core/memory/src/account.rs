//! The account of one local pool: its share of the segments, its reservation, and its waiters.

use std::sync::Arc;

use crate::ledger::Share;
use crate::listener::SegmentListener;
use crate::subpartition_counts::SubpartitionCounts;
use crate::sync::Condvar;

/// Condition that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The pool may take a segment without overdraft.
    Segment,
    /// As `Segment`, and the subpartitions are not saturated.
    Availability,
    /// A segment is free, to be reserved.
    Reserve,
}

#[derive(Default)]
pub(crate) struct Account {
    pub(crate) share: Share,
    /// Segments reserved for this pool, including those it holds; at most `min`.
    pub(crate) reservation: usize,
    pub(crate) max_overdraft: usize,
    pub(crate) subpartitions: SubpartitionCounts,
    /// True for unpooled segments: each one that is returned lowers the guarantee by one.
    pub(crate) unpooled: bool,
    pub(crate) closed: bool,
    pub(crate) arrived: Arc<Condvar>,
    /// Number of threads that wait on `arrived`, indexed by `Want`.
    waiting: [usize; 3],
    /// True if the current wait for availability ends at once, or the next one.
    pub(crate) woken: bool,
    pub(crate) listeners: Vec<Arc<dyn SegmentListener>>,
    pub(crate) availability_listeners: Vec<Arc<dyn SegmentListener>>,
}

impl Account {
    /// Creates the account of a pool that holds no segment.
    pub(crate) fn new(
        share: Share,
        max_overdraft: usize,
        subpartitions: SubpartitionCounts,
    ) -> Self {
        Self { share, max_overdraft, subpartitions, ..Self::default() }
    }

    /// Creates an account for `count` segments that belong to no local pool.
    pub(crate) fn unpooled(count: usize) -> Self {
        let share = Share { min: count, max: count, size: count, held: 0 };
        Self { share, unpooled: true, ..Self::default() }
    }

    pub(crate) fn waiting(&mut self, want: Want) -> &mut usize {
        &mut self.waiting[want as usize]
    }

    /// Segments that stay free for this pool alone.
    pub(crate) fn unused_reservation(&self) -> usize {
        self.reservation.saturating_sub(self.share.held)
    }

    /// Unreserved segments that the pool may still take without overdraft.
    pub(crate) fn unfilled(&self) -> usize {
        let has = self.share.held.max(self.reservation);
        if self.closed { 0 } else { self.share.size.saturating_sub(has) }
    }

    /// Returns true if the pool may take a segment without overdraft. `free` is true if an
    /// unreserved segment is free.
    pub(crate) fn can_take(&self, free: bool) -> bool {
        !self.closed && self.share.held < self.share.size && (free || self.unused_reservation() > 0)
    }

    /// Returns true if the pool may take a segment without overdraft and its subpartitions are not
    /// saturated. A closed pool is available too: a request fails at once, so there is nothing to
    /// wait for.
    pub(crate) fn is_available(&self, free: bool) -> bool {
        self.closed || (self.can_take(free) && !self.subpartitions.is_saturated())
    }

    /// Wakes the threads whose condition may hold now; returns the listeners to call.
    pub(crate) fn wake(&mut self, free: bool) -> Vec<Arc<dyn SegmentListener>> {
        let (segment, available) = (self.closed || self.can_take(free), self.is_available(free));
        let reserve = self.closed || free || self.share.held > self.reservation;
        let [for_segment, for_availability, for_reserve] = self.waiting;
        // `notify_all` makes a system call even if no thread waits.
        if segment && for_segment > 0
            || available && for_availability > 0
            || reserve && for_reserve > 0
        {
            self.arrived.notify_all();
        }
        let mut woken = Vec::new();
        if segment {
            woken.append(&mut self.listeners);
        }
        if available {
            woken.append(&mut self.availability_listeners);
        }
        woken
    }
}
