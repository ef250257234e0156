//! The handshake: two processes prove to each other that they hold the secret of the same exchange,
//! before either allocates anything for the other.
//!
//! The consumer dials and is the client. All integers are big-endian; every message begins with the
//! magic `HDGT` and one byte for its kind, and has a fixed length.
//!
//! | kind | message | dir | body | total |
//! |---|---|---|---|---|
//! | 1 | HELLO | c->s | lowest version 2, highest version 2, role 1, exchange 16, run 4, epoch 4, process 16, segment 4, nonce 32 | 86 |
//! | 2 | CHALLENGE | s->c | version 2, process 16, segment 4, nonce 32, server proof 32 | 91 |
//! | 3 | PROOF | c->s | client proof 32 | 37 |
//! | 4 | ACCEPT | s->c | | 5 |
//! | 5 | REJECT | s->c | reason 1, lowest version 2, highest version 2 | 10 |
//!
//! A proof is an HMAC-SHA256 over a label of its side and all earlier bytes of both directions. The
//! mask of the connection's frames is one over all bytes up to the server's proof, with a label of its
//! own. HELLO and REJECT keep their layout in every version, so that processes without a common
//! version can report it.

mod client;
mod key;
mod message;
mod server;

use thiserror::Error;

pub use client::ClientHandshake;
pub use key::Key;
pub use server::ServerHandshake;

use message::Reject;

use crate::FrameMask;

/// The version of handshake and frames that this build speaks.
pub const VERSION: u16 = 2;
/// Upper bound of the bytes that either side reads before the peer is authenticated.
pub const MAX_HANDSHAKE_LEN: usize = 512;

const _: () = assert!(message::HELLO_LEN + message::PROOF_LEN <= MAX_HANDSHAKE_LEN);
const _: () = assert!(message::CHALLENGE_LEN + message::REJECT_LEN <= MAX_HANDSHAKE_LEN);

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

    const fn contains(self, version: u16) -> bool {
        self.min <= version && version <= self.max
    }

    /// Returns the highest version that both speak.
    fn agree(self, other: Self) -> Option<u16> {
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

/// The reason for refusing a peer. For the local log only: the peer and the error's text see no
/// difference between them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The peer refused us.
    ByPeer,
    /// It belongs to another exchange.
    Exchange,
    /// Its proof is wrong.
    Proof,
    /// This process received its own message, or dialled itself.
    Reflected,
    /// It claims the wrong role.
    Role,
    /// It belongs to another run or epoch.
    StaleAttempt,
}

/// A failed handshake. The connection must be closed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HandshakeError {
    /// The peer speaks another protocol.
    #[error("the peer does not speak Headgate's protocol")]
    BadMagic,
    /// An unexpected message, or an unknown one.
    #[error("handshake message {got} arrived, expected {want}")]
    OutOfTurn {
        /// Kind that arrived.
        got: u8,
        /// Expected kind.
        want: u8,
    },
    /// The handshake is complete or has failed.
    #[error("the handshake is over")]
    Over,
    /// The peer is not authenticated.
    #[error(
        "handshake refused: the two sides do not hold the same exchange, run, epoch and secret"
    )]
    Refused {
        /// The reason, for the local log.
        cause: Refusal,
    },
    /// The two sides have no version in common.
    #[error(
        "no common protocol version: here {}-{}, there {}-{}",
        ours.min, ours.max, theirs.min, theirs.max
    )]
    Version {
        /// Versions of this side.
        ours: VersionRange,
        /// Versions of the peer.
        theirs: VersionRange,
    },
    /// The peer offers segments of 0 bytes.
    #[error("the peer offers segments of 0 bytes")]
    ZeroSegment,
}

impl HandshakeError {
    /// Returns the message that a server writes before it closes the connection, if any.
    #[must_use]
    pub fn rejection(&self) -> Option<Vec<u8>> {
        match self {
            Self::Version { ours, .. } => Some(Reject::Version(*ours).encode()),
            Self::Refused { cause: Refusal::ByPeer } => None,
            Self::Refused { .. } | Self::ZeroSegment => Some(Reject::Refused.encode()),
            Self::BadMagic | Self::OutOfTurn { .. } | Self::Over => None,
        }
    }
}
