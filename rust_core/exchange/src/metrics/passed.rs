//! Buffers counted at one place.

use crate::counters::Counters;

/// False in the build that `python -m benches metrics` compares with, and only there.
pub(super) const COUNTS: bool = !cfg!(feature = "without-metrics");

/// Data buffers that passed one place, counted under the lock of that place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of the buffers.
    pub bytes: u64,
    /// Number of the buffers.
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

impl From<&Counters> for Passed {
    fn from(counters: &Counters) -> Self {
        Self { bytes: counters.bytes(), buffers: counters.buffers() }
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
