//! The types of buffers.

use thiserror::Error;

/// The type of a buffer. The discriminant is its value on the wire.
///
/// Value 0, Flink's marker for "nothing comes next", is never sent: it is [`Next::None`] here.
///
/// [`Next::None`]: crate::Next::None
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum DataType {
    /// Record bytes; may end within a record.
    DataBuffer = 1,
    /// An event without a type of its own.
    EventBuffer = 2,
    /// An event that overtakes all buffers without priority.
    PrioritizedEventBuffer = 3,
    /// A checkpoint barrier that waits for alignment.
    AlignedCheckpointBarrier = 4,
    /// A checkpoint barrier that waits for alignment for a limited time.
    TimeoutableAlignedCheckpointBarrier = 5,
    /// End of a channel's recovered state.
    RecoveryCompletion = 6,
    /// End of a segment of a hybrid partition.
    EndOfSegment = 7,
    /// Record bytes that end at a record boundary.
    DataBufferWithClearEnd = 8,
    /// End of a subpartition's records.
    EndOfData = 9,
    /// End of a subpartition.
    EndOfPartition = 10,
    /// The number of recovered buffers that follow.
    RecoveryMetadata = 11,
}

impl DataType {
    /// Returns true for an event, which needs no credit.
    #[must_use]
    pub const fn is_event(self) -> bool {
        !self.is_buffer()
    }

    /// Returns true for data, which costs a credit.
    #[must_use]
    pub const fn is_buffer(self) -> bool {
        matches!(self, Self::DataBuffer | Self::DataBufferWithClearEnd)
    }

    /// Returns true if the producer must stop after it until the consumer resumes the channel.
    #[must_use]
    pub const fn blocks_upstream(self) -> bool {
        matches!(
            self,
            Self::AlignedCheckpointBarrier
                | Self::TimeoutableAlignedCheckpointBarrier
                | Self::RecoveryCompletion
        )
    }

    /// Returns true if it overtakes buffers without priority.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::PrioritizedEventBuffer)
    }

    /// Returns true if the receiver announces it ahead of the buffers before it.
    #[must_use]
    pub const fn requires_announcement(self) -> bool {
        matches!(self, Self::TimeoutableAlignedCheckpointBarrier)
    }
}

impl TryFrom<u8> for DataType {
    type Error = UnknownDataType;

    fn try_from(value: u8) -> Result<Self, UnknownDataType> {
        Ok(match value {
            1 => Self::DataBuffer,
            2 => Self::EventBuffer,
            3 => Self::PrioritizedEventBuffer,
            4 => Self::AlignedCheckpointBarrier,
            5 => Self::TimeoutableAlignedCheckpointBarrier,
            6 => Self::RecoveryCompletion,
            7 => Self::EndOfSegment,
            8 => Self::DataBufferWithClearEnd,
            9 => Self::EndOfData,
            10 => Self::EndOfPartition,
            11 => Self::RecoveryMetadata,
            _ => return Err(UnknownDataType(value)),
        })
    }
}

/// A byte that is no data type.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("data type {0} is none of 1 to 11")]
pub struct UnknownDataType(pub u8);
