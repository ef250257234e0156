//! The time in which a reader has nothing to read.

use std::sync::Arc;

use headgate_memory::process_id;

use super::time::Activity;
use super::timer::Timer;

/// Begins when a reader finds nothing, ends when there is something: not when a thread sleeps, so that
/// polls and event loops count like blocked calls. Kept under the lock of the reader's queue.
#[derive(Debug)]
pub(crate) struct Idle {
    timers: Vec<Arc<Timer>>,
    waits: bool,
    /// The process that made it; a forked child never touches the timers' locks.
    owner: u32,
}

impl Idle {
    /// Of a reader whose time these timers count.
    pub(crate) fn new(timers: Vec<Arc<Timer>>) -> Self {
        Self { timers, waits: false, owner: process_id() }
    }

    /// The reader found nothing.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.timers.iter().for_each(|timer| timer.enter(Activity::Idle));
        }
    }

    /// There is something, or the reader gave up.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.timers.iter().for_each(|timer| timer.leave(Activity::Idle));
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if self.owner == process_id() {
            self.end();
        }
    }
}
