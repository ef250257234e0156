//! The times for which connections and the I/O thread are busy or held up.

use std::sync::Arc;
use std::time::Duration;

/// Told what limits the connections of a process.
pub trait NetworkWaits: Send + Sync {
    /// Another connection has pages that it cannot send: without credit, or with a full send buffer.
    fn hold_up_began(&self);

    /// A connection that was held up can send again, or has ended.
    fn hold_up_ended(&self);

    /// The network has limited one connection for this time so far.
    fn network_limited(&self, time: Duration);

    /// The I/O thread, which calls this, has worked.
    fn io_worked(&self);
}

/// A connection that is held up until this is dropped.
pub(crate) struct HoldUp(Arc<dyn NetworkWaits>);

impl HoldUp {
    pub(crate) fn begin(waits: &Arc<dyn NetworkWaits>) -> Self {
        waits.hold_up_began();
        Self(Arc::clone(waits))
    }
}

impl Drop for HoldUp {
    fn drop(&mut self) {
        self.0.hold_up_ended();
    }
}
