//! The defects of a frame.

use thiserror::Error;

use crate::frame_kind::{FrameKind, MAGIC};
use crate::side::Side;
use crate::{ChannelId, DataType};

/// Bytes that are no valid frame. The connection must be closed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum FrameError {
    /// Another protocol, or a stream that lost its frame boundaries.
    #[error("frame magic is {got:#010x}, not {MAGIC:#010x}")]
    BadMagic {
        /// The received word.
        got: u32,
    },
    /// Damaged bytes.
    #[error("{kind:?} frame ends with CRC {got:#010x}, its bytes have {want:#010x}")]
    Checksum {
        /// The kind of frame.
        kind: FrameKind,
        /// The CRC at the end of the frame.
        got: u32,
        /// The CRC of the bytes before it.
        want: u32,
    },
    /// A compression flag that is neither 0 nor 1.
    #[error("a buffer on channel {channel} is compressed {got}, which is neither 0 nor 1")]
    CompressedByte {
        /// The channel.
        channel: ChannelId,
        /// The byte.
        got: u8,
    },
    /// An event marked as compressed.
    #[error("event {data_type:?} on channel {channel} is compressed: events never are")]
    CompressedEvent {
        /// The channel.
        channel: ChannelId,
        /// The event's type.
        data_type: DataType,
    },
    /// An event without payload.
    #[error("event {data_type:?} on channel {channel} has no payload")]
    EmptyEvent {
        /// The channel.
        channel: ChannelId,
        /// The event's type.
        data_type: DataType,
    },
    /// A task event without payload.
    #[error("task event on channel {channel} has no payload")]
    EmptyTaskEvent {
        /// The channel.
        channel: ChannelId,
    },
    /// An event marked as lent.
    #[error("event {data_type:?} on channel {channel} is lent: events never are")]
    LentEvent {
        /// The channel.
        channel: ChannelId,
        /// The event's type.
        data_type: DataType,
    },
    /// A payload over the agreed limit.
    #[error("payload of {size} bytes on channel {channel} is over the limit of {limit}")]
    PayloadTooLarge {
        /// The channel.
        channel: ChannelId,
        /// Bytes announced.
        size: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// The reserved channel number that stands for the whole connection.
    #[error("channel {id} stands for the connection and names no channel", id = ChannelId::CONNECTION)]
    ReservedChannel,
    /// Two lengths that disagree, of the frame and of its payload.
    #[error("frame of {length} bytes on channel {channel} announces a payload of {size}")]
    SizeMismatch {
        /// The channel.
        channel: ChannelId,
        /// Bytes of the frame.
        length: u32,
        /// Bytes of the payload.
        size: u32,
    },
    /// Two lengths that disagree, of an error frame and of its text.
    #[error("error frame of {length} bytes announces a text of {text}")]
    TextMismatch {
        /// Bytes of the frame.
        length: u32,
        /// Bytes of the text.
        text: u16,
    },
    /// An error text that is not UTF-8.
    #[error("text of an error frame is not UTF-8")]
    TextNotUtf8,
    /// A frame over its fixed length or the agreed limit.
    #[error("{kind:?} frame of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// The kind of frame.
        kind: FrameKind,
        /// Bytes announced.
        length: u32,
        /// Bytes allowed.
        limit: u64,
    },
    /// A frame shorter than its fixed part.
    #[error("{kind:?} frame of {length} bytes is shorter than {least}")]
    TooShort {
        /// The kind of frame.
        kind: FrameKind,
        /// Bytes announced.
        length: u32,
        /// Bytes of the fixed part.
        least: u64,
    },
    /// An unknown data type.
    #[error("data type {data_type} of a buffer on channel {channel} is none of 1 to 11")]
    UnknownDataType {
        /// The channel.
        channel: ChannelId,
        /// The byte.
        data_type: u8,
    },
    /// An unknown kind of frame.
    #[error("frame id {id} is unknown")]
    UnknownId {
        /// The byte.
        id: u8,
    },
    /// A frame that only the other side may receive.
    #[error("{kind:?} frame arrived at the {side:?} side")]
    WrongDirection {
        /// The kind of frame.
        kind: FrameKind,
        /// The receiving side.
        side: Side,
    },
    /// A credit, backlog or size of 0.
    #[error("{kind:?} frame of 0")]
    Zero {
        /// The kind of frame.
        kind: FrameKind,
    },
}
