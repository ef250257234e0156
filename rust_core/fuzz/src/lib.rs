//! The fuzz targets, one function each, for the decoders of untrusted bytes.
//!
//! A target takes any bytes and panics if the code under test breaks an invariant. libFuzzer calls the
//! targets through `fuzz_targets/`; `tests/corpus.rs` calls them with every file of `corpus/`.

#![forbid(unsafe_code)]

mod compression;
mod events;
mod frames;
mod handshake;
mod pages;
mod records;

pub use compression::compression;
pub use events::events;
pub use frames::frames;
pub use handshake::{client_session, handshake, server_session};
pub use pages::{page_schemas, pages};
pub use records::records;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, by the name of their folder in `corpus/`.
pub const TARGETS: [(&str, Target); 6] = [
    ("compression", compression),
    ("events", events),
    ("frames", frames),
    ("handshake", handshake),
    ("pages", pages),
    ("records", records),
];

/// Calls a target with each file given as an argument of this program.
///
/// # Errors
/// When a file cannot be read.
pub fn replay(target: Target) -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("{path}");
        target(&std::fs::read(path)?);
    }
    Ok(())
}

/// Cuts `bytes` into pieces of the given sizes, in turn; 0 stands for 256.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().copied().cycle();
    std::iter::from_fn(move || {
        let size = usize::from(sizes.next().unwrap_or(0).wrapping_sub(1)) + 1;
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Splits off the first `N` bytes, filled up with zeros.
fn take<const N: usize>(data: &[u8]) -> ([u8; N], &[u8]) {
    let (head, rest) = data.split_at(N.min(data.len()));
    let mut taken = [0; N];
    taken[..head.len()].copy_from_slice(head);
    (taken, rest)
}
