//! Blocking until a gate, or a union of gates, has something to read.

use std::sync::PoisonError;
use std::task::Poll;
use std::time::Duration;

use crate::error::{INTERRUPT_PERIOD, Interrupt, Result};
use crate::sync::{Condvar, Instant, Mutex, lock};

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
        let (next, waited) =
            arrived.wait_timeout(guard, INTERRUPT_PERIOD).unwrap_or_else(PoisonError::into_inner);
        guard = next;
        if waited.timed_out() {
            drop(guard);
            interrupt()?;
            guard = lock(state);
        }
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
        let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
            deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
        });
        if left.is_zero() {
            break;
        }
        let (next, waited) =
            arrived.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
        guard = next;
        if waited.timed_out() {
            drop(guard);
            interrupt()?;
            guard = lock(state);
        }
    }
    Ok(())
}
