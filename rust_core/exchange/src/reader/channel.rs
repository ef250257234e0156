//! The state of one channel at its reader.

use bytes::Bytes;
use headgate_record::SpanningDeserializer;

use crate::error::Result;
use crate::spanning::RecordFiles;

pub(super) struct ChannelState {
    pub(super) deserializer: SpanningDeserializer<RecordFiles>,
    /// Rows or records that were returned.
    pub(super) rows: u64,
}

impl ChannelState {
    pub(super) fn new(deserializer: SpanningDeserializer<RecordFiles>) -> Self {
        Self { deserializer, rows: 0 }
    }
}

/// Returns the bytes of a channel that were taken and not yet returned in a record.
pub(super) fn unconsumed(channels: &[ChannelState], channel: usize) -> Result<Vec<Bytes>> {
    let state = channels.get(channel);
    state.map_or_else(|| Ok(Vec::new()), |state| state.deserializer.unconsumed().collect())
}
