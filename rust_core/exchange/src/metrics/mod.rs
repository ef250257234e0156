//! Flink's network metrics: what is counted where a buffer passes and where somebody waits (spec 12.2).
//!
//! Everything else is a gauge: computed from what queues, pools and channels know of themselves when a
//! snapshot is taken, under the same short locks as any other use of them.
//!
//! Decision: ADR 0017.

mod idle;
mod names;
mod time;
mod timer;

use std::sync::Arc;

use crate::counters::Counters;

pub(crate) use idle::Idle;
pub use names::{Metric, Metrics};
pub(crate) use time::Activity;
pub use time::{TaskTimes, Times};
pub(crate) use timer::{Timer, Wait};

/// False in the build that `python -m benches metrics` compares with, and only there.
const COUNTS: bool = !cfg!(feature = "without-metrics");

/// What one environment's gates and partitions do, taken as one task.
#[derive(Debug, Default)]
pub(crate) struct TaskIoMetrics {
    pub(crate) timer: Arc<Timer>,
    /// Data buffers that readers took from channels within this process.
    pub(crate) in_local: Counters,
    /// The same, from channels of other processes.
    pub(crate) in_remote: Counters,
    /// Data buffers that writers finished, once for each subpartition that gets them.
    pub(crate) out: Counters,
}

impl TaskIoMetrics {
    /// A reader took a data buffer from a channel.
    pub(crate) fn taken(&self, is_local: bool, bytes: usize) {
        let counters = if is_local { &self.in_local } else { &self.in_remote };
        if COUNTS {
            counters.add(0, bytes as u64, 1);
        }
    }

    /// A writer finished a data buffer for this many subpartitions.
    pub(crate) fn finished(&self, subpartitions: usize, bytes: usize) {
        if COUNTS {
            self.out.add(0, (subpartitions * bytes) as u64, subpartitions as u64);
        }
    }
}

/// Data buffers that passed one place, under the lock of that place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub buffers: u64,
}

impl Passed {
    pub(crate) fn add(&mut self, bytes: usize) {
        if COUNTS {
            self.bytes += bytes as u64;
            self.buffers += 1;
        }
    }
}

impl std::iter::Sum for Passed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |one, other| Self {
            bytes: one.bytes + other.bytes,
            buffers: one.buffers + other.buffers,
        })
    }
}
