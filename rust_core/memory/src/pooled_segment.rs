//! One segment out of a pool, and its way back.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::segment::Segment;
use crate::shared::{Shared, notify};

/// One segment, owned; goes back to where it came from when dropped, exactly once.
#[derive(Debug)]
pub struct PooledSegment {
    /// `None` only while it is being dropped.
    segment: Option<Segment>,
    home: Arc<Shared>,
    id: u64,
    /// On the "pinned" account instead of pool `id`'s; changes once, under the pool's lock.
    pinned: AtomicBool,
}

impl PooledSegment {
    pub(crate) fn new(segment: Segment, home: Arc<Shared>, id: u64) -> Self {
        Self { segment: Some(segment), home, id, pinned: AtomicBool::new(false) }
    }

    fn segment(&self) -> &Segment {
        self.segment.as_ref().expect("present until drop")
    }

    pub(crate) fn start(&mut self) -> NonNull<u8> {
        self.segment().start()
    }

    /// Moves the segment from its pool's account to that of batches the caller keeps, unless these
    /// already hold half of the budget or the guaranteed minimums would no longer fit.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.home.lock();
        if self.pinned.load(Ordering::Relaxed) {
            return true;
        }
        let total = self.home.total;
        let open = state.locals.values().filter(|local| !local.closed);
        let promised: usize = open.map(|local| local.share.min).sum();
        if (state.pinned + 1) * 2 > total || promised + state.pinned + 1 > total {
            return false;
        }
        self.pinned.store(true, Ordering::Relaxed);
        state.held -= 1;
        state.pinned += 1;
        if let Some(local) = state.locals.get_mut(&self.id) {
            local.share.held -= 1;
            if local.closed && local.share.held == 0 {
                state.locals.remove(&self.id);
            }
        }
        state.rebalance(total);
        let woken = state.wake(total);
        drop(state);
        notify(woken);
        true
    }
}

impl Deref for PooledSegment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.segment().as_slice()
    }
}

impl DerefMut for PooledSegment {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.segment.as_mut().expect("present until drop").as_mut_slice()
    }
}

impl AsRef<[u8]> for PooledSegment {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PooledSegment {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for PooledSegment {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.home.recycle(segment, self.id, self.pinned.load(Ordering::Relaxed));
        }
    }
}
