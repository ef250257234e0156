//! The metrics of one environment, which count as those of one Flink task.

use std::sync::Arc;

use super::passed::{COUNTS, Passed};
use super::timer::Timer;
use super::waits::WaitTimes;
use crate::counters::Counters;

/// Times and buffers of all gates and partitions of an environment.
#[derive(Debug, Default)]
pub(crate) struct TaskIoMetrics {
    pub(crate) timer: Arc<Timer>,
    pub(crate) waits: Arc<WaitTimes>,
    in_local: Counters,
    in_remote: Counters,
    out: Counters,
}

impl TaskIoMetrics {
    /// Counts a data buffer that a reader took from a channel.
    pub(crate) fn taken(&self, is_local: bool, bytes: usize) {
        let counters = if is_local { &self.in_local } else { &self.in_remote };
        if COUNTS {
            counters.add(0, bytes as u64, 1);
        }
    }

    /// Counts a data buffer that a writer finished for this many subpartitions.
    pub(crate) fn finished(&self, subpartitions: usize, bytes: usize) {
        if COUNTS {
            self.out.add(0, (subpartitions * bytes) as u64, subpartitions as u64);
        }
    }

    /// Data buffers that readers took from channels within this process.
    pub(crate) fn in_local(&self) -> Passed {
        Passed::from(&self.in_local)
    }

    /// Data buffers that readers took from channels of other processes.
    pub(crate) fn in_remote(&self) -> Passed {
        Passed::from(&self.in_remote)
    }

    /// Data buffers that writers finished, once for each subpartition that gets them.
    pub(crate) fn out(&self) -> Passed {
        Passed::from(&self.out)
    }
}
