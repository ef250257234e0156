//! The thread that reads blocks from disk ahead of their readers.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::error::{ExchangeError, Result};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::threads;

/// Time that a view waits for a segment before segments are reclaimed from readers that do not
/// fetch theirs.
pub(super) const RECLAIM_AFTER: Duration = Duration::from_millis(20);

/// Result of [`Fill::fill`].
pub(super) enum Filled {
    /// The blocks were read, or none were wanted, or the view failed.
    Done,
    /// No segment is free. The view is queued again when one is.
    Starved,
}

/// A view that blocks are read for. Only the read thread calls it.
pub(super) trait Fill: Send + Sync {
    /// Reads the next blocks.
    fn fill(&self) -> Filled;

    /// Reclaims segments from views whose readers do not fetch their blocks. False if this view
    /// waits for no segment any more.
    fn reclaim(&self) -> bool;

    /// Ends it with this cause.
    fn fail(&self, cause: &ExchangeError);
}

/// The queue of views that want blocks, and the thread that serves it.
pub(super) struct ReadThread {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// Under a leaf lock: its holder takes no other lock.
struct Queue {
    views: VecDeque<Weak<dyn Fill>>,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

impl Default for ReadThread {
    fn default() -> Self {
        let queue = Queue { views: VecDeque::new(), thread: None, closed: false };
        Self { queue: Mutex::new(queue), arrived: Condvar::new() }
    }
}

impl ReadThread {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Queues a view whose next blocks are to be read. Starts the thread if there is none.
    ///
    /// # Errors
    /// After [`stop`](Self::stop), or when no thread can be started.
    pub(super) fn request(self: &Arc<Self>, view: Weak<dyn Fill>) -> Result<()> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(ExchangeError::Closed("shuffle environment"));
        }
        if queue.thread.is_none() {
            let this = Arc::clone(self);
            let thread = Builder::new()
                .name("headgate-spill".to_owned())
                .stack_size(512 * 1024)
                .spawn(move || this.run())
                .map_err(|error| threads::refused("read thread headgate-spill", error))?;
            queue.thread = Some(thread);
        }
        queue.views.push_back(view);
        drop(queue);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues a view again that waited for a segment.
    pub(super) fn retry(&self, view: Weak<dyn Fill>) {
        self.lock().views.push_back(view);
        self.arrived.notify_one();
    }

    fn run(&self) {
        let mut starved: Vec<Weak<dyn Fill>> = Vec::new();
        while let Some(view) = self.next(&mut starved) {
            let Some(view) = view.upgrade() else { continue };
            let filled = catch_unwind(AssertUnwindSafe(|| view.fill()));
            match filled {
                Ok(Filled::Starved) => starved.push(Arc::downgrade(&view)),
                Ok(Filled::Done) => {}
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map_or("no message", String::as_str);
                    let text = format!("the thread that reads spilled data panicked: {text}");
                    view.fail(&ExchangeError::Internal(text));
                }
            }
        }
    }

    /// Waits for the next view. None after a stop.
    fn next(&self, starved: &mut Vec<Weak<dyn Fill>>) -> Option<Weak<dyn Fill>> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(view) = queue.views.pop_front() {
                return Some(view);
            }
            if starved.is_empty() {
                queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.arrived.wait_timeout(queue, RECLAIM_AFTER);
            let timed_out;
            (queue, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if timed_out.timed_out() {
                drop(queue);
                // A reclaimed segment queues the view again that waits for it.
                starved.retain(|view| view.upgrade().is_some_and(|view| view.reclaim()));
                queue = self.lock();
            }
        }
    }

    pub(super) fn stop(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let thread = queue.thread.take();
        drop(queue);
        self.arrived.notify_all();
        if let Some(thread) = thread {
            // Each panic was reported to its view.
            let _ = thread.join();
        }
    }

    pub(super) fn forget(&self) {
        // The lock may be held by a thread that a forked child does not have.
        if let Ok(mut queue) = self.queue.try_lock() {
            std::mem::forget(queue.thread.take());
        }
    }
}

#[cfg(all(test, loom))]
mod model;
