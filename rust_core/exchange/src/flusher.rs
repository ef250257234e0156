//! The output flusher: one thread per environment that flushes writers by time (spec 5.1, 5.2).
//!
//! Only this thread reads the clock, so that emitting does not. It takes locks that writers hold
//! while they move bytes, never one that they hold while they wait for memory.
//!
//! Decision: ADR 0015.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::error::{ExchangeError, Result};
use crate::panic_text::panic_text;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Instant, Mutex, lock};
use crate::threads;

/// The longest timeout. It can be added to any `Instant` without an overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A writer's entry with the output flusher. The writer owns it, and drops it when it is finished.
pub(crate) struct TimedFlush {
    flush: Box<dyn Fn() + Send + Sync>,
    /// Fails the partition, so that consumers need not wait for the writer's next emit to see the
    /// failure.
    fail: Box<dyn Fn(&ExchangeError) + Send + Sync>,
    /// The error of a flush that failed. The writer is not flushed any more then.
    failure: OnceLock<ExchangeError>,
}

impl TimedFlush {
    pub(crate) fn new(
        flush: impl Fn() + Send + Sync + 'static,
        fail: impl Fn(&ExchangeError) + Send + Sync + 'static,
    ) -> Self {
        Self { flush: Box::new(flush), fail: Box::new(fail), failure: OnceLock::new() }
    }

    /// Returns the failure of a flush to the thread that writes.
    ///
    /// # Errors
    /// [`ExchangeError::Flush`] with its cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    fn flush(&self) {
        let flushed = catch_unwind(AssertUnwindSafe(|| {
            fail_point!("flusher.flush", error => return Err(error));
            (self.flush)();
            Ok(())
        }));
        let failed = match flushed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => {
                let text = panic_text(&*panic);
                ExchangeError::Internal(format!("the output flusher panicked: {text}"))
            }
        };
        let failed = ExchangeError::Flush(Arc::new(failed));
        self.failure.get_or_init(|| failed.clone());
        (self.fail)(&failed);
    }
}

struct Entry {
    writer: Weak<TimedFlush>,
    timeout: Duration,
    due: Instant,
    /// True if it is flushed at that time only.
    once: bool,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    stopped: bool,
}

impl State {
    /// Collects the writers that are due. Removes entries of writers that are gone or have failed.
    fn take_due(&mut self, now: Instant, due: &mut Vec<Arc<TimedFlush>>) {
        self.entries.retain_mut(|entry| {
            let Some(writer) = entry.writer.upgrade() else { return false };
            if writer.failure.get().is_some() {
                return false;
            }
            if entry.due <= now {
                entry.due = now + entry.timeout.min(LONGEST);
                due.push(writer);
                return !entry.once;
            }
            true
        });
    }
}

#[derive(Default)]
struct Shared {
    /// Never held while a writer is flushed.
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread and the writers that it flushes. The thread starts with the first writer.
#[derive(Default)]
pub(crate) struct OutputFlusher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl OutputFlusher {
    /// Flushes the writer each time `timeout` has passed, until the writer is dropped.
    ///
    /// # Errors
    /// After [`stop`](Self::stop), or when the thread cannot be started.
    pub(crate) fn register(&self, writer: &Arc<TimedFlush>, timeout: Duration) -> Result<()> {
        self.add(writer, timeout, false)
    }

    /// Like [`register`](Self::register), but flushes it once.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub(crate) fn register_once(&self, writer: &Arc<TimedFlush>, after: Duration) -> Result<()> {
        self.add(writer, after, true)
    }

    fn add(&self, writer: &Arc<TimedFlush>, timeout: Duration, once: bool) -> Result<()> {
        let mut thread = lock(&self.thread);
        let mut state = lock(&self.shared.state);
        if state.stopped {
            return Err(ExchangeError::Closed("shuffle environment"));
        }
        if thread.is_none() {
            *thread = Some(start(Arc::clone(&self.shared))?);
        }
        let due = Instant::now() + timeout.min(LONGEST);
        state.entries.push(Entry { writer: Arc::downgrade(writer), timeout, due, once });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        lock(&self.shared.state).stopped = true;
        self.shared.changed.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // Each panic was reported to the writer whose flush panicked.
            let _ = thread.join();
        }
    }

    /// Leaves the parent's thread alone in a forked child, which has no such thread.
    pub(crate) fn forget(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        std::mem::forget(thread);
    }
}

fn start(shared: Arc<Shared>) -> Result<JoinHandle<()>> {
    let spawned = Builder::new()
        .name("headgate-flusher".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || run(&shared));
    spawned.map_err(|error| threads::refused("output flusher headgate-flusher", error))
}

fn run(shared: &Shared) {
    let mut due = Vec::new();
    let mut state = lock(&shared.state);
    while !state.stopped {
        let now = Instant::now();
        state.take_due(now, &mut due);
        if !due.is_empty() {
            drop(state);
            for writer in due.drain(..) {
                writer.flush();
            }
            state = lock(&shared.state);
            continue;
        }
        let next = state.entries.iter().map(|entry| entry.due).min();
        state = match next {
            Some(next) => {
                let left = next.saturating_duration_since(now);
                let waited = shared.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

#[cfg(all(test, loom))]
mod model;
