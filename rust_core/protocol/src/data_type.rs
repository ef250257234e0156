//! What a buffer carries.

use thiserror::Error;

/// What a buffer carries; the discriminant is its value on the wire.
///
/// Value 0, Flink's marker for "nothing comes next", never travels: it is [`Next::None`] here.
///
/// [`Next::None`]: crate::Next::None
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum DataType {
    /// Record bytes; may end within a record.
    DataBuffer = 1,
    /// An event that has no type of its own.
    EventBuffer = 2,
    /// An event that overtakes everything that is not one.
    PrioritizedEventBuffer = 3,
    /// A checkpoint barrier that waits for alignment.
    AlignedCheckpointBarrier = 4,
    /// A checkpoint barrier that waits for alignment for a limited time.
    TimeoutableAlignedCheckpointBarrier = 5,
    /// End of the state a channel recovered.
    RecoveryCompletion = 6,
    /// End of a segment of a hybrid partition.
    EndOfSegment = 7,
    /// Record bytes that end at a record boundary.
    DataBufferWithClearEnd = 8,
    /// The records of a subpartition are over.
    EndOfData = 9,
    /// A subpartition is over.
    EndOfPartition = 10,
    /// Says how many buffers follow from recovery.
    RecoveryMetadata = 11,
}

impl DataType {
    /// Whether this is an event: it passes without credit.
    #[must_use]
    pub const fn is_event(self) -> bool {
        !self.is_buffer()
    }

    /// Whether this is data: it costs a credit.
    #[must_use]
    pub const fn is_buffer(self) -> bool {
        matches!(self, Self::DataBuffer | Self::DataBufferWithClearEnd)
    }

    /// Whether the producer must stop after it until the consumer resumes.
    #[must_use]
    pub const fn blocks_upstream(self) -> bool {
        matches!(
            self,
            Self::AlignedCheckpointBarrier
                | Self::TimeoutableAlignedCheckpointBarrier
                | Self::RecoveryCompletion
        )
    }

    /// Whether it overtakes what is not prioritized.
    #[must_use]
    pub const fn has_priority(self) -> bool {
        matches!(self, Self::PrioritizedEventBuffer)
    }

    /// Whether the receiver announces it ahead of the data before it.
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

/// A byte that names no data type.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("data type {0} is none of 1 to 11")]
pub struct UnknownDataType(pub u8);
