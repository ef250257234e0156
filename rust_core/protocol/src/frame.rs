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
//! | 0 | buffer | channel 4, generation 4, sequence 4, backlog 4, data type 1, reserved 1, size 4, crc 4, payload |
//! | 1 | error | channel 4, code 2, text length 2, text, crc 4 |
//! | 2 | partition request | partition 16, subpartition 4, channel 4, generation 4, initial credit 4, schema hash 32, crc 4 |
//! | 4 | cancel partition request | channel 4, crc 4 |
//! | 5 | close request | crc 4 |
//! | 6 | add credit | credit 4, channel 4, crc 4 |
//!
//! Each CRC is a CRC32C over all bytes of the frame before it; that of a buffer covers the payload
//! behind it as well. It is masked with what both ends made of their handshake ([`FrameMask`]).

use std::num::NonZeroU32;

use crate::crc32c::crc32c;
use crate::{ChannelId, DataType, FrameMask, Generation, PartitionId, Sequence};

/// Second word of every frame.
pub const MAGIC: u32 = 0xBADC_0FFE;
/// Length, magic and id: what every frame begins with, in bytes.
pub const FRAME_HEADER_LEN: usize = 9;
/// Everything of a buffer frame but its payload, in bytes.
pub const BUFFER_HEADER_LEN: usize = 35;
/// Where the CRC stands in a buffer header; the bytes before it are part of what it covers.
pub const CRC_OFFSET: usize = 31;
/// The CRC that ends every frame but the buffer, in bytes.
pub(crate) const CRC_LEN: usize = 4;
/// Longest text of an error frame, in bytes.
pub const MAX_ERROR_TEXT: usize = 1024;
/// Largest payload whose frame length still fits its field.
pub const MAX_PAYLOAD: u32 = u32::MAX - BUFFER_HEADER_LEN as u32;

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
    /// Consumer to producer: closes a channel.
    CancelPartitionRequest = 4,
    /// Consumer to producer: no further frame follows.
    CloseRequest = 5,
    /// Consumer to producer: room for more data buffers.
    AddCredit = 6,
}

impl FrameKind {
    pub(crate) const fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::Buffer,
            1 => Self::Error,
            2 => Self::PartitionRequest,
            4 => Self::CancelPartitionRequest,
            5 => Self::CloseRequest,
            6 => Self::AddCredit,
            _ => return None,
        })
    }

    /// Length without payload and without text, in bytes.
    pub(crate) const fn fixed_len(self) -> usize {
        match self {
            Self::Buffer => BUFFER_HEADER_LEN,
            Self::Error => 17 + CRC_LEN,
            Self::PartitionRequest => 73 + CRC_LEN,
            Self::CancelPartitionRequest => 13 + CRC_LEN,
            Self::CloseRequest => FRAME_HEADER_LEN + CRC_LEN,
            Self::AddCredit => 17 + CRC_LEN,
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
        }
    }

    /// Appends the frame to `out`; after a buffer frame the caller writes the payload.
    ///
    /// # Panics
    ///
    /// As [`BufferHeader::encode`].
    pub fn encode(&self, mask: FrameMask, out: &mut Vec<u8>) {
        if let Self::Buffer(header) = self {
            out.extend_from_slice(&header.encode());
            return;
        }
        let start = out.len();
        let text = if let Self::Error(error) = self { error.text() } else { "" };
        let length = self.kind().fixed_len() + text.len();
        put_header(out, length as u32, self.kind());
        match self {
            Self::Buffer(_) | Self::CloseRequest => {}
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
                put_u32(out, request.initial_credit.get());
                out.extend_from_slice(&request.schema_hash);
            }
            Self::CancelPartitionRequest { channel } => put_u32(out, channel.0),
            Self::AddCredit { credit, channel } => {
                put_u32(out, credit.get());
                put_u32(out, channel.0);
            }
        }
        let crc = mask.apply(crc32c(&out[start..]));
        put_u32(out, crc);
    }
}

/// What precedes the payload of a buffer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BufferHeader {
    /// The channel it is for.
    pub channel: ChannelId,
    /// The attempt of the producer, as the partition request named it.
    pub generation: Generation,
    /// Its number within the channel.
    pub sequence: Sequence,
    /// Data buffers that wait behind it.
    pub backlog: u32,
    /// What the payload is.
    pub data_type: DataType,
    /// Payload bytes.
    pub size: u32,
    /// CRC32C over [`prefix_for_crc`](Self::prefix_for_crc) and the payload, masked.
    pub crc: u32,
}

impl BufferHeader {
    /// The header on the wire; the last 4 bytes are the CRC.
    ///
    /// # Panics
    ///
    /// If `size` is over [`MAX_PAYLOAD`]; payloads come out of segments, which are far smaller.
    #[must_use]
    pub fn encode(&self) -> [u8; BUFFER_HEADER_LEN] {
        let mut out = [0; BUFFER_HEADER_LEN];
        out[..CRC_OFFSET].copy_from_slice(&self.prefix_for_crc());
        out[CRC_OFFSET..].copy_from_slice(&self.crc.to_be_bytes());
        out
    }

    /// The part of the header that the CRC covers, ahead of the payload.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    #[must_use]
    pub fn prefix_for_crc(&self) -> [u8; CRC_OFFSET] {
        assert!(self.size <= MAX_PAYLOAD, "payload of {} bytes", self.size);
        let length = BUFFER_HEADER_LEN as u32 + self.size;
        let mut out = [0; CRC_OFFSET];
        out[0..4].copy_from_slice(&length.to_be_bytes());
        out[4..8].copy_from_slice(&MAGIC.to_be_bytes());
        out[8] = FrameKind::Buffer as u8;
        out[9..13].copy_from_slice(&self.channel.0.to_be_bytes());
        out[13..17].copy_from_slice(&self.generation.0.to_be_bytes());
        out[17..21].copy_from_slice(&self.sequence.0.to_be_bytes());
        out[21..25].copy_from_slice(&self.backlog.to_be_bytes());
        out[25] = self.data_type as u8;
        out[27..31].copy_from_slice(&self.size.to_be_bytes());
        out
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
    /// Data buffers the producer may send at once. Never 0: a producer without credit has no way to
    /// tell its backlog, so the channel would stand still.
    pub initial_credit: NonZeroU32,
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
