//! What can be wrong with a frame.

use thiserror::Error;

use crate::frame::{FrameKind, MAGIC};
use crate::{ChannelId, DataType, Side};

/// Bytes that are no legal frame; the connection must end.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum FrameError {
    /// Not our protocol, or a stream out of step.
    #[error("frame magic is {got:#010x}, not {MAGIC:#010x}")]
    BadMagic {
        /// The word in its place.
        got: u32,
    },
    /// Bytes that changed on the way.
    #[error("{kind:?} frame ends with CRC {got:#010x}, its bytes have {want:#010x}")]
    Checksum {
        /// Which frame.
        kind: FrameKind,
        /// What the frame ends with.
        got: u32,
        /// What the bytes before it have.
        want: u32,
    },
    /// A byte that says neither that a payload is compressed nor that it is not.
    #[error("a buffer on channel {channel} is compressed {got}, which is neither 0 nor 1")]
    CompressedByte {
        /// The channel.
        channel: ChannelId,
        /// The byte.
        got: u8,
    },
    /// An event that is said to be compressed.
    #[error("event {data_type:?} on channel {channel} is compressed: events never are")]
    CompressedEvent {
        /// The channel.
        channel: ChannelId,
        /// Which event.
        data_type: DataType,
    },
    /// An event without payload.
    #[error("event {data_type:?} on channel {channel} has no payload")]
    EmptyEvent {
        /// The channel.
        channel: ChannelId,
        /// Which event.
        data_type: DataType,
    },
    /// A task event without payload.
    #[error("task event on channel {channel} has no payload")]
    EmptyTaskEvent {
        /// The channel.
        channel: ChannelId,
    },
    /// An event that is said to be lent.
    #[error("event {data_type:?} on channel {channel} is lent: events never are")]
    LentEvent {
        /// The channel.
        channel: ChannelId,
        /// Which event.
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
    /// A channel with the number that stands for the connection.
    #[error("channel {id} stands for the connection and names no channel", id = ChannelId::CONNECTION)]
    ReservedChannel,
    /// A frame with a payload whose two lengths disagree.
    #[error("frame of {length} bytes on channel {channel} announces a payload of {size}")]
    SizeMismatch {
        /// The channel.
        channel: ChannelId,
        /// Bytes of the frame.
        length: u32,
        /// Bytes of the payload.
        size: u32,
    },
    /// An error frame whose two lengths disagree.
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
        /// Which frame.
        kind: FrameKind,
        /// Bytes announced.
        length: u32,
        /// Bytes allowed.
        limit: u64,
    },
    /// A frame shorter than its fixed part.
    #[error("{kind:?} frame of {length} bytes is shorter than {least}")]
    TooShort {
        /// Which frame.
        kind: FrameKind,
        /// Bytes announced.
        length: u32,
        /// Bytes it must have.
        least: u64,
    },
    /// A data type that does not exist.
    #[error("data type {data_type} of a buffer on channel {channel} is none of 1 to 11")]
    UnknownDataType {
        /// The channel.
        channel: ChannelId,
        /// The byte.
        data_type: u8,
    },
    /// A frame that does not exist.
    #[error("frame id {id} is unknown")]
    UnknownId {
        /// The byte.
        id: u8,
    },
    /// A frame that only the other side may receive.
    #[error("{kind:?} frame arrived at the {side:?} side")]
    WrongDirection {
        /// Which frame.
        kind: FrameKind,
        /// Where it arrived.
        side: Side,
    },
    /// A credit, backlog or size of nothing.
    #[error("{kind:?} frame of 0")]
    Zero {
        /// Which frame.
        kind: FrameKind,
    },
}
