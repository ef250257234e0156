//! The bytes of a channel state: the data in flight of one channel, on one side of it (spec 10.7).
//!
//! A checkpoint has one part for what the consumer received and did not process, and one for what the
//! producer did not send. A record that was cut in transit is whole once the consumer's part is
//! followed by the producer's.
//!
//! | at | bytes | field of a part |
//! |---|---|---|
//! | 0 | 4 | `HGCS` |
//! | 4 | 1 | version, 1 |
//! | 5 | 8 | bytes of all its buffers |
//! | 13 | 4 | CRC32C of the 13 bytes before |
//!
//! | at | bytes | field of a buffer |
//! |---|---|---|
//! | 0 | 4 | bytes of its payload |
//! | 4 | 1 | its [`DataType`]: one of data |
//! | 5 | 1 | 1 if the payload is compressed, else 0 |
//! | 6 | 4 | CRC32C of the 6 bytes before and the payload |
//! | 10 | | payload |

use thiserror::Error;

use crate::crc32c::{Crc32c, crc32c};
use crate::data_type::DataType;
use crate::wire::{take_u8, take_u32, take_u64};

const MAGIC: u32 = u32::from_be_bytes(*b"HGCS");
const VERSION: u8 = 1;
/// Bytes of a part before its first buffer.
const HEADER_LEN: usize = 17;
/// Bytes of a buffer before its payload.
const BUFFER_LEN: usize = 10;
const CRC_LEN: usize = 4;

/// Collects the buffers of one part.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChannelStateBuilder {
    buffers: Vec<u8>,
    payload: u64,
}

impl ChannelStateBuilder {
    /// Appends a data buffer of `len` bytes, which lie in chunks.
    ///
    /// # Panics
    /// For an event, for 4 GiB or more, and if the chunks have another length.
    pub fn push<'a>(
        &mut self,
        data_type: DataType,
        is_compressed: bool,
        len: usize,
        chunks: impl Iterator<Item = &'a [u8]>,
    ) {
        assert!(data_type.is_buffer(), "{data_type:?} is no data");
        let start = self.buffers.len();
        let length = u32::try_from(len).expect("buffers fit a segment");
        self.buffers.reserve(BUFFER_LEN + len);
        self.buffers.extend_from_slice(&length.to_be_bytes());
        self.buffers.extend_from_slice(&[data_type as u8, is_compressed.into()]);
        let prefix = self.buffers.len();
        self.buffers.extend_from_slice(&[0; CRC_LEN]);
        chunks.for_each(|chunk| self.buffers.extend_from_slice(chunk));
        assert_eq!(self.buffers.len(), start + BUFFER_LEN + len, "all chunks of the buffer");
        let mut crc = Crc32c::new();
        crc.update(&self.buffers[start..prefix]);
        crc.update(&self.buffers[start + BUFFER_LEN..]);
        self.buffers[prefix..start + BUFFER_LEN].copy_from_slice(&crc.value().to_be_bytes());
        self.payload += len as u64;
    }

    /// Appends all buffers of another one.
    pub fn append(&mut self, other: &Self) {
        self.buffers.extend_from_slice(&other.buffers);
        self.payload += other.payload;
    }

    /// Returns true if no buffer was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Bytes of all payloads.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.payload
    }

    /// Returns the bytes of the part.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.buffers.len());
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.push(VERSION);
        out.extend_from_slice(&(self.buffers.len() as u64).to_be_bytes());
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out.extend_from_slice(&self.buffers);
        out
    }
}

/// A data buffer of a channel state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelStateBuffer<'a> {
    /// Its type: one of data.
    pub data_type: DataType,
    /// True if the payload is compressed.
    pub is_compressed: bool,
    /// Its bytes, whose checksum was right.
    pub payload: &'a [u8],
}

/// Iterates over the buffers of parts that follow each other. Ends after an error.
#[derive(Clone, Debug)]
pub struct ChannelStateReader<'a> {
    /// Bytes behind the current part.
    rest: &'a [u8],
    /// Buffers of the current part that were not read.
    part: &'a [u8],
}

impl<'a> ChannelStateReader<'a> {
    /// Reads parts from their first byte on.
    #[must_use]
    pub const fn new(parts: &'a [u8]) -> Self {
        Self { rest: parts, part: &[] }
    }

    fn begin_part(&mut self) -> Result<(), ChannelStateError> {
        let cut_off = ChannelStateError::CutOff { bytes: self.rest.len() };
        let (header, rest) = self.rest.split_first_chunk::<HEADER_LEN>().ok_or(cut_off)?;
        let input = &mut &header[..];
        let (magic, version) = (take_u32(input), take_u8(input));
        if magic != MAGIC || version != VERSION {
            return Err(ChannelStateError::Format { magic, version });
        }
        let len = take_u64(input);
        check(take_u32(input), crc32c(&header[..HEADER_LEN - CRC_LEN]))?;
        let part = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
        (self.part, self.rest) = part.ok_or(cut_off)?;
        Ok(())
    }

