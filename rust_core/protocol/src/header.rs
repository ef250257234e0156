//! The headers of frames with a payload: buffers and task events.

use crate::frame_kind::{BUFFER_HEADER_LEN, FrameKind, MAGIC, TASK_EVENT_HEADER_LEN};
use crate::{ChannelId, DataType, Generation, Sequence};

/// Offset of the CRC in a buffer header.
pub const CRC_OFFSET: usize = 31;
/// Offset of the CRC in the header of a task event.
pub const TASK_EVENT_CRC_OFFSET: usize = 17;
/// Largest payload whose frame length fits its field.
pub const MAX_PAYLOAD: u32 = u32::MAX - BUFFER_HEADER_LEN as u32;

/// The header of a buffer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BufferHeader {
    /// The receiving channel.
    pub channel: ChannelId,
    /// The producer's attempt, from the partition request.
    pub generation: Generation,
    /// Number of the buffer on its channel.
    pub sequence: Sequence,
    /// Data buffers that wait behind it at the producer.
    pub backlog: u32,
    /// Type of the payload.
    pub data_type: DataType,
    /// True if the payload is compressed. Events never are.
    pub compressed: bool,
    /// Payload bytes.
    pub size: u32,
    /// CRC32C over [`prefix_for_crc`](Self::prefix_for_crc) and the payload, masked.
    pub crc: u32,
}

impl BufferHeader {
    /// Encodes the header; the last 4 bytes are the CRC.
    ///
    /// # Panics
    ///
    /// If `size` is over [`MAX_PAYLOAD`]. Payloads come from segments, which are far smaller.
    #[must_use]
    pub fn encode(&self) -> [u8; BUFFER_HEADER_LEN] {
        let mut out = [0; BUFFER_HEADER_LEN];
        out[..CRC_OFFSET].copy_from_slice(&self.prefix_for_crc());
        out[CRC_OFFSET..].copy_from_slice(&self.crc.to_be_bytes());
        out
    }

    /// Encodes the part of the header that the CRC covers together with the payload.
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
        out[26] = self.compressed.into();
        out[27..31].copy_from_slice(&self.size.to_be_bytes());
        out
    }
}

/// The header of a task event.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TaskEventHeader {
    /// The channel whose producing task receives the event.
    pub channel: ChannelId,
    /// Payload bytes; never 0.
    pub size: u32,
    /// CRC32C over [`prefix_for_crc`](Self::prefix_for_crc) and the payload, masked.
    pub crc: u32,
}

impl TaskEventHeader {
    /// Encodes the header; the last 4 bytes are the CRC.
    ///
    /// # Panics
    ///
    /// If `size` is over [`MAX_PAYLOAD`]. An event fits a segment.
    #[must_use]
    pub fn encode(&self) -> [u8; TASK_EVENT_HEADER_LEN] {
        let mut out = [0; TASK_EVENT_HEADER_LEN];
        out[..TASK_EVENT_CRC_OFFSET].copy_from_slice(&self.prefix_for_crc());
        out[TASK_EVENT_CRC_OFFSET..].copy_from_slice(&self.crc.to_be_bytes());
        out
    }

    /// Encodes the part of the header that the CRC covers together with the payload.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    #[must_use]
    pub fn prefix_for_crc(&self) -> [u8; TASK_EVENT_CRC_OFFSET] {
        assert!(self.size <= MAX_PAYLOAD, "task event of {} bytes", self.size);
        let length = TASK_EVENT_HEADER_LEN as u32 + self.size;
        let mut out = [0; TASK_EVENT_CRC_OFFSET];
        out[0..4].copy_from_slice(&length.to_be_bytes());
        out[4..8].copy_from_slice(&MAGIC.to_be_bytes());
        out[8] = FrameKind::TaskEvent as u8;
        out[9..13].copy_from_slice(&self.channel.0.to_be_bytes());
        out[13..17].copy_from_slice(&self.size.to_be_bytes());
        out
    }
}
