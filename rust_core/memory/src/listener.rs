//! Who is told that a pool has something again.

use std::sync::Arc;

/// Told, outside every lock and at most once per registration, that what it waits for may be there
/// now, or that its pool was closed.
pub trait SegmentListener: Send + Sync {
    /// Ask again; register again if that still fails.
    fn segment_available(&self);
}

/// Calls the listeners; never under the lock.
pub(crate) fn notify(woken: Vec<Arc<dyn SegmentListener>>) {
    for listener in woken {
        listener.segment_available();
    }
}
