//! CRC32C over a buffer's header and payload.

use crc_fast::{CrcAlgorithm, Digest};
use headgate_protocol::BufferHeader;

/// A checksum that grows with the payload as it arrives.
pub(crate) struct Checksum(Digest);

impl Checksum {
    pub(crate) fn start(header: &BufferHeader) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&header.prefix_for_crc());
        Self(digest)
    }

    pub(crate) fn update(&mut self, payload: &[u8]) {
        self.0.update(payload);
    }

    pub(crate) fn value(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("a 32-bit CRC")
    }
}

pub(crate) fn of(header: &BufferHeader, payload: &[u8]) -> u32 {
    let mut checksum = Checksum::start(header);
    checksum.update(payload);
    checksum.value()
}

#[cfg(test)]
mod tests {
    use crc_fast::{CrcAlgorithm, checksum};

    #[test]
    fn it_is_crc32c() {
        assert_eq!(checksum(CrcAlgorithm::Crc32Iscsi, b"123456789"), 0xE306_9283);
    }
}
