//! What an environment waits for: files and connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::passed::COUNTS;
use crate::stats::Waits;

/// Adds up the waits of an environment.
#[derive(Debug, Default)]
pub(crate) struct WaitTimes {
    disk: AtomicU64,
    link: AtomicU64,
}

/// The use of a file that lasts until this is dropped.
pub(crate) struct DiskWait<'a> {
    waits: &'a WaitTimes,
    began: Instant,
    /// Processor time of this thread at the beginning.
    worked: Duration,
}

impl WaitTimes {
    /// Counts the use of a file, without the processor time of this thread: a disk is slow if threads
    /// sleep.
    pub(crate) fn disk(&self) -> DiskWait<'_> {
        DiskWait { waits: self, began: Instant::now(), worked: thread_time() }
    }

    /// Notes the time for which the network has limited one connection.
    pub(crate) fn note_link(&self, limited: Duration) {
        self.link.fetch_max(nanoseconds(limited), Ordering::Relaxed);
    }

    /// All times so far.
    pub(crate) fn totals(&self) -> Waits {
        let [disk_ns, link_ns] = [&self.disk, &self.link].map(|at| at.load(Ordering::Relaxed));
        Waits { disk_ns, link_ns }
    }
}

impl Drop for DiskWait<'_> {
    fn drop(&mut self) {
        let worked = thread_time().saturating_sub(self.worked);
        let waited = self.began.elapsed().saturating_sub(worked);
        add(&self.waits.disk, waited);
    }
}

fn add(total: &AtomicU64, waited: Duration) {
    if COUNTS {
        total.fetch_add(nanoseconds(waited), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_file_is_waited_for_while_the_thread_sleeps_and_not_while_it_works() {
        let waits = WaitTimes::default();
        let using = waits.disk();
        std::thread::sleep(20 * MS);
        drop(using);
        let slept = waits.totals().disk_ns;
        assert!(slept >= 15_000_000, "{slept} ns");

        let waits = WaitTimes::default();
        let (using, began) = (waits.disk(), thread_time());
        while thread_time() - began < 20 * MS {
            std::hint::spin_loop();
        }
        let all = nanoseconds(using.began.elapsed());
        drop(using);
        let waited = waits.totals().disk_ns;
        assert!(waited + 15_000_000 <= all + 1_000_000, "{waited} of {all} ns");
    }

    #[test]
    fn the_connection_that_the_network_limits_most_counts() {
        let waits = WaitTimes::default();
        waits.note_link(5 * MS);
        waits.note_link(3 * MS);
        assert_eq!(waits.totals().link_ns, 5_000_000);
    }
}
