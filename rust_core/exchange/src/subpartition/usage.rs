//! What a subpartition says of itself in a snapshot.

use headgate_protocol::Totals;

use super::{Item, State, Subpartition};
use crate::stats::{Queued, SubpartitionStats};

impl State {
    /// Bytes of data that the writer has committed so far, in finished buffers and in the open one.
    fn written_bytes(&self) -> u64 {
        let open = match self.items.peek_last() {
            Some(Item::Growing(last)) if !last.is_complete() => last.written_bytes(),
            _ => 0,
        };
        self.finished_data.bytes + open as u64
    }

    fn queue(&self) -> Queued {
        if self.released {
            return Queued::default();
        }
        let bytes = self.written_bytes().saturating_sub(self.totals.bytes);
        Queued { buffers: self.items.len(), bytes }
    }
}

impl Subpartition {
    /// Data buffers waiting, and what went through so far.
    pub(crate) fn usage(&self) -> (u32, Totals) {
        let state = self.lock();
        (state.data_items, state.totals)
    }

    /// Buffers that wait, and the bytes of data that were ever written; nothing once it is released.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let state = self.lock();
        if state.released { (0, 0) } else { (state.items.len(), state.written_bytes()) }
    }

    pub(crate) fn stats(&self) -> SubpartitionStats {
        let state = self.lock();
        let Totals { rows, bytes, buffers } = state.totals;
        SubpartitionStats {
            queued: state.data_items,
            rows,
            bytes,
            buffers,
            queue: state.queue(),
            finished: state.finished_data,
        }
    }
}
