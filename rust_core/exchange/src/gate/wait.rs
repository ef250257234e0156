//! Blocking until a gate, or a union of gates, has something to read.

use std::sync::PoisonError;
use std::task::Poll;

use crate::error::{INTERRUPT_PERIOD, Interrupt, Result};
use crate::sync::{Condvar, Mutex, lock};

/// Polls the state under its lock until it is ready, again after each notification of `arrived`.
///
/// # Errors
/// The error of the poll or of the interrupt.
pub(super) fn wait_until<S, T>(
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
