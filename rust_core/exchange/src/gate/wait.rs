//! Blocking until a gate, or a union of gates, has something to read.

use std::sync::PoisonError;
use std::task::Poll;
use std::time::Duration;

use crate::error::{Interrupt, Result};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, lock};

/// Polls the state under its lock until it is ready, again after each notification of `arrived`.
///
/// # Errors
/// The error of the poll or of the interrupt.
pub(crate) fn wait_until<S, T>(
    state: &Mutex<S>,
    arrived: &Condvar,
    interrupt: Interrupt<'_>,
    mut poll: impl FnMut(&mut S) -> Result<Poll<T>>,
) -> Result<T> {
    let mut guard = lock(state);
    loop {
        if let Poll::Ready(answer) = poll(&mut guard)? {
            return Ok(answer);
        }
        guard = wait(state, guard, arrived, None, interrupt)?;
    }
}

/// The longest timeout. It can be added to any `Instant` without an overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Waits until the state is as wanted, or the timeout has passed.
///
/// # Errors
/// The error of the interrupt.
pub(crate) fn wait_for<S>(
    state: &Mutex<S>,
    arrived: &Condvar,
    timeout: Option<Duration>,
    interrupt: Interrupt<'_>,
    mut is_wanted: impl FnMut(&mut S) -> bool,
) -> Result<()> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout.min(LONGEST));
    let mut guard = lock(state);
    while !is_wanted(&mut guard) {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        guard = wait(state, guard, arrived, left, interrupt)?;
    }
    Ok(())
}

/// Waits for one notification, for a time, or until the interrupt is to be checked.
fn wait<'a, S>(
    state: &'a Mutex<S>,
    guard: MutexGuard<'a, S>,
    arrived: &Condvar,
    left: Option<Duration>,
    interrupt: Interrupt<'_>,
) -> Result<MutexGuard<'a, S>> {
    let Some(left) = left.into_iter().chain(interrupt.period()).min() else {
        return Ok(arrived.wait(guard).unwrap_or_else(PoisonError::into_inner));
    };
    let waited = arrived.wait_timeout(guard, left);
    let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    if !waited.timed_out() {
        return Ok(guard);
    }
    drop(guard);
    interrupt.check()?;
    Ok(lock(state))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::Interruption;

    /// Counts the checks of a wait that nothing ends.
    struct Checks(Cell<u32>, Option<Duration>);

    impl Interruption for Checks {
        fn check(&self) -> Result<()> {
            self.0.set(self.0.get() + 1);
            Ok(())
        }

        fn period(&self) -> Option<Duration> {
            self.1
        }
    }

    #[test]
    fn a_wait_that_nothing_can_interrupt_is_not_cut_into_periods() {
        let (state, arrived) = (Mutex::new(()), Condvar::new());
        let timeout = Some(Duration::from_millis(50));
        for (period, checks) in [(None, 1..=1), (Some(Duration::from_millis(5)), 2..=10)] {
            let interrupt = Checks(Cell::new(0), period);
            wait_for(&state, &arrived, timeout, &interrupt, |()| false).expect("no error");
            assert!(checks.contains(&interrupt.0.get()), "{period:?}: {}", interrupt.0.get());
        }
    }
}
