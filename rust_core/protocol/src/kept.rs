//! The index of a kept subpartition: where its buffers are in a file, or behind the index itself.
//!
//! A producer of a kept exchange writes its partition to a file and ends. Its consumers get one index
//! each, which travels through Spark's shuffle, and read the buffers from the file. If the partition
//! is small, the buffers follow the index in the same bytes, and there is no file.

use thiserror::Error;

use crate::crc32c::crc32c;
use crate::data_type::DataType;
use crate::wire::{take_u8, take_u32, take_u64};

/// First bytes of an index.
const MAGIC: u32 = u32::from_be_bytes(*b"HGKI");
/// Version of the format.
const VERSION: u8 = 1;
/// Bytes before the first block: magic number, version, number of blocks.
const PREFIX_LEN: usize = 9;
/// Bytes of a block.
const BLOCK_LEN: usize = 21;
/// Bytes of the checksum, which follows the last block and covers everything before it.
const CRC_LEN: usize = 4;
/// Length before compression of a buffer that is not compressed.
const NOT_COMPRESSED: u32 = u32::MAX;

/// One buffer or event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeptBlock {
    /// Its type.
    pub data_type: DataType,
    /// Its first byte in the file, or in the bytes behind the index.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// Bytes before compression; `None` if they are not compressed.
    pub plain_len: Option<u32>,
    /// CRC32C of its bytes.
    pub crc: u32,
}

/// The buffers of one subpartition, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptIndex(pub Vec<KeptBlock>);

impl KeptIndex {
    /// Encodes the index.
    ///
    /// # Panics
    /// With more than `u32::MAX` blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.0.len()).expect("the blocks of one subpartition");
        let mut out = Vec::with_capacity(PREFIX_LEN + self.0.len() * BLOCK_LEN + CRC_LEN);
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.push(VERSION);
        out.extend_from_slice(&count.to_be_bytes());
        for block in &self.0 {
            out.push(block.data_type as u8);
            out.extend_from_slice(&block.offset.to_be_bytes());
            out.extend_from_slice(&block.len.to_be_bytes());
            out.extend_from_slice(&block.plain_len.unwrap_or(NOT_COMPRESSED).to_be_bytes());
            out.extend_from_slice(&block.crc.to_be_bytes());
        }
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out
    }

    /// Decodes an index. Returns it and its length, behind which the buffers follow if there is no
    /// file.
    ///
    /// # Errors
    /// [`KeptIndexError`] for the first violation of the format.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), KeptIndexError> {
        let cut_off = KeptIndexError::CutOff { got: bytes.len() };
        if bytes.len() < PREFIX_LEN {
            return Err(cut_off);
        }
        let input = &mut &*bytes;
        let (magic, version) = (take_u32(input), take_u8(input));
        if magic != MAGIC || version != VERSION {
            return Err(KeptIndexError::Format { magic, version });
        }
        let count = take_u32(input) as usize;
        // The length is checked before memory for the blocks is taken.
        let end = count.checked_mul(BLOCK_LEN).and_then(|len| len.checked_add(PREFIX_LEN));
        let end = end.filter(|end| end.checked_add(CRC_LEN).is_some_and(|all| all <= bytes.len()));
        let Some(end) = end else {
            return Err(cut_off);
        };
        let (want, got) = (take_u32(&mut &bytes[end..]), crc32c(&bytes[..end]));
        if want != got {
            return Err(KeptIndexError::Checksum { want, got });
        }
        let blocks = (0..count).map(|_| decode_block(input)).collect::<Result<_, _>>()?;
        Ok((Self(blocks), end + CRC_LEN))
    }
}

fn decode_block(input: &mut &[u8]) -> Result<KeptBlock, KeptIndexError> {
    let data_type = take_u8(input);
    let data_type =
        DataType::try_from(data_type).map_err(|_| KeptIndexError::DataType(data_type))?;
    let offset = take_u64(input);
    let len = take_u32(input);
    let plain_len = Some(take_u32(input)).filter(|len| *len != NOT_COMPRESSED);
    let crc = take_u32(input);
    if offset.checked_add(len.into()).is_none() {
        return Err(KeptIndexError::Offset { offset, len });
    }
    Ok(KeptBlock { data_type, offset, len, plain_len, crc })
}

/// Reasons why bytes are no index of a kept subpartition.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum KeptIndexError {
    /// The bytes end within the index.
    #[error("{got} bytes end within the index")]
    CutOff {
        /// Number of bytes.
        got: usize,
    },
    /// The bytes are no index, or one of another version.
    #[error("magic number {magic:#x} with version {version} instead of {MAGIC:#x} with {VERSION}")]
    Format {
        /// First four bytes.
        magic: u32,
        /// Fifth byte.
        version: u8,
    },
    /// The index is damaged.
    #[error("the index has checksum {got:#x}, and {want:#x} was written")]
    Checksum {
        /// Checksum that was written.
        want: u32,
        /// Checksum of the bytes.
        got: u32,
    },
    /// A block has a type that does not exist.
    #[error("data type {0} is none of 1 to 11")]
    DataType(u8),
    /// A block ends beyond the largest offset.
    #[error("{len} bytes at offset {offset} end beyond the largest offset")]
    Offset {
        /// Offset of the block.
        offset: u64,
        /// Length of the block.
        len: u32,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block() -> impl Strategy<Value = KeptBlock> {
        let plain_len = proptest::option::of(0..NOT_COMPRESSED);
        (1..=11_u8, 0..1_u64 << 62, any::<u32>(), plain_len, any::<u32>()).prop_map(
            |(data_type, offset, len, plain_len, crc)| {
                let data_type = DataType::try_from(data_type).unwrap();
                KeptBlock { data_type, offset, len, plain_len, crc }
            },
        )
    }

    fn index() -> impl Strategy<Value = KeptIndex> {
        proptest::collection::vec(block(), 0..20).prop_map(KeptIndex)
    }

    proptest! {
        #[test]
        fn an_index_is_decoded_as_it_was_encoded(index in index(), tail: Vec<u8>) {
            let mut bytes = index.encode();
            let len = bytes.len();
            bytes.extend_from_slice(&tail);
            prop_assert_eq!(KeptIndex::decode(&bytes), Ok((index, len)));
        }

        #[test]
        fn an_index_that_is_cut_off_is_refused(index in index(), at: prop::sample::Index) {
            let bytes = index.encode();
            let got = at.index(bytes.len());
            prop_assert_eq!(KeptIndex::decode(&bytes[..got]), Err(KeptIndexError::CutOff { got }));
        }

        #[test]
        fn a_flipped_bit_is_found(index in index(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = index.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(KeptIndex::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_number_of_blocks_that_does_not_fit_takes_no_memory() {
        let mut bytes = KeptIndex::default().encode();
        bytes[5..9].fill(0xFF);
        let got = bytes.len();
        assert_eq!(KeptIndex::decode(&bytes), Err(KeptIndexError::CutOff { got }));
    }

    #[test]
    fn a_block_beyond_the_largest_offset_is_refused() {
        let block = KeptBlock {
            data_type: DataType::DataBuffer,
            offset: u64::MAX,
            len: 1,
            plain_len: None,
            crc: 0,
        };
        let error = KeptIndexError::Offset { offset: u64::MAX, len: 1 };
        assert_eq!(KeptIndex::decode(&KeptIndex(vec![block]).encode()), Err(error));
    }
}
