//! Counters of payload copies, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of payload copied within this process, without the kernel's copies.
#[derive(Debug, Default)]
pub struct Copies {
    /// Rows copied into pages: the one copy that partitioning needs.
    pub scatter: AtomicU64,
    /// Rows of slices copied into pages, so that the much larger memory they are slices of can be
    /// freed.
    pub compacted: AtomicU64,
    /// Small pages that a reader coalesces into larger batches.
    pub coalesced: AtomicU64,
    /// Pages copied out because the caller's batches keep too many segments already.
    pub pool_low: AtomicU64,
    /// Records above the spill threshold, assembled in a file.
    pub spilled: AtomicU64,
    /// Records that span buffers, split by the writer or assembled by the reader.
    pub spanning: AtomicU64,
}

impl Copies {
    pub(crate) fn count(reason: &AtomicU64, bytes: usize) {
        reason.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
