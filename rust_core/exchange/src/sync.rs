//! Synchronization and time for the parts that loom models check. In a model loom's types replace
//! the standard ones, and time passes only when the model calls `pass`.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
    time::Instant,
};

#[cfg(not(loom))]
pub(crate) use headgate_memory::lock;

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(loom)]
pub(crate) use model::{Condvar, Instant, lock};

/// Time and locks of a model. A wait with a timeout ends by a notification, never by itself.
#[cfg(loom)]
pub(crate) mod model {
    use std::cell::Cell;
    use std::ops::Add;
    use std::sync::{LockResult, Mutex as StdMutex, PoisonError};
    use std::time::Duration;

    use loom::sync::{Condvar as Inner, WaitTimeoutResult};

    use super::{Mutex, MutexGuard};

    thread_local! {
        // Loom runs the threads of a model by turns in one thread.
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Runs a model in all orders. Each run starts at time zero.
    #[cfg(test)]
    pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
        loom::model(move || {
            NOW.set(Duration::ZERO);
            model();
        });
    }

    /// Advances the time, and wakes the waiter whose timeout has passed.
    #[cfg(test)]
    pub(crate) fn pass<T>(time: Duration, state: &Mutex<T>, waited_on: &Condvar) {
        // Under the lock: no thread is between its look at the time and its wait.
        let state = lock(state);
        NOW.set(NOW.get() + time);
        let is_due = waited_on.until().is_some_and(|until| until <= NOW.get());
        drop(state);
        if is_due {
            waited_on.notify_all();
        }
    }

    /// Loom's condition variable, and the deadline of its one waiter.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar {
        inner: Inner,
        until: StdMutex<Option<Duration>>,
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        #[cfg(test)]
        fn until(&self) -> Option<Duration> {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn set_until(&self, until: Option<Duration>) {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        }

        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
        ) -> LockResult<MutexGuard<'a, T>> {
            self.inner.wait(guard)
        }

        pub(crate) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            self.set_until(Some(NOW.get() + time));
            let waited = self.inner.wait_timeout(guard, time);
            self.set_until(None);
            waited
        }

        pub(crate) fn notify_one(&self) {
            self.inner.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.inner.notify_all();
        }
    }

    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            Self(NOW.get())
        }

        pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
