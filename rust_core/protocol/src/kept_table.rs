//! The head of a file of indexes, which a producer of a kept exchange leaves beside its pages: which
//! subpartitions have rows, and where the index of each one is in the file.
//!
//! A consumer knows the producer and the subpartition, and reads the head and one index.

use std::ops::Range;

use thiserror::Error;

use crate::crc32c::crc32c;
use crate::wire::{take_u8, take_u32, take_u64};

/// First bytes of the file.
const MAGIC: u32 = u32::from_be_bytes(*b"HGKT");
/// Version of the format.
const VERSION: u8 = 1;
/// Bytes of an entry: a subpartition, and the end of its index behind the head.
const ENTRY_LEN: usize = 12;
/// Bytes of the checksum, which follows the last entry and covers everything before it.
const CRC_LEN: usize = 4;

/// Subpartitions and the places of their indexes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptTable {
    /// True if the pages are in a file of their own, false if they follow each index.
    pub has_pages: bool,
    /// Subpartitions in ascending order, and the end of the index of each one behind the head.
    entries: Vec<(u32, u64)>,
}

impl KeptTable {
    /// Bytes that say how long the head is: magic number, version, flag, number of entries.
    pub const PREFIX_LEN: usize = 10;

    /// Creates a table of indexes that follow each other in the file.
    ///
    /// # Panics
    /// The subpartitions are not in ascending order.
    #[must_use]
    pub fn new(has_pages: bool, lengths: impl IntoIterator<Item = (u32, u64)>) -> Self {
        let mut end = 0;
        let mut entries: Vec<(u32, u64)> = Vec::new();
        for (subpartition, len) in lengths {
            let is_next = entries.last().is_none_or(|(last, _)| *last < subpartition);
            assert!(is_next, "subpartition {subpartition} is out of order");
            end += len;
            entries.push((subpartition, end));
        }
        Self { has_pages, entries }
    }

    /// Encodes the head.
    ///
    /// # Panics
    /// With more than `u32::MAX` entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.entries.len()).expect("each subpartition is a u32");
        let mut out = Vec::with_capacity(self.head_len());
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&[VERSION, u8::from(self.has_pages)]);
        out.extend_from_slice(&count.to_be_bytes());
        for (subpartition, end) in &self.entries {
            out.extend_from_slice(&subpartition.to_be_bytes());
            out.extend_from_slice(&end.to_be_bytes());
        }
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out
    }

    /// Returns the length of a head that begins with these bytes.
    ///
    /// # Errors
    /// [`KeptTableError`]: the bytes begin no head.
    pub fn len_of_head(prefix: &[u8; Self::PREFIX_LEN]) -> Result<usize, KeptTableError> {
        let input = &mut &prefix[..];
        let (magic, version, _) = (take_u32(input), take_u8(input), take_u8(input));
        if magic != MAGIC || version != VERSION {
            return Err(KeptTableError::Format { magic, version });
        }
        let count = take_u32(input) as usize;
        let len = count.checked_mul(ENTRY_LEN).and_then(|len| len.checked_add(Self::PREFIX_LEN));
        len.and_then(|len| len.checked_add(CRC_LEN)).ok_or(KeptTableError::CutOff { got: 0 })
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// [`KeptTableError`] for the first violation of the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, KeptTableError> {
        let cut_off = KeptTableError::CutOff { got: bytes.len() };
        let prefix = bytes.first_chunk().ok_or(cut_off)?;
        if Self::len_of_head(prefix)? != bytes.len() {
            return Err(cut_off);
        }
        let (covered, crc) = bytes.split_at(bytes.len() - CRC_LEN);
        let (want, got) = (take_u32(&mut &*crc), crc32c(covered));
        if want != got {
            return Err(KeptTableError::Checksum { want, got });
        }
        let input = &mut &covered[Self::PREFIX_LEN..];
        let mut entries: Vec<(u32, u64)> = Vec::with_capacity(input.len() / ENTRY_LEN);
        while !input.is_empty() {
            let (subpartition, end) = (take_u32(input), take_u64(input));
            let follows = |(last, before): &(u32, u64)| *last < subpartition && *before <= end;
            if !entries.last().is_none_or(follows) {
                return Err(KeptTableError::Order { subpartition });
            }
            entries.push((subpartition, end));
        }
        let has_pages = match prefix[5] {
            flag @ (0 | 1) => flag == 1,
            flag => return Err(KeptTableError::Flag(flag)),
        };
        Ok(Self { has_pages, entries })
    }

    /// Returns the place in the file of the index of a subpartition; `None` if it has no rows.
    #[must_use]
    pub fn find(&self, subpartition: u32) -> Option<Range<u64>> {
        let at = self.entries.binary_search_by_key(&subpartition, |(number, _)| *number).ok()?;
        let begin = at.checked_sub(1).map_or(0, |before| self.entries[before].1);
        let head = self.head_len() as u64;
        Some(head.checked_add(begin)?..head.checked_add(self.entries[at].1)?)
    }

    fn head_len(&self) -> usize {
        Self::PREFIX_LEN + self.entries.len() * ENTRY_LEN + CRC_LEN
    }
}

