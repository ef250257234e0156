//! The index of a kept subpartition.

use headgate_protocol::{KeptIndex, KeptIndexError};

/// Checks that an index is encoded as the bytes it was decoded from, with the right checksum or with
/// one that this target computes, as a fuzzer does not find a checksum.
pub fn kept(data: &[u8]) {
    check(data);
    let mut repaired = data.to_vec();
    if let Err(KeptIndexError::Checksum { got, .. }) = KeptIndex::decode(data)
        && let Some(end) = end_of(data)
    {
        repaired[end..end + 4].copy_from_slice(&got.to_be_bytes());
        check(&repaired);
    }
}

fn check(data: &[u8]) {
    match KeptIndex::decode(data) {
        Ok((index, len)) => assert_eq!(index.encode(), data[..len], "{index:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Returns the offset of the checksum of an index with the declared number of blocks.
fn end_of(data: &[u8]) -> Option<usize> {
    let count = u32::from_be_bytes(data.get(5..9)?.try_into().ok()?) as usize;
    let end = count.checked_mul(21)?.checked_add(9)?;
    (end.checked_add(4)? <= data.len()).then_some(end)
}
