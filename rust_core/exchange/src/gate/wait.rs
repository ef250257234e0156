//! Blocking until a gate, or a union of them, has something.

use std::sync::PoisonError;
use std::task::Poll;

use crate::error::{INTERRUPT_PERIOD, Interrupt, Result};
use crate::sync::{Condvar, Mutex, lock};

/// Polls the state under its lock, again whenever `arrived` is told, until there is an answer.
///
/// # Errors
/// What the poll or the interrupt says.
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
