//! How two processes prove to each other that they hold the secret of the same exchange, before
//! either allocates anything for the other.
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
//! A proof is HMAC-SHA256 over a label of its side and all bytes that went before it in both
//! directions. So is the mask of the connection's frames, over all up to the server's proof. HELLO and REJECT keep their layout in every version, so that versions that do not
//! meet can say so.

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
/// Upper bound of what either side reads before the peer has proved itself, in bytes.
pub const MAX_HANDSHAKE_LEN: usize = 512;

const _: () = assert!(message::HELLO_LEN + message::PROOF_LEN <= MAX_HANDSHAKE_LEN);
const _: () = assert!(message::CHALLENGE_LEN + message::REJECT_LEN <= MAX_HANDSHAKE_LEN);

/// The versions a side speaks, both ends included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VersionRange {
    /// Lowest.
    pub min: u16,
    /// Highest.
    pub max: u16,
}

impl VersionRange {
    /// What this build speaks.
    pub const SUPPORTED: Self = Self { min: VERSION, max: VERSION };

    const fn contains(self, version: u16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The highest version both speak.
    fn agree(self, other: Self) -> Option<u16> {
        let version = self.max.min(other.max);
        (self.contains(version) && other.contains(version)).then_some(version)
    }
}

/// Who we are and what we talk about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HandshakeConfig {
    /// The exchange.
    pub exchange: [u8; 16],
    /// Which run of the exchange.
    pub run: u32,
    /// Which attempt of the run.
    pub epoch: u32,
    /// This process.
    pub process: [u8; 16],
    /// Largest payload this process can send or take, in bytes.
    pub max_segment: u32,
    /// Versions to offer or accept.
    pub versions: VersionRange,
}

/// The process at the other end, once it has proved itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Which process it is; compare it with the one that was to be dialled.
    pub process: [u8; 16],
    /// The version to speak.
    pub version: u16,
    /// Largest payload that both sides allow, in bytes.
    pub max_segment: u32,
    /// What the checksums of this connection's frames are masked with.
    pub mask: FrameMask,
}

/// What the driver does next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Read more bytes.
    NeedMore,
    /// Write these bytes, then go on reading.
    Send(Vec<u8>),
    /// Write these bytes, then begin with frames; what is left of the input is frames already.
    Done {
        /// Who the peer is.
        peer: Peer,
        /// Last bytes of the handshake; may be empty.
        send: Vec<u8>,
    },
}

/// Why a peer is refused. For the local log only: to the peer, and in the text of the error, all of
/// these look alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The peer refused us.
    ByPeer,
    /// It is of another exchange.
    Exchange,
    /// Its proof is wrong.
    Proof,
    /// Our own message came back, or we dialled ourselves.
    Reflected,
    /// It claims the wrong role.
    Role,
    /// It is of another run or epoch.
    StaleAttempt,
}

/// A handshake that failed; the connection must end.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HandshakeError {
    /// The peer speaks something else.
    #[error("the peer does not speak Headgate's protocol")]
    BadMagic,
    /// A message that is not due, or none at all.
    #[error("handshake message {got} arrived where {want} was due")]
    OutOfTurn {
        /// Kind that arrived.
        got: u8,
        /// Kind that was due.
        want: u8,
    },
    /// The handshake has ended, well or badly.
    #[error("the handshake is over")]
    Over,
    /// The peer does not prove what it has to.
    #[error(
        "handshake refused: the two sides do not hold the same exchange, run, epoch and secret"
    )]
    Refused {
        /// Why, for the local log.
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
    /// The peer takes no payload at all.
    #[error("the peer offers segments of 0 bytes")]
    ZeroSegment,
}

impl HandshakeError {
    /// What a server writes before it closes the connection, if the peer is to be told.
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