/// Reasons why bytes are no head of a file of indexes.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum KeptTableError {
    /// The bytes end within the head, or beyond it.
    #[error("{got} bytes are not the whole head")]
    CutOff {
        /// Number of bytes.
        got: usize,
    },
    /// The bytes are no head, or one of another version.
    #[error("magic number {magic:#x} with version {version} instead of {MAGIC:#x} with {VERSION}")]
    Format {
        /// First four bytes.
        magic: u32,
        /// Fifth byte.
        version: u8,
    },
    /// The head is damaged.
    #[error("the head has checksum {got:#x}, and {want:#x} was written")]
    Checksum {
        /// Checksum that was written.
        want: u32,
        /// Checksum of the bytes.
        got: u32,
    },
    /// The byte that says where the pages are is neither 0 nor 1.
    #[error("flag {0} is neither 0 nor 1")]
    Flag(u8),
    /// Subpartitions or the ends of their indexes are not in ascending order.
    #[error("subpartition {subpartition} is out of order")]
    Order {
        /// The subpartition.
        subpartition: u32,
    },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn lengths() -> impl Strategy<Value = BTreeMap<u32, u64>> {
        proptest::collection::btree_map(any::<u32>(), 0..1_u64 << 40, 0..20)
    }

    proptest! {
        #[test]
        fn indexes_are_found_where_they_were_put(lengths in lengths(), has_pages: bool) {
            let table = KeptTable::new(has_pages, lengths.clone());
            let bytes = table.encode();
            prop_assert_eq!(KeptTable::len_of_head(bytes.first_chunk().unwrap()), Ok(bytes.len()));
            let read = KeptTable::decode(&bytes).unwrap();
            prop_assert_eq!(&read, &table);
            let mut at = bytes.len() as u64;
            for (subpartition, len) in lengths {
                prop_assert_eq!(read.find(subpartition), Some(at..at + len));
                at += len;
            }
        }

        #[test]
        fn a_subpartition_without_rows_is_not_found(lengths in lengths(), other: u32) {
            prop_assume!(!lengths.contains_key(&other));
            prop_assert_eq!(KeptTable::new(true, lengths).find(other), None);
        }

        #[test]
        fn a_head_that_is_cut_off_is_refused(lengths in lengths(), at: prop::sample::Index) {
            let bytes = KeptTable::new(true, lengths).encode();
            prop_assert!(KeptTable::decode(&bytes[..at.index(bytes.len())]).is_err());
        }

        #[test]
        fn a_flipped_bit_is_found(
            lengths in lengths(), at: prop::sample::Index, bit in 0..8_u8
        ) {
            let mut bytes = KeptTable::new(true, lengths).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(KeptTable::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
            let _ = KeptTable::decode(&bytes);
        }
    }

    #[test]
    fn an_unknown_flag_is_refused() {
        let mut bytes = KeptTable::new(true, [(1, 5)]).encode();
        bytes[5] = 2;
        let end = bytes.len() - CRC_LEN;
        let crc = crc32c(&bytes[..end]).to_be_bytes();
        bytes[end..].copy_from_slice(&crc);
        assert_eq!(KeptTable::decode(&bytes), Err(KeptTableError::Flag(2)));
    }

    #[test]
    fn subpartitions_out_of_order_are_refused() {
        let mut table = KeptTable::new(false, [(1, 5), (2, 5)]);
        table.entries.swap(0, 1);
        let subpartition = 1;
        assert_eq!(KeptTable::decode(&table.encode()), Err(KeptTableError::Order { subpartition }));
    }
}
