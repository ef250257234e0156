//! Cutting an input into its parts.

/// Cuts `bytes` into pieces of the given sizes, in turn; 0 stands for 256.
pub(crate) fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().copied().cycle();
    std::iter::from_fn(move || {
        let size = usize::from(sizes.next().unwrap_or(0).wrapping_sub(1)) + 1;
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Splits off the first `N` bytes, filled up with zeros.
pub(crate) fn take<const N: usize>(data: &[u8]) -> ([u8; N], &[u8]) {
    let (head, rest) = data.split_at(N.min(data.len()));
    let mut taken = [0; N];
    taken[..head.len()].copy_from_slice(head);
    (taken, rest)
}
