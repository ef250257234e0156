//! The producer's totals of a subpartition, sent at its end.

use thiserror::Error;

use crate::wire::take_u64;

/// The amount of data of one subpartition, encoded behind the code of the end-of-partition event.
///
/// | bytes | field |
/// |---|---|
/// | 0..8 | rows |
/// | 8..16 | bytes |
/// | 16..24 | buffers |
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Totals {
    /// Rows or records.
    pub rows: u64,
    /// Payload bytes of the data buffers.
    pub bytes: u64,
    /// Data buffers, empty ones included; events are not counted.
    pub buffers: u64,
}

impl Totals {
    /// Length of the encoded totals, in bytes.
    pub const LEN: usize = 24;

    /// Adds one data buffer of `size` payload bytes.
    pub const fn add_buffer(&mut self, size: u32) {
        self.buffers += 1;
        self.bytes += size as u64;
    }

    /// Encodes the totals.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0..8].copy_from_slice(&self.rows.to_be_bytes());
        out[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        out[16..24].copy_from_slice(&self.buffers.to_be_bytes());
        out
    }

    /// Decodes totals. Bytes after them are ignored, as after any event.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, TotalsError> {
        if bytes.len() < Self::LEN {
            return Err(TotalsError { got: bytes.len() });
        }
        let input = &mut bytes;
        Ok(Self { rows: take_u64(input), bytes: take_u64(input), buffers: take_u64(input) })
    }
}

/// Too few bytes for totals.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("totals need {want} bytes, got {got}", want = Totals::LEN)]
pub struct TotalsError {
    /// Received bytes.
    pub got: usize,
}
