//! The kinds of frame and the lengths of their parts.

/// Second word of every frame.
pub const MAGIC: u32 = 0xBADC_0FFE;
/// Length of the fields that begin every frame (length, magic, id), in bytes.
pub const FRAME_HEADER_LEN: usize = 9;
/// Length of the CRC that ends every frame without a payload, in bytes.
pub(crate) const CRC_LEN: usize = 4;
/// Length of a buffer frame without its payload, in bytes.
pub const BUFFER_HEADER_LEN: usize = 35;
/// Length of a task event frame without its payload, in bytes.
pub const TASK_EVENT_HEADER_LEN: usize = 21;
/// Length of a lent buffer's frame without its header and CRC, in bytes.
pub(crate) const LENT_BODY_LEN: usize = 41;

/// The kind of a frame. The discriminant is its id on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// Producer to consumer: a data buffer or an event.
    Buffer = 0,
    /// Producer to consumer: a channel, or the whole connection, failed.
    Error = 1,
    /// Consumer to producer: opens a channel.
    PartitionRequest = 2,
    /// Consumer to producer: an event for the producing task.
    TaskEvent = 3,
    /// Consumer to producer: closes a channel.
    CancelPartitionRequest = 4,
    /// Consumer to producer: no further frame follows.
    CloseRequest = 5,
    /// Consumer to producer: grants credit for more data buffers.
    AddCredit = 6,
    /// Consumer to producer: resumes a channel that a barrier blocked.
    ResumeConsumption = 7,
    /// Consumer to producer: all records of a channel up to its end of data are processed.
    AckAllUserRecordsProcessed = 8,
    /// Producer to consumer: a channel without credit of its own has data waiting.
    BacklogAnnouncement = 9,
    /// Consumer to producer: the bytes that a buffer should hold from now on.
    NewBufferSize = 10,
    /// Both ways: the sender is alive and has sent nothing else for a while.
    Heartbeat = 12,
    /// Producer to consumer: a descriptor to keep open while any buffer is on loan.
    Lease = 13,
    /// Producer to consumer: the descriptor of a region to map.
    Region = 14,
    /// Producer to consumer: a data buffer to be read in the producer's memory.
    LentBuffer = 15,
    /// Consumer to producer: ends the loan of a buffer.
    Return = 16,
}

impl FrameKind {
    pub(crate) const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::Buffer,
            1 => Self::Error,
            2 => Self::PartitionRequest,
            3 => Self::TaskEvent,
            4 => Self::CancelPartitionRequest,
            5 => Self::CloseRequest,
            6 => Self::AddCredit,
            7 => Self::ResumeConsumption,
            8 => Self::AckAllUserRecordsProcessed,
            9 => Self::BacklogAnnouncement,
            10 => Self::NewBufferSize,
            12 => Self::Heartbeat,
            13 => Self::Lease,
            14 => Self::Region,
            15 => Self::LentBuffer,
            16 => Self::Return,
            _ => return None,
        })
    }

    /// Returns the length without payload and text, in bytes.
    pub(crate) const fn fixed_len(self) -> usize {
        match self {
            Self::Buffer => BUFFER_HEADER_LEN,
            Self::Error => 17 + CRC_LEN,
            Self::PartitionRequest => 73 + CRC_LEN,
            Self::TaskEvent => TASK_EVENT_HEADER_LEN,
            Self::CancelPartitionRequest
            | Self::ResumeConsumption
            | Self::AckAllUserRecordsProcessed => 13 + CRC_LEN,
            Self::CloseRequest | Self::Heartbeat | Self::Lease => FRAME_HEADER_LEN + CRC_LEN,
            Self::Return => FRAME_HEADER_LEN + 8 + CRC_LEN,
            Self::Region => FRAME_HEADER_LEN + 12 + CRC_LEN,
            Self::LentBuffer => FRAME_HEADER_LEN + LENT_BODY_LEN + CRC_LEN,
            Self::AddCredit | Self::BacklogAnnouncement | Self::NewBufferSize => 17 + CRC_LEN,
        }
    }
}
