//! Callbacks for segments that become available.

use std::sync::Arc;

/// Callback of a registration with a pool. The pool calls it at most once, without holding a lock,
/// when the condition may hold or the pool is closed.
pub trait SegmentListener: Send + Sync {
    /// Retries the request, and registers again if it still fails.
    fn segment_available(&self);
}

/// Calls the listeners. The caller must not hold the pool's lock.
pub(crate) fn notify(woken: Vec<Arc<dyn SegmentListener>>) {
    for listener in woken {
        listener.segment_available();
    }
}
