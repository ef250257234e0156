//! What is done with bytes that nobody vouches for: one function per target.
//!
//! Each takes any bytes, and panics if what they go through breaks a promise. libFuzzer calls them through
//! `fuzz_targets/`; `tests/corpus.rs` calls them with every file of `corpus/`.

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

/// One target.
pub type Target = fn(&[u8]);

/// All targets by the names of their folders in `corpus/`.
pub const TARGETS: [(&str, Target); 6] = [
    ("compression", compression),
    ("events", events),
    ("frames", frames),
    ("handshake", handshake),
    ("pages", pages),
    ("records", records),
];

/// Calls a target with each file that is an argument of this program.
///
/// # Errors
/// A file that cannot be read.
pub fn replay(target: Target) -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("{path}");
        target(&std::fs::read(path)?);
    }
    Ok(())
}

/// Pieces of `bytes`, of lengths that `sizes` say in turn; 0 stands for 256.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().copied().cycle();
    std::iter::from_fn(move || {
        let size = usize::from(sizes.next().unwrap_or(0).wrapping_sub(1)) + 1;
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The first `N` bytes, zeros where there are none, and the rest.
fn take<const N: usize>(data: &[u8]) -> ([u8; N], &[u8]) {
    let (head, rest) = data.split_at(N.min(data.len()));
    let mut taken = [0; N];
    taken[..head.len()].copy_from_slice(head);
    (taken, rest)
}
