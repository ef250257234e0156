//! The kinds of message and their lengths.

/// Upper bound of the bytes that either side reads before the peer is authenticated.
pub const MAX_HANDSHAKE_LEN: usize = 512;
pub(super) const MAGIC: [u8; 4] = *b"HDGT";
pub(super) const HEAD_LEN: usize = 5;
const HELLO_LEN: usize = 86;
const CHALLENGE_LEN: usize = 91;
const PROOF_LEN: usize = 37;
pub(super) const REJECT_LEN: usize = 10;

const _: () = assert!(HELLO_LEN + PROOF_LEN <= MAX_HANDSHAKE_LEN);
const _: () = assert!(CHALLENGE_LEN + REJECT_LEN <= MAX_HANDSHAKE_LEN);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Accept = 4,
    Reject = 5,
}

impl Kind {
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Hello => HELLO_LEN,
            Self::Challenge => CHALLENGE_LEN,
            Self::Proof => PROOF_LEN,
            Self::Accept => HEAD_LEN,
            Self::Reject => REJECT_LEN,
        }
    }

    /// Begins a message of this kind.
    pub(super) fn start(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(&MAGIC);
        out.push(self as u8);
        out
    }
}
