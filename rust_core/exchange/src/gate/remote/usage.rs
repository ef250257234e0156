//! What a remote channel says of itself in a snapshot.

use super::RemoteChannel;
use crate::stats::{ChannelStats, Origin, Queued, Usage};

impl RemoteChannel {
    pub(in crate::gate) fn stats(&self) -> ChannelStats {
        let state = self.lock();
        let data = state.received.iter().filter(|arrived| arrived.data_type.is_buffer());
        let bytes = data.map(|arrived| arrived.buffer.plain_len() as u64).sum();
        let size = if state.released { 0 } else { self.exclusive };
        let used = size.min(state.receive.ledger().exclusive_out() as usize);
        ChannelStats {
            name: self.name.clone(),
            origin: Origin::Remote,
            credit: Some(state.receive.ledger().available()),
            queue: Queued { buffers: state.received.len(), bytes },
            taken: state.taken,
            exclusive: Usage { used, size },
            free: state.free.len(),
        }
    }
}
