#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]
//! The public API of the pools: one binary, one file per subject.

mod availability;
mod model;
mod sharing;
mod stress;
mod unpooled;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headgate_memory::{GlobalPool, LocalPool, PooledSegment, SegmentListener};

/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts its calls.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn calls(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl SegmentListener for Count {
    fn segment_available(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Takes `count` segments, which must be free.
fn take(pool: &LocalPool, count: usize) -> Vec<PooledSegment> {
    (0..count).map(|_| pool.try_request().unwrap().unwrap()).collect()
}

/// Waits until another thread has finished.
fn wait_until(done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "condition still false after {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Asserts that every segment is returned.
fn assert_all_returned(global: &GlobalPool) {
    let stats = global.stats();
    assert_eq!((stats.held, stats.pinned, stats.reserved), (0, 0, 0));
    assert!(stats.idle <= stats.total && stats.peak <= stats.total);
}
