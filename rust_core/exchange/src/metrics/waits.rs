//! Times that an environment waits: for files, memory, connections, its I/O thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headgate_net::NetworkWaits;
use rustix::time::{ClockId, clock_gettime};

use super::passed::COUNTS;
use crate::stats::Waits;

/// Adds up the waits of an environment.
#[derive(Debug, Default)]
pub(crate) struct WaitTimes {
    disk: AtomicU64,
    memory: AtomicU64,
    link: AtomicU64,
    io: AtomicU64,
    /// Connections that have pages and cannot send them: without credit, or with a full send buffer.
    held_up: AtomicUsize,
    /// Number of times that a connection was held up.
    hold_ups: AtomicU64,
}

/// The use of a file that lasts until this is dropped.
pub(crate) struct DiskWait<'a> {
    waits: &'a WaitTimes,
    began: Instant,
    /// Processor time of this thread at the beginning.
    worked: Duration,
}

/// A writer's wait for a segment, which lasts until this is dropped.
pub(crate) struct MemoryWait<'a> {
    waits: &'a WaitTimes,
    began: Instant,
    /// Value of `hold_ups` at the beginning; none if a connection was held up.
    hold_ups: Option<u64>,
}

impl WaitTimes {
    /// Counts the use of a file, without the processor time of this thread: a disk is slow if threads
    /// sleep.
    pub(crate) fn disk(&self) -> DiskWait<'_> {
        DiskWait { waits: self, began: Instant::now(), worked: thread_time() }
    }

    /// Counts a wait for a segment if no connection is held up from its beginning to its end.
    pub(crate) fn memory(&self) -> MemoryWait<'_> {
        MemoryWait { waits: self, began: Instant::now(), hold_ups: self.without_hold_up() }
    }

    /// All times so far.
    pub(crate) fn totals(&self) -> Waits {
        let [disk_ns, memory_ns, link_ns, io_ns] =
            [&self.disk, &self.memory, &self.link, &self.io].map(|at| at.load(Ordering::Relaxed));
        Waits { disk_ns, memory_ns, link_ns, io_ns }
    }

    /// Returns how often a connection was held up so far; none if one is now.
    fn without_hold_up(&self) -> Option<u64> {
        let hold_ups = self.hold_ups.load(Ordering::SeqCst);
        (self.held_up.load(Ordering::SeqCst) == 0).then_some(hold_ups)
    }
}

impl Drop for DiskWait<'_> {
    fn drop(&mut self) {
        let worked = thread_time().saturating_sub(self.worked);
        let waited = self.began.elapsed().saturating_sub(worked);
        add(&self.waits.disk, waited);
    }
}

impl Drop for MemoryWait<'_> {
    fn drop(&mut self) {
        if self.hold_ups.is_some() && self.hold_ups == self.waits.without_hold_up() {
            add(&self.waits.memory, self.began.elapsed());
        }
    }
}

impl NetworkWaits for WaitTimes {
    fn hold_up_began(&self) {
        // In this order: a wait that sees no connection held up sees the new number at its end.
        self.held_up.fetch_add(1, Ordering::SeqCst);
        self.hold_ups.fetch_add(1, Ordering::SeqCst);
    }

    fn hold_up_ended(&self) {
        self.held_up.fetch_sub(1, Ordering::SeqCst);
    }

    fn network_limited(&self, time: Duration) {
        self.link.fetch_max(nanoseconds(time), Ordering::Relaxed);
    }

    /// Notes the processor time of the I/O thread.
    fn io_worked(&self) {
        self.io.store(nanoseconds(thread_time()), Ordering::Relaxed);
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
    use proptest::prelude::*;

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
        waits.network_limited(5 * MS);
        waits.network_limited(3 * MS);
        assert_eq!(waits.totals().link_ns, 5_000_000);
    }

    proptest! {
        /// Steps: 0 begins a wait, 1 ends it, 2 and above hold up a connection or let it go on.
        #[test]
        fn a_wait_counts_only_if_no_connection_is_held_up_during_it(
            steps in prop::collection::vec(0_usize..5, 1..60),
        ) {
            let waits = WaitTimes::default();
            let mut held = [false; 3];
            let (mut waiting, mut was_held) = (None::<MemoryWait<'_>>, false);
            for step in steps {
                match step {
                    0 => {
                        was_held = held.contains(&true);
                        waiting = Some(waits.memory());
                    }
                    1 => {
                        let before = waits.totals().memory_ns;
                        let Some(wait) = waiting.take() else { continue };
                        // So that the time of the wait is not zero.
                        while wait.began.elapsed().is_zero() {}
                        drop(wait);
                        let counted = waits.totals().memory_ns > before;
                        prop_assert_eq!(counted, COUNTS && !was_held);
                    }
                    connection => {
                        let held = &mut held[connection - 2];
                        *held = !*held;
                        if *held { waits.hold_up_began() } else { waits.hold_up_ended() }
                        was_held |= *held;
                    }
                }
            }
        }
    }
}
