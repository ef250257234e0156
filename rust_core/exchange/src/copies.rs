//! Payload copies, counted by reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of payload copied within this process; what the kernel copies is not counted.
#[derive(Debug, Default)]
pub struct Copies {
    /// Rows gathered into pages: the one copy that partitioning needs.
    pub scatter: AtomicU64,
    /// Rows of slices gathered into pages, since they would have kept much more memory than they have.
    pub compacted: AtomicU64,
    /// Small pages that a reader puts together into larger batches.
    pub coalesced: AtomicU64,
    /// The caller keeps so many batches that no further segment may stay with them.
    pub pool_low: AtomicU64,
    /// Records above the spill threshold, written to a file until they are complete.
    pub spilled: AtomicU64,
    /// Records that span buffers, cut up by the writer or put together by the reader.
    pub spanning: AtomicU64,
    /// Buffers that another process lent, whose memory there was no room to map.
    pub unmapped: AtomicU64,
}

impl Copies {
    pub(crate) fn count(reason: &AtomicU64, bytes: usize) {
        reason.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
