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
//! Each CRC is a CRC32C over all bytes of the frame before it. That of a buffer or a task event also
//! covers the payload behind it. Each CRC is masked with the connection's [`FrameMask`].

use std::num::NonZeroU32;

use crate::crc32c::crc32c;
use crate::frame_kind::{FrameKind, MAGIC};
use crate::header::{BufferHeader, TaskEventHeader};
use crate::lent::LentBuffer;
use crate::{ChannelId, FrameMask, Generation, PartitionId};

/// Longest text of an error frame, in bytes.
pub const MAX_ERROR_TEXT: usize = 1024;

/// One frame, without the payload of a buffer or of a task event.
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
    /// Grants credit.
    AddCredit {
        /// Number of data buffers.
        credit: NonZeroU32,
        /// The channel.
        channel: ChannelId,
    },
    /// An event for the producing task; `size` payload bytes follow.
    TaskEvent(TaskEventHeader),
    /// Lets the producer continue behind the barrier that blocked the channel.
    ResumeConsumption {
        /// The channel.
        channel: ChannelId,
    },
    /// All records of the channel up to its end of data are processed.
    AckAllUserRecordsProcessed {
        /// The channel.
        channel: ChannelId,
    },
    /// Announces data for a channel without credit and without exclusive buffers.
    BacklogAnnouncement {
        /// Data buffers that wait.
        backlog: NonZeroU32,
        /// The channel.
        channel: ChannelId,
    },
    /// Asks for buffers of another size from now on.
    NewBufferSize {
        /// The largest size of a buffer, in bytes.
        size: NonZeroU32,
        /// The channel.
        channel: ChannelId,
    },
    /// Tells that the sender is alive.
    Heartbeat,
    /// Comes with a descriptor that the consumer keeps open while any buffer is on loan to it.
    Lease,
    /// Comes with the descriptor of memory in which buffers will be lent.
    Region {
        /// The region's id.
        region: u32,
        /// The region's size in bytes.
        size: u64,
    },
    /// A data buffer to be read in the producer's memory.
    LentBuffer(LentBuffer),
    /// Ends the loan of a buffer.
    Return {
        /// Number of the loan.
        loan: u64,
    },
}

impl Frame {
    /// Returns the kind of the frame.
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

    /// Appends the frame to `out`. The caller writes the payload of a buffer or a task event after it.
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

/// A failure at the producer, reported to the consumer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ErrorFrame {
    channel: Option<ChannelId>,
    code: u16,
    text: String,
}

impl ErrorFrame {
    /// Creates an error of one channel, or of the connection if `channel` is `None`. The text is cut to
    /// [`MAX_ERROR_TEXT`] bytes.
    #[must_use]
    pub fn new(channel: Option<ChannelId>, code: u16, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let end = (0..=MAX_ERROR_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        Self { channel: channel.filter(|id| *id != ChannelId::CONNECTION), code, text }
    }

    /// The failed channel; `None` for the whole connection.
    #[must_use]
    pub const fn channel(&self) -> Option<ChannelId> {
        self.channel
    }

    /// The error's code; the driver defines its meaning.
    #[must_use]
    pub const fn code(&self) -> u16 {
        self.code
    }

    /// The message for the user.
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
    /// Index of the subpartition.
    pub subpartition: u32,
    /// The id that the consumer chose for the channel.
    pub channel: ChannelId,
    /// Generation that every buffer of the channel must carry.
    pub generation: Generation,
    /// Data buffers the producer may send at once. If 0, the consumer has no free buffer for the channel
    /// yet, and the producer announces its backlog ([`Frame::BacklogAnnouncement`]).
    pub initial_credit: u32,
    /// Hash of the schema that the consumer expects; zeros if records have none.
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
