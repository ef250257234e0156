//! Buffers that are read in the producer's memory, between processes of one host.
//!
//! Decision: ADR 0019.

use crate::header::BufferHeader;
use crate::{ChannelId, DataType, Generation, Sequence};

/// A data buffer that stays in the producer's memory. The consumer reads it there and returns it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LentBuffer {
    /// The receiving channel.
    pub channel: ChannelId,
    /// The producer's attempt, from the partition request.
    pub generation: Generation,
    /// Number of the buffer on its channel.
    pub sequence: Sequence,
    /// Data buffers that wait behind it at the producer.
    pub backlog: u32,
    /// Type of the buffer; never an event.
    pub data_type: DataType,
    /// Length in bytes; never 0.
    pub size: u32,
    /// Number of the loan, for the return.
    pub loan: u64,
    /// The region of shared memory that holds it.
    pub region: u32,
    /// Offset in the region.
    pub offset: u64,
}

impl LentBuffer {
    /// Returns the header that the buffer would have if its payload were sent.
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
