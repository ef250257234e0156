//! One segment out of a pool, and its way back.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::listener::notify;
use crate::region::RegionFile;
use crate::segment::Segment;
use crate::shared::Shared;

/// One segment, owned; goes back to where it came from when dropped, exactly once.
#[derive(Debug)]
pub struct PooledSegment {
    /// `None` only while it is being dropped.
    segment: Option<Segment>,
    home: Arc<Shared>,
    id: u64,
    /// The subpartition it was requested for.
    channel: Option<usize>,
    /// On the "pinned" account instead of pool `id`'s; changes once, under the pool's lock.
    pinned: AtomicBool,
}

impl PooledSegment {
    pub(crate) fn new(
        segment: Segment,
        home: Arc<Shared>,
        id: u64,
        channel: Option<usize>,
    ) -> Self {
        Self { segment: Some(segment), home, id, channel, pinned: AtomicBool::new(false) }
    }

    fn segment(&self) -> &Segment {
        self.segment.as_ref().expect("present until drop")
    }

    pub(crate) fn start(&mut self) -> NonNull<u8> {
        self.segment().start()
    }

    pub(crate) fn place(&self) -> Option<(RegionFile, usize)> {
        self.segment().place()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.home.is_forked()
    }

    /// Moves the segment from its pool's account to that of batches the caller keeps, unless these
    /// already hold half of the budget or the guaranteed minimums would no longer fit.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.home.lock();
        if self.pinned.load(Ordering::Relaxed) {
            return true;
        }
        if !state.pin(self.id, self.channel) {
            return false;
        }
        self.pinned.store(true, Ordering::Relaxed);
        let woken = state.wake();
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
            let pinned = self.pinned.load(Ordering::Relaxed);
            self.home.recycle(segment, self.id, self.channel, pinned);
        }
    }
}