    fn buffer(&mut self) -> Result<ChannelStateBuffer<'a>, ChannelStateError> {
        let cut_off = ChannelStateError::CutOff { bytes: self.part.len() };
        let (header, rest) = self.part.split_first_chunk::<BUFFER_LEN>().ok_or(cut_off)?;
        let input = &mut &header[..];
        let (len, data_type, compressed) = (take_u32(input), take_u8(input), take_u8(input));
        let (payload, rest) = rest.split_at_checked(len as usize).ok_or(cut_off)?;
        let mut crc = Crc32c::new();
        crc.update(&header[..BUFFER_LEN - CRC_LEN]);
        crc.update(payload);
        check(take_u32(input), crc.value())?;
        self.part = rest;
        let is_compressed = match compressed {
            0 => false,
            1 => true,
            code => return Err(ChannelStateError::Compressed { code }),
        };
        match DataType::try_from(data_type) {
            Ok(data_type) if data_type.is_buffer() => {
                Ok(ChannelStateBuffer { data_type, is_compressed, payload })
            }
            _ => Err(ChannelStateError::DataType { code: data_type }),
        }
    }
}

impl<'a> Iterator for ChannelStateReader<'a> {
    type Item = Result<ChannelStateBuffer<'a>, ChannelStateError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.part.is_empty() {
            if self.rest.is_empty() {
                return None;
            }
            if let Err(error) = self.begin_part() {
                *self = Self::new(&[]);
                return Some(Err(error));
            }
        }
        let buffer = self.buffer();
        if buffer.is_err() {
            *self = Self::new(&[]);
        }
        Some(buffer)
    }
}

fn check(want: u32, got: u32) -> Result<(), ChannelStateError> {
    if want == got { Ok(()) } else { Err(ChannelStateError::Checksum { want, got }) }
}

/// Reasons why bytes are no channel state.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ChannelStateError {
    /// The bytes differ from those that were written.
    #[error("its checksum is {got:08x}, {want:08x} was written")]
    Checksum {
        /// Checksum in the bytes.
        want: u32,
        /// Checksum of the bytes.
        got: u32,
    },
    /// A byte says neither that a buffer is compressed nor that it is not.
    #[error("{code} says neither that a buffer is compressed nor that it is not")]
    Compressed {
        /// The byte.
        code: u8,
    },
    /// The bytes end too early.
    #[error("its last {bytes} bytes are too few")]
    CutOff {
        /// Bytes that are left.
        bytes: usize,
    },
    /// A buffer is no data.
    #[error("a buffer has the type {code}, which is none of data")]
    DataType {
        /// Code of the type.
        code: u8,
    },
    /// Another format, or another version.
    #[error("it begins with {magic:08x} version {version}, not with HGCS version {VERSION}")]
    Format {
        /// First four bytes.
        magic: u32,
        /// Fifth byte.
        version: u8,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn part(buffers: &[(DataType, bool, &[u8])]) -> Vec<u8> {
        let mut part = ChannelStateBuilder::default();
        for (data_type, is_compressed, payload) in buffers {
            let (first, second) = payload.split_at(payload.len() / 2);
            part.push(*data_type, *is_compressed, payload.len(), [first, second].into_iter());
        }
        part.finish()
    }

    type Fields<'a> = (DataType, bool, &'a [u8]);

    fn read<'a>(bytes: &'a [u8]) -> Result<Vec<Fields<'a>>, ChannelStateError> {
        let fields = |buffer: ChannelStateBuffer<'a>| {
            (buffer.data_type, buffer.is_compressed, buffer.payload)
        };
        ChannelStateReader::new(bytes).map(|buffer| buffer.map(fields)).collect()
    }

    const TWO: [(DataType, bool, &[u8]); 3] = [
        (DataType::DataBuffer, false, b"abc"),
        (DataType::DataBufferWithClearEnd, true, b"defgh"),
        (DataType::DataBuffer, false, b""),
    ];

    #[test]
    fn parts_that_follow_each_other_are_read_in_order() {
        assert_eq!(read(&[]), Ok(Vec::new()));
        assert_eq!(read(&part(&[])), Ok(Vec::new()));
        let bytes = [part(&TWO[..1]), part(&[]), part(&TWO[1..])].concat();
        assert_eq!(read(&bytes).unwrap(), TWO);
        let (mut first, mut second) =
            (ChannelStateBuilder::default(), ChannelStateBuilder::default());
        assert!(first.is_empty());
        first.push(TWO[0].0, TWO[0].1, 3, [TWO[0].2].into_iter());
        second.push(TWO[1].0, TWO[1].1, 5, [TWO[1].2].into_iter());
        first.append(&second);
        assert_eq!((first.payload_bytes(), first.is_empty()), (8, false));
        assert_eq!(read(&first.finish()).unwrap(), TWO[..2]);
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_an_error() {
        let bytes = part(&TWO);
        for at in 0..bytes.len() {
            if at > 0 {
                read(&bytes[..at]).unwrap_err();
            }
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                read(&wrong).unwrap_err();
            }
        }
        read(&bytes).unwrap();
    }
}
