//! The guarantees of the protocol, by concept.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../support/exhaust.rs"]
mod exhaust;

mod bits;
mod budget;
mod checksum;
mod credit;
mod data_type;
mod debloat;
mod decoder;
mod deque;
mod frames;
mod golden;
mod handshake;
mod heartbeat;
mod interleavings;
mod receive;
mod segment_queue;
mod send_queue;

/// Bytes of a hexadecimal text; blanks are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}
