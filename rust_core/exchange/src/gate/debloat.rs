//! The size of a gate's buffers follows the speed of its reader (spec 8.4, 12.1).
//!
//! The reader reads the clock once per buffer, so no thread or timer is needed.
//!
//! Decision: ADR 0018.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headgate_memory::lock;
use headgate_protocol::{BufferDebloater, BufferSizeEma, ThroughputCalculator};

use crate::config::BufferDebloatOptions;
use crate::stats::DebloatStats;

/// Returns the time since a fixed moment.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The measured throughput of one gate, and the buffer size that follows from it.
pub(crate) struct Debloating {
    clock: Clock,
    period: Duration,
    state: Mutex<State>,
}

struct State {
    throughput: ThroughputCalculator,
    debloater: BufferDebloater,
    /// The start of the current period; `None` before the first buffer.
    began: Option<Duration>,
}

impl Debloating {
    /// Measures by the system's clock.
    pub(crate) fn new(options: &BufferDebloatOptions, segment_size: usize) -> Self {
        let start = Instant::now();
        Self::with_clock(options, segment_size, Box::new(move || start.elapsed()))
    }

    pub(crate) fn with_clock(
        options: &BufferDebloatOptions,
        segment_size: usize,
        clock: Clock,
    ) -> Self {
        let bytes = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let start = bytes(options.starting_segment_size);
        let (min, max) = (bytes(options.min_segment_size), bytes(segment_size));
        let ema = BufferSizeEma::new(start, min, max, options.samples);
        let debloater = BufferDebloater::new(options.target, options.threshold_percentages, ema);
        let throughput = ThroughputCalculator::default();
        let state = Mutex::new(State { throughput, debloater, began: None });
        Self { clock, period: options.period, state }
    }

    /// The size in bytes that the producers know.
    pub(super) fn buffer_size(&self) -> u32 {
        lock(&self.state).debloater.buffer_size()
    }

    /// Stops the time until the next buffer: the reader found nothing.
    pub(super) fn pause(&self) {
        let now = (self.clock)();
        lock(&self.state).throughput.pause(now);
    }

    /// Measures a buffer that the reader took. Once per period this returns the size to announce to
    /// the producers, if it changed enough; only then `buffers_in_use` is called.
    pub(super) fn receive(
        &self,
        bytes: usize,
        buffers_in_use: impl FnOnce() -> usize,
    ) -> Option<NonZeroU32> {
        let throughput = self.measure(bytes)?;
        // Outside the lock, as it asks all channels.
        let buffers_in_use = buffers_in_use() as u64;
        let size = lock(&self.state).debloater.recalculate(throughput, buffers_in_use)?;
        NonZeroU32::new(size)
    }

    /// Adds a buffer. At the end of a period this returns the throughput before it, in bytes per
    /// second.
    fn measure(&self, bytes: usize) -> Option<u64> {
        let now = (self.clock)();
        let mut state = lock(&self.state);
        let began = *state.began.get_or_insert(now);
        let throughput = if now.saturating_sub(began) >= self.period {
            state.began = Some(now);
            state.throughput.calculate(now)
        } else {
            None
        };
        // Its reader's time for it begins now, so it counts in the next measurement.
        state.throughput.receive(bytes as u64, now);
        throughput
    }

    pub(super) fn stats(&self) -> DebloatStats {
        let debloater = &lock(&self.state).debloater;
        DebloatStats {
            buffer_size: debloater.buffer_size(),
            time_to_consume: debloater.time_to_consume(),
        }
    }
}

#[cfg(test)]
mod tests;
