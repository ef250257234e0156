//! The index of a kept subpartition, and the head of a file of indexes.

use headgate_protocol::{KeptIndex, KeptIndexError, KeptTable, KeptTableError};

/// Checks that an index and a head are encoded as the bytes they were decoded from, with the right
/// checksum or with one that this target computes, as a fuzzer does not find a checksum.
pub fn kept(data: &[u8]) {
    check(data);
    let index = match KeptIndex::decode(data) {
        Err(KeptIndexError::Checksum { got, .. }) => end_of(data, 5, 9, 21).zip(Some(got)),
        _ => None,
    };
    let table = match KeptTable::decode(data) {
        Err(KeptTableError::Checksum { got, .. }) => end_of(data, 6, 10, 12).zip(Some(got)),
        _ => None,
    };
    for (end, crc) in index.into_iter().chain(table) {
        let mut repaired = data.to_vec();
        repaired[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        check(&repaired);
    }
}

fn check(data: &[u8]) {
    match KeptIndex::decode(data) {
        Ok((index, len)) => assert_eq!(index.encode(), data[..len], "{index:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match KeptTable::decode(data) {
        Ok(table) => assert_eq!(table.encode(), data, "{table:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Returns the offset of the checksum behind the entries, whose number is at `count`; the first is
/// at `begin`.
fn end_of(data: &[u8], count: usize, begin: usize, entry_len: usize) -> Option<usize> {
    let number = u32::from_be_bytes(data.get(count..count + 4)?.try_into().ok()?) as usize;
    let end = number.checked_mul(entry_len)?.checked_add(begin)?;
    (end.checked_add(4)? <= data.len()).then_some(end)
}
