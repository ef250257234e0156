//! The output flusher: one thread per environment that flushes writers by time (spec 5.1, 5.2).
//!
//! A writer whose last write was flushed has no entry here; its next write makes one. So the thread
//! sleeps while nothing is written, and a writer that is busy does not read the clock. The thread takes
//! locks that writers hold while they move bytes, never one that they hold while they wait for memory.
//!
//! Decision: ADR 0015.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::error::{ExchangeError, Result};
use crate::panic_text::panic_text;
use crate::sync::atomic::AtomicU8;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Instant, Mutex, lock};
use crate::threads;

/// The longest timeout. It can be added to any `Instant` without an overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The flusher does not know the writer: nothing is written and not flushed.
const IDLE: u8 = 0;
/// The flusher looks at the writer once its timeout has passed. Nothing was written since its last look.
const WATCHED: u8 = 1;
/// As [`WATCHED`], and something was written since.
const WRITTEN: u8 = 2;

/// The flushing of one writer by time. The writer owns it, and drops it when it is finished.
pub(crate) struct TimedFlush {
    /// Returns true if something stays to be flushed.
    flush: Box<dyn Fn() -> bool + Send + Sync>,
    /// Fails the partition, so that consumers need not wait for the writer's next emit to see the
    /// failure.
    fail: Box<dyn Fn(&ExchangeError) + Send + Sync>,
    /// The error of a flush that failed. The writer is not flushed any more then.
    failure: OnceLock<ExchangeError>,
    timeout: Duration,
    flusher: Arc<Shared>,
    /// Invariant: it has one entry with the flusher, or is being flushed, unless this is [`IDLE`].
    progress: AtomicU8,
}

impl TimedFlush {
    /// Returns the failure of a flush to the thread that writes.
    ///
    /// # Errors
    /// [`ExchangeError::Flush`] with its cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Has the writer flushed when its timeout has passed. To be called after each write that a flush
    /// may have to show, under the lock that the flush takes or after it was released.
    pub(crate) fn written(self: &Arc<Self>) {
        // Relaxed: that lock orders it. A value from before the flush is seen only by a write that the
        // flush sees.
        let is_known = self.progress.load(Ordering::Relaxed) == WRITTEN;
        if !is_known && self.progress.swap(WRITTEN, Ordering::Relaxed) == IDLE {
            self.flusher.add(self);
        }
    }

    /// Flushes what was written since the last call. Returns false if the flusher need not look again
    /// before the next write.
    fn flush_if_written(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        if self.progress.compare_exchange(WATCHED, IDLE, relaxed, relaxed).is_ok() {
            return false;
        }
        self.progress.store(WATCHED, relaxed);
        let flushed = catch_unwind(AssertUnwindSafe(|| {
            fail_point!("flusher.flush", text => return Err(ExchangeError::Aborted(text)));
            Ok((self.flush)())
        }));
        let failed = match flushed {
            Ok(Ok(false)) => return true,
            Ok(Ok(true)) => {
                self.progress.store(WRITTEN, relaxed);
                return true;
            }
            Ok(Err(error)) => error,
            Err(panic) => {
                let text = panic_text(&*panic);
                ExchangeError::Internal(format!("the output flusher panicked: {text}"))
            }
        };
        let failed = ExchangeError::Flush(Arc::new(failed));
        self.failure.get_or_init(|| failed.clone());
        (self.fail)(&failed);
        false
    }
}

struct Entry {
    writer: Weak<TimedFlush>,
    due: Instant,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    stopped: bool,
}

impl State {
    fn push(&mut self, writer: &Arc<TimedFlush>, now: Instant) {
        let due = now + writer.timeout.min(LONGEST);
        self.entries.push(Entry { writer: Arc::downgrade(writer), due });
    }

    /// Takes the writers that are due. Removes entries of writers that are gone.
    fn take_due(&mut self, now: Instant, due: &mut Vec<Arc<TimedFlush>>) {
        self.entries.retain(|entry| {
            let is_due = entry.due <= now;
            if is_due {
                due.extend(entry.writer.upgrade());
            }
            !is_due && entry.writer.strong_count() > 0
        });
    }
}

#[derive(Default)]
struct Shared {
    /// Never held while a writer is flushed.
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn add(&self, writer: &Arc<TimedFlush>) {
        let mut state = lock(&self.state);
        if !state.stopped {
            state.push(writer, Instant::now());
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// The thread and the writers that it flushes. The thread starts with the first writer, and sleeps
/// while no writer has anything to flush.
#[derive(Default)]
pub(crate) struct OutputFlusher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl OutputFlusher {
    /// Has `flush` called when `timeout` has passed since a [write](TimedFlush::written), and again as
    /// long as it returns true, until what it returns is dropped. `fail` gets an error of it.
    ///
    /// # Errors
    /// After [`stop`](Self::stop), or when the thread cannot be started.
    pub(crate) fn register(
        &self,
        timeout: Duration,
        flush: impl Fn() -> bool + Send + Sync + 'static,
        fail: impl Fn(&ExchangeError) + Send + Sync + 'static,
    ) -> Result<Arc<TimedFlush>> {
        let mut thread = lock(&self.thread);
        if lock(&self.shared.state).stopped {
            return Err(ExchangeError::Closed("shuffle environment"));
        }
        if thread.is_none() {
            *thread = Some(start(Arc::clone(&self.shared))?);
        }
        Ok(Arc::new(TimedFlush {
            flush: Box::new(flush),
            fail: Box::new(fail),
            failure: OnceLock::new(),
            timeout,
            flusher: Arc::clone(&self.shared),
            progress: AtomicU8::new(IDLE),
        }))
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
                if writer.flush_if_written() {
                    lock(&shared.state).push(&writer, now);
                }
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
