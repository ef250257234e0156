//! One local pool's account: what it is promised, has out, and who waits for it.

use std::sync::Arc;

use crate::channels::Channels;
use crate::ledger::Share;
use crate::listener::SegmentListener;
use crate::sync::Condvar;

/// What a thread that sleeps on a local pool waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// A segment, an ordinary one.
    Segment,
    /// That, and no subpartition at its soft maximum.
    Availability,
    /// Any free segment, to set it aside.
    Reserve,
}

#[derive(Default)]
pub(crate) struct Local {
    pub(crate) share: Share,
    /// Segments set aside for this pool by `reserve`, those it has out included; at most `min`.
    pub(crate) floor: usize,
    pub(crate) max_overdraft: usize,
    pub(crate) channels: Channels,
    /// Segments out of no pool: each one that comes back takes its promise with it.
    pub(crate) unpooled: bool,
    pub(crate) closed: bool,
    pub(crate) arrived: Arc<Condvar>,
    /// Threads asleep on `arrived`, by what they want.
    waiting: [usize; 3],
    pub(crate) listeners: Vec<Arc<dyn SegmentListener>>,
    pub(crate) availability_listeners: Vec<Arc<dyn SegmentListener>>,
}

impl Local {
    /// A pool that holds nothing yet.
    pub(crate) fn new(share: Share, max_overdraft: usize, channels: Channels) -> Self {
        Self { share, max_overdraft, channels, ..Self::default() }
    }

    /// Segments for a caller who has no pool.
    pub(crate) fn unpooled(count: usize) -> Self {
        let share = Share { min: count, max: count, size: count, held: 0 };
        Self { share, unpooled: true, ..Self::default() }
    }

    pub(crate) fn waiting(&mut self, want: Want) -> &mut usize {
        &mut self.waiting[want as usize]
    }

    /// Segments that are kept free for this pool alone.
    pub(crate) fn set_aside(&self) -> usize {
        self.floor.saturating_sub(self.share.held)
    }

    /// What it may still take of the segments that are not set aside.
    pub(crate) fn unfilled(&self) -> usize {
        let has = self.share.held.max(self.floor);
        if self.closed { 0 } else { self.share.size.saturating_sub(has) }
    }

    /// Whether it may take an ordinary segment; `free` says that one is not set aside for others.
    pub(crate) fn can_take(&self, free: bool) -> bool {
        !self.closed && self.share.held < self.share.size && (free || self.set_aside() > 0)
    }

    /// Whether a request would be granted without overdraft and no subpartition is saturated; true
    /// where the pool is closed, since nobody has to wait to learn that.
    pub(crate) fn is_available(&self, free: bool) -> bool {
        self.closed || (self.can_take(free) && !self.channels.any_saturated())
    }

    /// Wakes the threads whose wish may come true now, and returns the listeners to tell.
    pub(crate) fn wake(&mut self, free: bool) -> Vec<Arc<dyn SegmentListener>> {
        let (segment, available) = (self.closed || self.can_take(free), self.is_available(free));
        let reserve = self.closed || free || self.share.held > self.floor;
        let [for_segment, for_availability, for_reserve] = self.waiting;
        // Telling nobody costs a system call too.
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
