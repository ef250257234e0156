//! The size of a gate's buffers follows the speed of its reader (spec 8.4, 12.1).
//!
//! There is no thread for it: the reader looks at the clock once per buffer, and measures what it did
//! with the buffers before.
//!
//! Decision: ADR 0018.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headgate_protocol::{BufferDebloater, BufferSizeEma, ThroughputCalculator};

use crate::config::BufferDebloatOptions;
use crate::gate::InputGate;
use crate::lock::lock;
use crate::stats::DebloatStats;

/// Time since a moment that does not change.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// What is measured of one gate, and the size that follows from it.
pub(crate) struct Debloating {
    clock: Clock,
    period: Duration,
    state: Mutex<State>,
}

struct State {
    throughput: ThroughputCalculator,
    debloater: BufferDebloater,
    /// When the last period began; `None` before the first buffer.
    began: Option<Duration>,
}

impl Debloating {
    /// By the clock of the system.
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

    /// The size in bytes that the producers were told last.
    fn buffer_size(&self) -> u32 {
        lock(&self.state).debloater.buffer_size()
    }

    /// The reader found nothing.
    fn pause(&self) {
        let now = (self.clock)();
        lock(&self.state).throughput.pause(now);
    }

    /// The reader took a buffer; once per period, how many bytes of those before it were read in a
    /// second.
    fn receive(&self, bytes: usize) -> Option<u64> {
        let now = (self.clock)();
        let mut state = lock(&self.state);
        let began = *state.began.get_or_insert(now);
        let throughput = if now.saturating_sub(began) >= self.period {
            state.began = Some(now);
            state.throughput.calculate(now)
        } else {
            None
        };
        // It counts with the time that its reader takes for it, which begins now.
        state.throughput.receive(bytes as u64, now);
        throughput
    }

    fn recalculate(&self, throughput: u64, buffers_in_use: usize) -> Option<NonZeroU32> {
        let mut state = lock(&self.state);
        let size = state.debloater.recalculate(throughput, buffers_in_use as u64)?;
        NonZeroU32::new(size)
    }

    fn stats(&self) -> DebloatStats {
        let debloater = &lock(&self.state).debloater;
        DebloatStats {
            buffer_size: debloater.buffer_size(),
            time_to_consume: debloater.time_to_consume(),
        }
    }
}

impl InputGate {
    /// The same gate, without channels yet, with buffers as large as its reader can do with.
    pub(crate) fn debloated(mut self, debloating: Debloating) -> Self {
        // Channels learn the size to start with as they are requested.
        if let Some(size) = NonZeroU32::new(debloating.buffer_size()) {
            self.announce_buffer_size(size);
        }
        self.debloating = Some(debloating);
        self
    }

    /// The reader found nothing: time does not count until there is something.
    pub(super) fn pause_measurement(&self) {
        if let Some(debloating) = &self.debloating {
            debloating.pause();
        }
    }

    /// The reader comes back from another gate: without data for it, its time does not count.
    pub(super) fn pause_unless_available(&self) {
        if self.debloating.is_some() && !self.queue().lock().is_available() {
            self.pause_measurement();
        }
    }

    /// The reader took a buffer of so many bytes; tells the producers once they should know more.
    pub(super) fn measure(&self, bytes: usize) {
        let Some(debloating) = &self.debloating else {
            return;
        };
        if let Some(throughput) = debloating.receive(bytes)
            && let Some(size) = debloating.recalculate(throughput, self.buffers_in_use())
        {
            self.announce_buffer_size(size);
        }
    }

    /// Buffers of all channels that wait, here or at the producers.
    fn buffers_in_use(&self) -> usize {
        self.channels().iter().flatten().map(|channel| channel.buffers_in_use()).sum()
    }

    pub(super) fn debloat_stats(&self) -> Option<DebloatStats> {
        self.debloating.as_ref().map(Debloating::stats)
    }
}

#[cfg(test)]
mod tests;
