//! Taking a mutex whose holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock. No state of ours is left half changed between lock and unlock, so a panic of a
/// holder elsewhere does not make it wrong.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
