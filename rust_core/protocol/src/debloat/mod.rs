//! Buffers no larger than the consumer empties in time (spec 12.1).
//!
//! Decision: ADR 0018.

mod ema;
mod throughput;

use std::time::Duration;

pub use ema::BufferSizeEma;
pub use throughput::ThroughputCalculator;

/// Decides how large the buffers of a gate should be, and whether its producers need to know.
///
/// The driver calls [`recalculate`](Self::recalculate) once per period.
#[derive(Clone, Debug)]
pub struct BufferDebloater {
    target: Duration,
    threshold_percentages: u32,
    ema: BufferSizeEma,
    announced: u32,
    time_to_consume: Duration,
}

impl BufferDebloater {
    /// Aims at buffers that are all consumed within `target`. Changes below so many percent of the
    /// announced size are kept back. The producers know the size that `ema` starts with.
    #[must_use]
    pub const fn new(target: Duration, threshold_percentages: u32, ema: BufferSizeEma) -> Self {
        let announced = ema.size();
        Self { target, threshold_percentages, ema, announced, time_to_consume: Duration::ZERO }
    }

    /// Takes a sample: bytes per second, and the buffers they came in or are to come in; 0 counts as
    /// 1. Returns the size in bytes that the producers should be told, if it has changed enough.
    pub fn recalculate(&mut self, throughput: u64, buffers_in_use: u64) -> Option<u32> {
        let buffers = buffers_in_use.max(1);
        let total = u128::from(throughput) * self.target.as_millis() / MILLIS_IN_SECOND;
        let size = self.ema.add(u64::try_from(total).unwrap_or(u64::MAX), buffers);
        let in_use = u128::from(size) * u128::from(buffers);
        let millis = in_use * MILLIS_IN_SECOND / u128::from(throughput.max(1));
        self.time_to_consume = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        if !self.is_worth_telling(size) {
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

    /// How long all buffers in use would take, full and at the speed of the last sample.
    #[must_use]
    pub const fn time_to_consume(&self) -> Duration {
        self.time_to_consume
    }

    fn is_worth_telling(&self, size: u32) -> bool {
        let least = u64::from(self.announced) * u64::from(self.threshold_percentages) / 100;
        let at_limit = size == self.ema.min() || size == self.ema.max();
        size != self.announced && (at_limit || u64::from(size.abs_diff(self.announced)) >= least)
    }
}

const MILLIS_IN_SECOND: u128 = 1000;
