//! What a remote channel says of itself in a snapshot.

use super::RemoteChannel;

impl RemoteChannel {
    /// Credit not yet used by the producer, and buffers waiting for the reader.
    pub(crate) fn usage(&self) -> (u32, usize) {
        let state = self.lock();
        (state.receive.ledger().available(), state.received.len())
    }
}
