//! The failures of a handshake.

use thiserror::Error;

use super::config::VersionRange;
use super::reject::Reject;

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
    /// The peer encrypts the connection, and this side does not.
    #[error("the peer speaks TLS and this side does not: give both processes the same tls option")]
    Encrypted,
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
    /// Returns the error for a peer's REJECT.
    pub(super) const fn rejected(reject: Reject, ours: VersionRange) -> Self {
        match reject {
            Reject::Refused => Self::Refused { cause: Refusal::ByPeer },
            Reject::Version(theirs) => Self::Version { ours, theirs },
        }
    }

    /// Returns the message that a server writes before it closes the connection, if any.
    #[must_use]
    pub fn rejection(&self) -> Option<Vec<u8>> {
        match self {
            Self::Version { ours, .. } => Some(Reject::Version(*ours).encode()),
            Self::Refused { cause: Refusal::ByPeer } => None,
            Self::Encrypted | Self::Refused { .. } | Self::ZeroSegment => {
                Some(Reject::Refused.encode())
            }
            Self::BadMagic | Self::OutOfTurn { .. } | Self::Over => None,
        }
    }
}
