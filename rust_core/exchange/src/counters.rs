//! Totals of a writer or a reader, which other threads may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Rows or records, bytes and buffers so far. One thread adds, any thread reads.
#[derive(Debug, Default)]
pub struct Counters {
    rows: AtomicU64,
    bytes: AtomicU64,
    buffers: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, rows: u64, bytes: u64, buffers: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.buffers.fetch_add(buffers, Ordering::Relaxed);
    }

    /// Rows or records.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Bytes in buffers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Buffers.
    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }
}
