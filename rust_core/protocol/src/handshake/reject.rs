//! The message that refuses a peer.

use super::config::VersionRange;
use super::kind::Kind;
use crate::wire::{take_u8, take_u16};

/// The reason sent to a rejected peer; it never says which check failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reject {
    Refused,
    Version(VersionRange),
}

impl Reject {
    const VERSION: u8 = 1;
    const REFUSED: u8 = 2;

    pub(super) fn encode(self) -> Vec<u8> {
        let (reason, versions) = match self {
            Self::Refused => (Self::REFUSED, VersionRange { min: 0, max: 0 }),
            Self::Version(versions) => (Self::VERSION, versions),
        };
        let mut out = Kind::Reject.start();
        out.push(reason);
        out.extend_from_slice(&versions.min.to_be_bytes());
        out.extend_from_slice(&versions.max.to_be_bytes());
        out
    }

    pub(super) fn decode(mut body: &[u8]) -> Self {
        let input = &mut body;
        if take_u8(input) == Self::VERSION {
            Self::Version(VersionRange { min: take_u16(input), max: take_u16(input) })
        } else {
            Self::Refused
        }
    }
}
