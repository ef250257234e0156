//! Buffer debloating: buffers no larger than the consumer reads in time (spec 12.1).
//!
//! Decision: ADR 0018.

mod ema;
mod throughput;

use std::time::Duration;

pub use ema::BufferSizeEma;
pub use throughput::ThroughputCalculator;

/// Decides the size of a gate's buffers, and when to announce it to the producers.
///
/// The driver calls [`recalculate`](Self::recalculate) once per period.
#[derive(Clone, Debug)]
pub struct BufferDebloater {
    target: Duration,
    threshold_percentages: u32,
    ema: BufferSizeEma,
    /// The size that the producers know.
    announced: u32,
    time_to_consume: Duration,
}

impl BufferDebloater {
    /// Aims at buffers that are all consumed within `target`. Changes of less than
    /// `threshold_percentages` of the announced size are not announced. The producers know the size
    /// that `ema` starts with.
    #[must_use]
    pub const fn new(target: Duration, threshold_percentages: u32, ema: BufferSizeEma) -> Self {
        let announced = ema.size();
        Self { target, threshold_percentages, ema, announced, time_to_consume: Duration::ZERO }
    }

    /// Adds a sample: the throughput in bytes per second, and the number of buffers in use, where 0
    /// counts as 1. Returns the size in bytes to announce, if it changed enough.
    pub fn recalculate(&mut self, throughput: u64, buffers_in_use: u64) -> Option<u32> {
        let buffers = buffers_in_use.max(1);
        let total = u128::from(throughput) * self.target.as_millis() / MILLIS_IN_SECOND;
        let size = self.ema.add(u64::try_from(total).unwrap_or(u64::MAX), buffers);
        let in_use = u128::from(size) * u128::from(buffers);
        let millis = in_use * MILLIS_IN_SECOND / u128::from(throughput.max(1));
        self.time_to_consume = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        if !self.is_worth_announcing(size) {
            return None;
        }
        self.announced = size;
        Some(size)
    }

    /// The size in bytes that the producers know.
    #[must_use]
    pub const fn buffer_size(&self) -> u32 {
        self.announced
    }

    /// Time to consume all buffers in use, if they were full, at the throughput of the last sample.
    #[must_use]
    pub const fn time_to_consume(&self) -> Duration {
        self.time_to_consume
    }

    fn is_worth_announcing(&self, size: u32) -> bool {
        let least = u64::from(self.announced) * u64::from(self.threshold_percentages) / 100;
        let at_limit = size == self.ema.min() || size == self.ema.max();
        size != self.announced && (at_limit || u64::from(size.abs_diff(self.announced)) >= least)
    }
}

const MILLIS_IN_SECOND: u128 = 1000;
