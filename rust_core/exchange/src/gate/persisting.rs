//! The data in flight of one channel that belongs to a checkpoint (spec 10.6).
//!
//! Decision: ADR 0039.

use headgate_memory::Buffer;
use headgate_protocol::{
    ChannelStateBuilder, ChannelStatePersister, CheckpointId, DataType, Sequence,
};
use headgate_record::Event;

/// Copies data in flight. The channel calls it under its lock: a remote one for what arrives, a local
/// one for what it takes.
#[derive(Default)]
pub(super) struct Persisting {
    persister: ChannelStatePersister,
    /// The newest started checkpoint, and its data.
    data: Option<(CheckpointId, ChannelStateBuilder)>,
}

impl Persisting {
    /// Copies a data buffer if it comes before the barrier of a started checkpoint.
    pub(super) fn on_data(&mut self, buffer: &Buffer, data_type: DataType) {
        if self.persister.persists().is_some() {
            self.push(buffer, data_type);
        }
    }

    /// Handles an event, which may be a barrier. The reader reports bytes that are none.
    pub(super) fn on_event(&mut self, buffer: &Buffer, data_type: DataType, sequence: Sequence) {
        if (data_type.has_priority() || data_type.blocks_upstream())
            && let Ok(Event::CheckpointBarrier(barrier)) = Event::decode(buffer.as_slice())
        {
            self.persister.on_barrier(barrier.id, sequence);
        }
    }

    /// Starts a checkpoint, and copies the data that waits in the channel if it comes before the
    /// barrier. False if the barrier of a newer checkpoint was seen.
    pub(super) fn start<'a>(
        &mut self,
        checkpoint: CheckpointId,
        waiting: impl Iterator<Item = (&'a Buffer, DataType, Sequence)>,
    ) -> bool {
        let Ok(in_flight) = self.persister.start(checkpoint) else { return false };
        self.data = Some((checkpoint, ChannelStateBuilder::default()));
        for (buffer, data_type, sequence) in waiting {
            if data_type.is_buffer() && in_flight.contains(sequence) {
                self.push(buffer, data_type);
            }
        }
        true
    }

    /// Ends a checkpoint that is complete, or was given up.
    pub(super) fn stop(&mut self, checkpoint: CheckpointId) {
        self.persister.stop(checkpoint);
    }

    /// Takes the data of a checkpoint; `None` if it was not started here.
    pub(super) fn take(&mut self, checkpoint: CheckpointId) -> Option<ChannelStateBuilder> {
        self.data.take_if(|(started, _)| *started == checkpoint).map(|(_, data)| data)
    }

    fn push(&mut self, buffer: &Buffer, data_type: DataType) {
        if let Some((_, data)) = &mut self.data {
            data.push(data_type, buffer.is_compressed(), buffer.len(), buffer.chunks());
        }
    }
}

#[cfg(all(test, loom))]
mod model;
