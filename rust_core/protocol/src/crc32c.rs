//! CRC32C, the checksum of all frames.

use crc_fast::{CrcAlgorithm, Digest, checksum};

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// Returns the CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    to_u32(checksum(ALGORITHM, bytes))
}

/// A CRC32C over bytes that come in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Starts without bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(ALGORITHM))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the CRC32C of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        to_u32(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

fn to_u32(crc: u64) -> u32 {
    u32::try_from(crc).expect("a CRC of 32 bits")
}
