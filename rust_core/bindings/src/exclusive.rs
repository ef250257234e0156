//! A lock for objects that block while they are used.

use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use headgate_exchange::{ExchangeError, Interrupt, Result};

use crate::interrupt::is_exiting;

/// Period between attempts to take a lock that another thread of the caller holds.
const PERIOD: Duration = Duration::from_millis(5);

thread_local! {
    /// Its address stands for the thread.
    static THREAD: u8 = const { 0 };
}

/// A lock that a thread may hold while it blocks. It fails where a thread would wait for itself: a
/// call that blocks runs signal handlers and finalizers in Python, which may use the same object.
pub(crate) struct Exclusive<T> {
    inner: Mutex<T>,
    /// The thread that holds the lock; 0 for none.
    holder: AtomicUsize,
}

/// Gives access to the object until it is dropped.
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    holder: &'a AtomicUsize,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(object: T) -> Self {
        Self { inner: Mutex::new(object), holder: AtomicUsize::new(0) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// This thread holds it, the interpreter exits, a thread that held it panicked, or what the interrupt says.
    pub(crate) fn lock(&self, interrupt: Interrupt<'_>) -> Result<Guard<'_, T>> {
        let mut waits = 0_u32;
        loop {
            if let Some(guard) = self.try_lock() {
                if self.inner.is_poisoned() {
                    let text = "an earlier call of this object panicked, and left it half changed";
                    return Err(ExchangeError::Internal(text.to_owned()));
                }
                return Ok(guard);
            }
            if self.holder.load(Ordering::Relaxed) == this_thread() {
                return Err(ExchangeError::State(
                    "this thread is within another call of the same object: a signal handler or \
                     finalizer cannot use it before that call returns",
                ));
            }
            if is_exiting() {
                return Err(ExchangeError::Closed("interpreter"));
            }
            thread::sleep(PERIOD);
            waits += 1;
            if waits.is_multiple_of(10) {
                interrupt.check()?;
            }
        }
    }

    /// Takes the lock if no thread holds it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.holder.store(this_thread(), Ordering::Relaxed);
        Some(Guard { inner, holder: &self.holder })
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

fn this_thread() -> usize {
    THREAD.with(|thread| ptr::from_ref(thread).addr())
}
