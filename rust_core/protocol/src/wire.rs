//! Big-endian fields of messages whose length was checked before.

/// Takes the next `N` bytes.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, rest) =
        bytes.split_first_chunk::<N>().expect("the caller waited for the whole fixed part");
    *bytes = rest;
    *head
}

pub(crate) fn take_u8(bytes: &mut &[u8]) -> u8 {
    let [byte] = take(bytes);
    byte
}

pub(crate) fn take_u16(bytes: &mut &[u8]) -> u16 {
    u16::from_be_bytes(take(bytes))
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> u32 {
    u32::from_be_bytes(take(bytes))
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> u64 {
    u64::from_be_bytes(take(bytes))
}

/// Moves bytes from `input` until `buffer` holds `want`. Returns true once it does.
pub(crate) fn fill(buffer: &mut Vec<u8>, want: usize, input: &mut &[u8]) -> bool {
    let missing = want.saturating_sub(buffer.len());
    let (now, later) = input.split_at(missing.min(input.len()));
    buffer.extend_from_slice(now);
    *input = later;
    buffer.len() >= want
}
