//! How fast a consumer takes what there is.

use std::time::Duration;

/// Bytes per second of the time in which there was something to take; waiting for more is no time.
///
/// Times are read off one clock by the driver, which calls [`receive`](Self::receive) per buffer,
/// [`pause`](Self::pause) when it finds none, and [`calculate`](Self::calculate) per period.
#[derive(Clone, Debug, Default)]
pub struct ThroughputCalculator {
    bytes: u64,
    measured: Duration,
    /// Since when time counts; `None` while it is paused.
    since: Option<Duration>,
    last: Option<u64>,
}

impl ThroughputCalculator {
    /// A buffer was taken; time counts from now on, if it did not.
    pub fn receive(&mut self, bytes: u64, now: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.since.get_or_insert(now);
    }

    /// There is nothing to take.
    pub fn pause(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.measured += now.saturating_sub(since);
        }
    }

    /// Bytes per second since the last call; what it returned last if no time counted since then,
    /// and `None` if none ever did.
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
