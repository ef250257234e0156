//! The fuzz targets, one function each, for the decoders of untrusted bytes.
//!
//! A target takes any bytes and panics if the code under test breaks an invariant. libFuzzer calls the
//! targets through `fuzz_targets/`; `tests/corpus.rs` calls them with every file of `corpus/`.

#![forbid(unsafe_code)]

mod channel_state;
mod compression;
mod events;
mod frames;
mod handshake;
mod input;
mod kept;
mod pages;
mod records;
mod regions;

pub use channel_state::channel_state;
pub use compression::compression;
pub use events::events;
pub use frames::frames;
pub use handshake::{client_session, handshake, server_session};
pub use kept::kept;
pub use pages::{page_schemas, pages};
pub use records::records;
pub use regions::regions;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, by the name of their folder in `corpus/`.
pub const TARGETS: [(&str, Target); 9] = [
    ("channel_state", channel_state),
    ("compression", compression),
    ("events", events),
    ("frames", frames),
    ("handshake", handshake),
    ("kept", kept),
    ("pages", pages),
    ("records", records),
    ("regions", regions),
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
