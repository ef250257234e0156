//! Barriers that a remote channel announces ahead of what arrived before them, and that may overtake
//! it (spec 8.7).

use headgate_memory::Buffer;
use headgate_protocol::{DataType, PrioritizedDeque, Sequence};
use headgate_record::{Event, EventError};

use crate::error::{ExchangeError, Result};
use crate::gate::{Channel, InputGate};

/// A buffer that waits for the reader.
pub(super) struct Arrived {
    pub(super) buffer: Buffer,
    pub(super) data_type: DataType,
    pub(super) sequence: Sequence,
    /// Behind it the producer waits; also of a barrier that became a priority event here.
    pub(super) blocks_upstream: bool,
}

impl Arrived {
    pub(super) fn new(buffer: Buffer, data_type: DataType, sequence: Sequence) -> Self {
        Self { buffer, data_type, sequence, blocks_upstream: data_type.blocks_upstream() }
    }

    /// The priority event that says that this one is on its way, with the same number.
    ///
    /// # Errors
    /// [`ExchangeError::Event`]: the bytes are no event that can be announced.
    pub(super) fn announcement(&self) -> Result<Self> {
        let unreadable = |error: EventError| ExchangeError::Event(error.to_string());
        let announced = Box::new(Event::decode(self.buffer.as_slice()).map_err(unreadable)?);
        let sequence_number = self.sequence.0.cast_signed();
        let event = Event::EventAnnouncement { sequence_number, announced };
        let buffer = Buffer::from(event.encode().map_err(unreadable)?);
        Ok(Self::new(buffer, DataType::PrioritizedEventBuffer, self.sequence))
    }
}

/// Makes the queued barrier of this number a priority element; false if it is not there as one that
/// could become that.
pub(super) fn prioritize(received: &mut PrioritizedDeque<Arrived>, sequence: Sequence) -> bool {
    // Its announcement has the same number.
    let is_barrier = |arrived: &Arrived| {
        arrived.sequence == sequence && arrived.data_type.requires_announcement()
    };
    let Ok(barrier) = received.remove_first(is_barrier) else {
        return false;
    };
    received.add_priority(Arrived { data_type: DataType::PrioritizedEventBuffer, ..barrier });
    true
}

impl InputGate {
    /// Lets a barrier that a channel announced overtake what arrived before it: it is read next, as
    /// an event with priority. The channel stays blocked until it is resumed. False if the barrier
    /// does not wait any more: it was read, or converted before, or the channel is local, where
    /// nothing is announced.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: there is no such channel.
    pub fn convert_to_priority(&self, channel: usize, sequence: Sequence) -> Result<bool> {
        Ok(match &*self.channel(channel)? {
            Channel::Local(_) => false,
            Channel::Remote(remote) => remote.convert_to_priority(sequence),
        })
    }
}
