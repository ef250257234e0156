//! One segment taken from a pool; dropping it returns it.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::RequestError;
use crate::listener::notify;
use crate::pool_inner::PoolInner;
use crate::region::RegionFile;
use crate::segment::Segment;
use crate::state::PoolState;

/// One owned segment; dropping it returns it to its pool, exactly once.
#[derive(Debug)]
pub struct PooledSegment {
    /// `None` only during drop.
    segment: Option<Segment>,
    pool: Arc<PoolInner>,
    id: u64,
    /// Subpartition the segment was requested for.
    subpartition: Option<usize>,
    /// True once the segment is counted as pinned instead of for pool `id`; set once, under the
    /// lock.
    pinned: AtomicBool,
    /// Place in the pool's table of kept memory; `NOT_KEPT` until then. Set once, under the lock.
    kept: AtomicUsize,
}

/// Value of `kept` for a segment whose memory forked children do not get.
const NOT_KEPT: usize = usize::MAX;

impl PooledSegment {
    /// Takes a segment for pool `id`, by overdraft if need be; `None` if the pool may not take one.
    pub(crate) fn take(
        pool: &Arc<PoolInner>,
        state: &mut PoolState,
        id: u64,
        subpartition: Option<usize>,
    ) -> Result<Option<Self>, RequestError> {
        if !state.can_take(id, true) {
            return Ok(None);
        }
        let segment = match state.idle.pop() {
            Some(mut segment) => {
                segment.unpoison();
                segment
            }
            None => {
                let cut = state.cut(pool.segment_size);
                cut.map_err(|errno| state.unmapped(id, pool.segment_size, errno))?
            }
        };
        state.charge(id, subpartition);
        let (pool, pinned) = (Arc::clone(pool), AtomicBool::new(false));
        let kept = AtomicUsize::new(NOT_KEPT);
        Ok(Some(Self { segment: Some(segment), pool, id, subpartition, pinned, kept }))
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

    pub(crate) fn is_shared(&self) -> bool {
        self.segment().is_shared()
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.pool.is_forked()
    }

    /// Counts the segment as pinned by the caller instead of for its pool. Returns false if pinned
    /// segments already make up half of the budget, or if the guaranteed minimums would not fit any
    /// more.
    pub(crate) fn pin(&self) -> bool {
        self.pin_with(|_| {})
    }

    /// Like [`pin`](Self::pin), and notes that forked children get a copy of `bytes`: bytes of the
    /// segment from its start, or those that are charged to it. They do not change, and stay mapped
    /// until the segment is dropped.
    pub(crate) fn keep(&self, bytes: &[u8]) -> bool {
        self.pin_with(|state| match self.kept.load(Ordering::Relaxed) {
            NOT_KEPT => self.kept.store(state.kept.add(bytes), Ordering::Relaxed),
            place => state.kept.extend(place, bytes.len()),
        })
    }

    fn pin_with(&self, note: impl FnOnce(&mut PoolState)) -> bool {
        let mut state = self.pool.lock();
        if self.pinned.load(Ordering::Relaxed) {
            note(&mut state);
            return true;
        }
        if !state.pin(self.id, self.subpartition) {
            return false;
        }
        self.pinned.store(true, Ordering::Relaxed);
        note(&mut state);
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
            let kept = Some(self.kept.load(Ordering::Relaxed)).filter(|place| *place != NOT_KEPT);
            self.pool.recycle(segment, self.id, self.subpartition, pinned, kept);
        }
    }
}
