//! What ties a frame to its connection.

/// What the checksums of one connection are masked with, in both directions.
///
/// Both ends make it of their handshake, so that a frame of any other connection does not verify,
/// however alike its channel, place and size are. It is no secret and no signature.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FrameMask(u32);

impl FrameMask {
    /// The mask of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// The CRC32C of a frame as it stands on the wire.
    #[must_use]
    pub const fn apply(self, crc: u32) -> u32 {
        crc ^ self.0
    }
}
