//! The speed of a consumer while it has buffers to read.

use std::time::Duration;

/// Measures bytes per second. Time in which the consumer waits for buffers does not count.
///
/// The driver reads the clock. It calls [`receive`](Self::receive) per buffer,
/// [`pause`](Self::pause) when it finds none, and [`calculate`](Self::calculate) per period.
#[derive(Clone, Debug, Default)]
pub struct ThroughputCalculator {
    bytes: u64,
    /// Time that counted since the last calculation, up to `since`.
    measured: Duration,
    /// The moment from which time counts; `None` while paused.
    since: Option<Duration>,
    /// The last result.
    last: Option<u64>,
}

impl ThroughputCalculator {
    /// Adds a buffer that was taken; time counts from now on.
    pub fn receive(&mut self, bytes: u64, now: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.since.get_or_insert(now);
    }

    /// Stops the time until the next buffer.
    pub fn pause(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.measured += now.saturating_sub(since);
        }
    }

    /// Returns the bytes per second since the last call. If no time counted since then, returns the
    /// last result; `None` if no time ever counted.
    pub fn calculate(&mut self, now: Duration) -> Option<u64> {
        if let Some(since) = &mut self.since {
            self.measured += now.saturating_sub(*since);
            *since = now;
        }
        let bytes = u128::from(self.bytes) * NANOS_IN_SECOND;
        if let Some(throughput) = bytes.checked_div(self.measured.as_nanos()) {
            self.last = Some(u64::try_from(throughput).unwrap_or(u64::MAX));
            (self.bytes, self.measured) = (0, Duration::ZERO);
        }
        self.last
    }
}

const NANOS_IN_SECOND: u128 = 1_000_000_000;
