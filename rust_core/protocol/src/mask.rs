//! The mask that binds frames to their connection.

/// The mask of one connection's checksums, in both directions.
///
/// Both ends derive it from their handshake, so that a frame of another connection fails its
/// checksum even if channel, sequence and size are equal. It is neither a secret nor a signature.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FrameMask(u32);

impl FrameMask {
    /// Creates a mask from its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// Returns the masked CRC32C, as it is sent.
    #[must_use]
    pub const fn apply(self, crc: u32) -> u32 {
        crc ^ self.0
    }
}
