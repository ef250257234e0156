//! The time in which a reader finds nothing to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headgate_memory::Process;
use headgate_trace::{Event, Kind, record};

use super::activity::Activity;
use super::timer::Timer;

/// Number of gates that this process has created.
static GATES: AtomicU64 = AtomicU64::new(0);

/// Idle time of one reader: from a poll that finds nothing to the next buffer. A sleeping thread makes
/// no difference, so polls and event loops count like blocked calls. Guarded by the lock of the
/// reader's queue.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Number of the gate in this process, for the trace.
    gate: u64,
    timers: Vec<Arc<Timer>>,
    waits: bool,
    /// The process that created it; a forked child must not take the timers' locks.
    owner: Process,
}

impl Idle {
    /// Creates the idle time of a reader, counted by these timers.
    pub(crate) fn new(timers: Vec<Arc<Timer>>) -> Self {
        let gate = GATES.fetch_add(1, Ordering::Relaxed) + 1;
        Self { gate, timers, waits: false, owner: Process::current() }
    }

    /// Returns the number of the gate in this process, for the trace.
    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    /// Starts counting: the reader found nothing.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            record(Kind::Gate, || Event::Waits { gate: self.gate });
            self.timers.iter().for_each(|timer| timer.enter(Activity::Idle));
        }
    }

    /// Stops counting: there is something to read, or the reader gave up.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.waits) {
            record(Kind::Gate, || Event::GoesOn { gate: self.gate });
            self.timers.iter().for_each(|timer| timer.leave(Activity::Idle));
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if self.owner == Process::current() {
            self.end();
        }
    }
}
