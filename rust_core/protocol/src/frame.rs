//! The frames of a connection. All integers are big-endian.
//!
//! | bytes | every frame begins with |
//! |---|---|
//! | 0..4 | length of the whole frame, with these 9 bytes, the payload and the CRC |
//! | 4..8 | magic `BADC0FFE` |
//! | 8 | id of the [`FrameKind`] |
//!
//! | id | frame | body |
//! |---|---|---|
//! | 0 | buffer | channel 4, generation 4, sequence 4, backlog 4, data type 1, compressed 1, size 4, crc 4, payload |
//! | 1 | error | channel 4, code 2, text length 2, text, crc 4 |
//! | 2 | partition request | partition 16, subpartition 4, channel 4, generation 4, initial credit 4, schema hash 32, crc 4 |
//! | 3 | task event | channel 4, size 4, crc 4, payload |
//! | 4 | cancel partition request | channel 4, crc 4 |
//! | 5 | close request | crc 4 |
//! | 6 | add credit | credit 4, channel 4, crc 4 |
//! | 7 | resume consumption | channel 4, crc 4 |
//! | 8 | acknowledge all user records processed | channel 4, crc 4 |
//! | 9 | backlog announcement | backlog 4, channel 4, crc 4 |
//! | 10 | new buffer size | size 4, channel 4, crc 4 |
//! | 12 | heartbeat | crc 4 |
//! | 13 | lease | crc 4 |
//! | 14 | region | region 4, size 8, crc 4 |
//! | 15 | lent buffer | channel 4, generation 4, sequence 4, backlog 4, data type 1, size 4, loan 8, region 4, offset 8, crc 4 |
//! | 16 | return | loan 8, crc 4 |
//!
//! Each CRC is a CRC32C over all bytes of the frame before it; that of a buffer or a task event covers
//! the payload behind it as well. It is masked with what both ends made of their handshake
//! ([`FrameMask`]).

use std::num::NonZeroU32;

use crate::crc32c::crc32c;
use crate::header::{BUFFER_HEADER_LEN, BufferHeader, TASK_EVENT_HEADER_LEN, TaskEventHeader};
use crate::lent::{LENT_BODY_LEN, LentBuffer};
use crate::{ChannelId, FrameMask, Generation, PartitionId};

/// Second word of every frame.
pub const MAGIC: u32 = 0xBADC_0FFE;
/// Length, magic and id: what every frame begins with, in bytes.
pub const FRAME_HEADER_LEN: usize = 9;
/// The CRC that ends every frame without a payload, in bytes.
pub(crate) const CRC_LEN: usize = 4;
/// Longest text of an error frame, in bytes.
pub const MAX_ERROR_TEXT: usize = 1024;

/// Which frame it is; the discriminant is its id on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// Producer to consumer: a data buffer or an event.
    Buffer = 0,
    /// Producer to consumer: a channel, or all of the connection, failed.
    Error = 1,
    /// Consumer to producer: opens a channel.
    PartitionRequest = 2,
    /// Consumer to producer: an event for the task that produces.
    TaskEvent = 3,
    /// Consumer to producer: closes a channel.
    CancelPartitionRequest = 4,
    /// Consumer to producer: no further frame follows.
    CloseRequest = 5,
    /// Consumer to producer: room for more data buffers.
    AddCredit = 6,
    /// Consumer to producer: a channel that a barrier blocked goes on.
    ResumeConsumption = 7,
    /// Consumer to producer: all records of a channel up to its end of data are processed.
    AckAllUserRecordsProcessed = 8,
    /// Producer to consumer: a channel without credit of its own has data waiting.
    BacklogAnnouncement = 9,
    /// Consumer to producer: how much a buffer should hold from now on.
    NewBufferSize = 10,
    /// Either way: the sender is alive and has nothing else to say.
    Heartbeat = 12,
    /// Producer to consumer: a descriptor to keep open as long as anything is on loan.
    Lease = 13,
    /// Producer to consumer: the descriptor of a region to map.
    Region = 14,
    /// Producer to consumer: a data buffer, to be read where it is.
    LentBuffer = 15,
    /// Consumer to producer: a lent buffer is read no more.
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

    /// Length without payload and without text, in bytes.
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

/// One frame; of a buffer frame, everything but the payload.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Frame {
    /// A buffer; `size` payload bytes follow.
    Buffer(BufferHeader),
    /// A failure at the producer.
    Error(ErrorFrame),
    /// Opens a channel.
    PartitionRequest(PartitionRequest),
    /// Closes a channel.
    CancelPartitionRequest {
        /// The channel to close.
        channel: ChannelId,
    },
    /// No further frame follows.
    CloseRequest,
    /// Room for `credit` more data buffers.
    AddCredit {
        /// How many.
        credit: NonZeroU32,
        /// For which channel.
        channel: ChannelId,
    },
    /// An event for the producing task; `size` payload bytes follow.
    TaskEvent(TaskEventHeader),
    /// The producer may go on behind the barrier that blocked the channel.
    ResumeConsumption {
        /// Which channel.
        channel: ChannelId,
    },
    /// All records of the channel up to its end of data are processed.
    AckAllUserRecordsProcessed {
        /// Which channel.
        channel: ChannelId,
    },
    /// Data waits for a channel that has no credit and no buffers of its own.
    BacklogAnnouncement {
        /// Data buffers that wait.
        backlog: NonZeroU32,
        /// For which channel.
        channel: ChannelId,
    },
    /// How much a buffer of the channel should hold from now on.
    NewBufferSize {
        /// Bytes.
        size: NonZeroU32,
        /// Which channel.
        channel: ChannelId,
    },
    /// The sender is alive and has nothing else to say.
    Heartbeat,
    /// A descriptor comes with it that the consumer keeps open as long as anything is on loan to it.
    Lease,
    /// A descriptor comes with it: memory in which buffers will be lent.
    Region {
        /// Its name.
        region: u32,
        /// Bytes.
        size: u64,
    },
    /// A data buffer, to be read where it is.
    LentBuffer(LentBuffer),
    /// A lent buffer is read no more.
    Return {
        /// Which one.
        loan: u64,
    },
}

