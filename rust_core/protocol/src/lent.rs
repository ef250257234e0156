//! What stands in for the payload of a buffer where both ends share memory.

use crate::header::BufferHeader;
use crate::{ChannelId, DataType, Generation, Sequence};

/// Everything between the header of a [lent buffer](LentBuffer)'s frame and its CRC, in bytes.
pub(crate) const LENT_BODY_LEN: usize = 41;

/// A data buffer that stays where it is: the consumer reads it there and gives it back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LentBuffer {
    /// The channel it is for.
    pub channel: ChannelId,
    /// The attempt of the producer, as the partition request named it.
    pub generation: Generation,
    /// Its number within the channel.
    pub sequence: Sequence,
    /// Data buffers that wait behind it.
    pub backlog: u32,
    /// What it is; never an event.
    pub data_type: DataType,
    /// Its bytes; never 0.
    pub size: u32,
    /// What it is given back by.
    pub loan: u64,
    /// The region it lies in.
    pub region: u32,
    /// Where in there it begins.
    pub offset: u64,
}

impl LentBuffer {
    /// The header that the buffer would have with its payload behind it.
    #[must_use]
    pub const fn header(&self) -> BufferHeader {
        let Self { channel, generation, sequence, backlog, data_type, size, .. } = *self;
        let compressed = false;
        BufferHeader { channel, generation, sequence, backlog, data_type, compressed, size, crc: 0 }
    }

    pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
        for number in [self.channel.0, self.generation.0, self.sequence.0, self.backlog] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(self.data_type as u8);
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.loan.to_be_bytes());
        out.extend_from_slice(&self.region.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }
}
