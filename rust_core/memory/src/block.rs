//! A segment that one writer and any number of readers share.

use std::ptr::NonNull;

use crate::pooled_segment::PooledSegment;
use crate::position::{Position, Published};

/// A pooled segment with a published write position.
///
/// ```text
///   0            published              len
///   |-- frozen ------|-- being written --|
///     any reader        one builder
/// ```
///
/// Bytes below the published position never change (M3); bytes above it belong to the builder
/// (M4). Dropping the last reference returns the segment to its pool.
#[derive(Debug)]
pub(crate) struct Block {
    segment: PooledSegment,
    start: NonNull<u8>,
    position: Position,
}

// SAFETY: M3 and M4 divide the bytes between the writer and the readers at an atomic position.
unsafe impl Sync for Block {}
// SAFETY: the pointer points into `segment`, which is `Send` and moves with it.
unsafe impl Send for Block {}

impl Block {
    /// Wraps a segment without published bytes; only the caller may write above the published
    /// position.
    pub(crate) fn new(mut segment: PooledSegment) -> Self {
        let start = segment.start();
        Self { segment, start, position: Position::new() }
    }

    /// Wraps a segment whose first `len` bytes are complete.
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

    /// Returns the segment to a new owner; `self` is the last reference, so nobody else uses it.
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

    /// Returns bytes `from..to`, which must be below the published position.
    pub(crate) fn read(&self, from: usize, to: usize) -> &[u8] {
        assert!(
            from <= to && to <= self.published().len,
            "read of {from}..{to} exceeds the published {}",
            self.published().len
        );
        // SAFETY: M1, the bytes are initialised; M3, nobody writes below the published position.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }

    /// Returns bytes `from..to` for writing.
    ///
    /// # Safety
    /// The caller is the only builder of this block (M4), and `from` is not below the published
    /// position.
    #[expect(clippy::mut_from_ref, reason = "M4: the builder owns this range exclusively")]
    pub(crate) unsafe fn writable(&self, from: usize, to: usize) -> &mut [u8] {
        assert!(from <= to && to <= self.capacity(), "write of {from}..{to} exceeds the segment");
        // SAFETY: M1; the caller guarantees M4, so nobody else reads or writes this range.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(from), to - from) }
    }
}