impl Frame {
    /// Which frame it is.
    #[must_use]
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Buffer(_) => FrameKind::Buffer,
            Self::Error(_) => FrameKind::Error,
            Self::PartitionRequest(_) => FrameKind::PartitionRequest,
            Self::CancelPartitionRequest { .. } => FrameKind::CancelPartitionRequest,
            Self::CloseRequest => FrameKind::CloseRequest,
            Self::AddCredit { .. } => FrameKind::AddCredit,
            Self::TaskEvent(_) => FrameKind::TaskEvent,
            Self::ResumeConsumption { .. } => FrameKind::ResumeConsumption,
            Self::AckAllUserRecordsProcessed { .. } => FrameKind::AckAllUserRecordsProcessed,
            Self::BacklogAnnouncement { .. } => FrameKind::BacklogAnnouncement,
            Self::NewBufferSize { .. } => FrameKind::NewBufferSize,
            Self::Heartbeat => FrameKind::Heartbeat,
            Self::Lease => FrameKind::Lease,
            Self::Region { .. } => FrameKind::Region,
            Self::LentBuffer(_) => FrameKind::LentBuffer,
            Self::Return { .. } => FrameKind::Return,
        }
    }

    /// Appends the frame to `out`; after a buffer or a task event the caller writes the payload.
    ///
    /// # Panics
    ///
    /// As [`BufferHeader::encode`].
    pub fn encode(&self, mask: FrameMask, out: &mut Vec<u8>) {
        if let Self::Buffer(header) = self {
            out.extend_from_slice(&header.encode());
            return;
        }
        if let Self::TaskEvent(header) = self {
            out.extend_from_slice(&header.encode());
            return;
        }
        let start = out.len();
        let text = if let Self::Error(error) = self { error.text() } else { "" };
        let length = self.kind().fixed_len() + text.len();
        put_header(out, length as u32, self.kind());
        match self {
            Self::Buffer(_)
            | Self::TaskEvent(_)
            | Self::CloseRequest
            | Self::Heartbeat
            | Self::Lease => {}
            Self::LentBuffer(lent) => lent.encode_body(out),
            Self::Return { loan } => out.extend_from_slice(&loan.to_be_bytes()),
            Self::Region { region, size } => {
                put_u32(out, *region);
                out.extend_from_slice(&size.to_be_bytes());
            }
            Self::Error(error) => {
                put_u32(out, error.channel().unwrap_or(ChannelId::CONNECTION).0);
                out.extend_from_slice(&error.code().to_be_bytes());
                out.extend_from_slice(&(text.len() as u16).to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Self::PartitionRequest(request) => {
                out.extend_from_slice(&request.partition.0);
                put_u32(out, request.subpartition);
                put_u32(out, request.channel.0);
                put_u32(out, request.generation.0);
                put_u32(out, request.initial_credit);
                out.extend_from_slice(&request.schema_hash);
            }
            Self::CancelPartitionRequest { channel }
            | Self::ResumeConsumption { channel }
            | Self::AckAllUserRecordsProcessed { channel } => put_u32(out, channel.0),
            Self::AddCredit { credit: number, channel }
            | Self::BacklogAnnouncement { backlog: number, channel }
            | Self::NewBufferSize { size: number, channel } => {
                put_u32(out, number.get());
                put_u32(out, channel.0);
            }
        }
        let crc = mask.apply(crc32c(&out[start..]));
        put_u32(out, crc);
    }
}

/// A failure at the producer, told to the consumer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ErrorFrame {
    channel: Option<ChannelId>,
    code: u16,
    text: String,
}

impl ErrorFrame {
    /// An error of one channel, or of the connection if `channel` is `None`. The text is cut to
    /// [`MAX_ERROR_TEXT`] bytes.
    #[must_use]
    pub fn new(channel: Option<ChannelId>, code: u16, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let end = (0..=MAX_ERROR_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        Self { channel: channel.filter(|id| *id != ChannelId::CONNECTION), code, text }
    }

    /// The channel that failed; `None` is the whole connection.
    #[must_use]
    pub const fn channel(&self) -> Option<ChannelId> {
        self.channel
    }

    /// What failed; the driver gives it its meaning.
    #[must_use]
    pub const fn code(&self) -> u16 {
        self.code
    }

    /// What to tell the user.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Opens a channel to one subpartition.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PartitionRequest {
    /// The result partition.
    pub partition: PartitionId,
    /// Which of its subpartitions.
    pub subpartition: u32,
    /// The name the consumer gives the channel.
    pub channel: ChannelId,
    /// Comes back in every buffer of the channel.
    pub generation: Generation,
    /// Data buffers the producer may send at once. With 0 the channel has no buffers of its own, and
    /// the producer announces its backlog ([`Frame::BacklogAnnouncement`]).
    pub initial_credit: u32,
    /// Hash of the schema the consumer reads with; zeros if records have none.
    pub schema_hash: [u8; 32],
}

fn put_header(out: &mut Vec<u8>, length: u32, kind: FrameKind) {
    put_u32(out, length);
    put_u32(out, MAGIC);
    out.push(kind as u8);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}
