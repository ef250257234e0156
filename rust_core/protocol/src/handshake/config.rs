//! The identity of a process in the handshake, and the handshake's result.

use super::key::SessionKey;
use crate::FrameMask;

/// The version of handshake and frames that this build speaks.
pub const VERSION: u16 = 2;

/// The versions that a side speaks, inclusive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VersionRange {
    /// Lowest.
    pub min: u16,
    /// Highest.
    pub max: u16,
}

impl VersionRange {
    /// The versions of this build.
    pub const SUPPORTED: Self = Self { min: VERSION, max: VERSION };

    pub(super) const fn contains(self, version: u16) -> bool {
        self.min <= version && version <= self.max
    }

    /// Returns the highest version that both speak.
    pub(super) fn agree(self, other: Self) -> Option<u16> {
        let version = self.max.min(other.max);
        (self.contains(version) && other.contains(version)).then_some(version)
    }
}

/// The identity of this process and of its exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HandshakeConfig {
    /// The exchange.
    pub exchange: [u8; 16],
    /// Number of the run of the exchange.
    pub run: u32,
    /// Number of the attempt of the run.
    pub epoch: u32,
    /// Id of this process.
    pub process: [u8; 16],
    /// Largest payload that this process can send or receive, in bytes.
    pub max_segment: u32,
    /// Versions to offer or accept.
    pub versions: VersionRange,
}

/// The authenticated process at the other end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Id of the process. The driver compares it with the id that it dialled.
    pub process: [u8; 16],
    /// The version to speak.
    pub version: u16,
    /// Largest payload that both sides allow, in bytes.
    pub max_segment: u32,
    /// Mask of the checksums of this connection's frames.
    pub mask: FrameMask,
    /// Known to the two ends of this connection only.
    pub session: SessionKey,
}

/// The driver's next step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Read more bytes.
    NeedMore,
    /// Write these bytes, then go on reading.
    Send(Vec<u8>),
    /// Write these bytes, then begin with frames. The rest of the input is frames.
    Done {
        /// The peer.
        peer: Peer,
        /// Last bytes of the handshake; may be empty.
        send: Vec<u8>,
    },
}
