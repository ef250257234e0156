//! Barriers that a remote channel announces ahead of the buffers before them, and that may overtake
//! those (spec 8.7).

use headgate_memory::Buffer;
use headgate_protocol::{DataType, PrioritizedDeque, Sequence};
use headgate_record::{Event, EventError};

/// A buffer that waits for the reader.
pub(super) struct Arrived {
    pub(super) buffer: Buffer,
    pub(super) data_type: DataType,
    pub(super) sequence: Sequence,
    /// True if the producer waits behind it for a resume; stays true for a barrier that became a
    /// priority event here.
    pub(super) blocks_upstream: bool,
}

impl Arrived {
    pub(super) fn new(buffer: Buffer, data_type: DataType, sequence: Sequence) -> Self {
        Self { buffer, data_type, sequence, blocks_upstream: data_type.blocks_upstream() }
    }

    /// Returns the priority event that announces this barrier, with the barrier's number.
    ///
    /// # Errors
    /// The bytes are no event that can be announced.
    pub(super) fn announcement(&self) -> Result<Self, EventError> {
        let announced = Box::new(Event::decode(self.buffer.as_slice())?);
        let sequence_number = self.sequence.0.cast_signed();
        let event = Event::EventAnnouncement { sequence_number, announced };
        let buffer = Buffer::from(event.encode()?);
        Ok(Self::new(buffer, DataType::PrioritizedEventBuffer, self.sequence))
    }
}

/// Turns the queued barrier of this number into a priority event. Returns false if no barrier of
/// this number that may overtake is queued.
pub(super) fn prioritize(received: &mut PrioritizedDeque<Arrived>, sequence: Sequence) -> bool {
    // The announcement has the same number, and must stay.
    let is_barrier = |arrived: &Arrived| {
        arrived.sequence == sequence && arrived.data_type.requires_announcement()
    };
    let Ok(barrier) = received.remove_first(is_barrier) else {
        return false;
    };
    received.add_priority(Arrived { data_type: DataType::PrioritizedEventBuffer, ..barrier });
    true
}
