//! A segment shared between one writer and any number of readers.

use std::ptr::NonNull;

use crate::pooled_segment::PooledSegment;
use crate::position::{Position, Published};

/// A pooled segment with a published write position.
///
/// ```text
///   0            published              len
///   |-- frozen ------|-- the writer's ---|
///     any reader        one builder
/// ```
///
/// Bytes below the published position are frozen (M3); bytes above it belong to the one builder
/// (M4). Dropping the last reference drops the segment, which returns it to its pool, once.
#[derive(Debug)]
pub(crate) struct Block {
    segment: PooledSegment,
    start: NonNull<u8>,
    position: Position,
}

// SAFETY: M3 and M4 split the bytes between the one writer and the readers; the position that
// divides them is atomic.
unsafe impl Sync for Block {}
// SAFETY: the pointer is into `segment`, which is `Send` and moves along.
unsafe impl Send for Block {}

impl Block {
    /// Wraps a segment; the caller keeps the only right to write above the published position.
    pub(crate) fn new(mut segment: PooledSegment) -> Self {
        let start = segment.start();
        Self { segment, start, position: Position::new() }
    }

    /// Wraps a segment whose first `len` bytes are all there will be.
    pub(crate) fn frozen(segment: PooledSegment, len: usize) -> Self {
        let block = Self::new(segment);
        block.position.publish(len.min(block.capacity()), true);
        block
    }

    pub(crate) fn capacity(&self) -> usize {
        self.segment.len()
    }

    pub(crate) fn segment(&self) -> &PooledSegment {
        &self.segment
    }

    /// The segment, for a new owner: nobody reads or writes it any more.
    pub(crate) fn into_segment(self) -> PooledSegment {
        self.segment
    }

    pub(crate) fn published(&self) -> Published {
        self.position.load()
    }

    pub(crate) fn publish(&self, len: usize, finished: bool) {
        debug_assert!(len <= self.capacity() && len >= self.position.load().len);
        self.position.publish(len, finished);
    }

    /// Bytes `from..to`, which must lie below a position that the caller has seen published.
    pub(crate) fn read(&self, from: usize, to: usize) -> &[u8] {
        assert!(
            from <= to && to <= self.published().len,
            "reads stay below the published position"
        );
        // SAFETY: M1 (initialised) and M3 (below the published position nobody writes any more).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }

    /// The writer's part from `from` on.
    ///
    /// # Safety
    /// The caller is the one builder of this block (M4) and `from` is not below the published
    /// position.
    #[expect(
        clippy::mut_from_ref,
        reason = "M4: the one builder is the exclusive owner of this range"
    )]
    pub(crate) unsafe fn writable(&self, from: usize, to: usize) -> &mut [u8] {
        assert!(from <= to && to <= self.capacity(), "writes stay inside the segment");
        // SAFETY: M1; the caller promises M4, so nobody else reads or writes this range.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(from), to - from) }
    }
}
