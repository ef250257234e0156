#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
//! The pools from outside: one binary, a file per subject.

mod availability;
mod model;
mod sharing;
mod stress;
mod unpooled;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headgate_memory::{GlobalPool, LocalPool, PooledSegment, SegmentListener};

/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts how often it is told.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn told(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl SegmentListener for Count {
    fn segment_available(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Takes `count` segments that must be there.
fn take(pool: &LocalPool, count: usize) -> Vec<PooledSegment> {
    (0..count).map(|_| pool.try_request().unwrap().unwrap()).collect()
}

/// Waits until what another thread does is done.
fn wait_until(done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "not so after {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Every segment is home.
fn assert_home(global: &GlobalPool) {
    let stats = global.stats();
    assert_eq!((stats.held, stats.pinned, stats.reserved), (0, 0, 0));
    assert!(stats.idle <= stats.total && stats.peak <= stats.total);
}
