//! What a subpartition says of itself in a snapshot.

use headgate_protocol::Totals;

use super::Subpartition;

impl Subpartition {
    /// Data buffers waiting, and what went through so far.
    pub(crate) fn usage(&self) -> (u32, Totals) {
        let state = self.lock();
        (state.data_items, state.totals)
    }
}
