//! The messages of the handshake, and their decoding from a stream.

use super::config::VersionRange;
use super::error::HandshakeError;
use super::kind::{HEAD_LEN, Kind, MAGIC, REJECT_LEN};
use super::reject::Reject;
use crate::wire::{fill, take, take_u8, take_u16, take_u32};

/// Length of a proof, the last field of CHALLENGE and PROOF.
pub(super) const MAC_LEN: usize = 32;

/// First bytes of TLS records that a peer may send to a side that expects none.
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;

/// Collects one message at a time from pieces of any length.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
}

impl Inbox {
    /// Returns the message of kind `want` once it is complete; `None` if it needs more bytes.
    pub(super) fn receive(
        &mut self,
        want: Kind,
        ours: VersionRange,
        input: &mut &[u8],
    ) -> Result<Option<Vec<u8>>, HandshakeError> {
        let headed = fill(&mut self.buffer, HEAD_LEN, input);
        let magic = self.buffer.len().min(MAGIC.len());
        if matches!(self.buffer.first(), Some(&(TLS_ALERT | TLS_HANDSHAKE))) {
            return Err(HandshakeError::Encrypted);
        }
        if self.buffer[..magic] != MAGIC[..magic] {
            return Err(HandshakeError::BadMagic);
        }
        if !headed {
            return Ok(None);
        }
        let got = self.buffer[HEAD_LEN - 1];
        let rejected = got == Kind::Reject as u8;
        if got != want as u8 && !rejected {
            return Err(HandshakeError::OutOfTurn { got, want: want as u8 });
        }
        let len = if rejected { REJECT_LEN } else { want.len() };
        if !fill(&mut self.buffer, len, input) {
            return Ok(None);
        }
        if rejected {
            return Err(HandshakeError::rejected(Reject::decode(&self.buffer[HEAD_LEN..]), ours));
        }
        Ok(Some(std::mem::take(&mut self.buffer)))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hello {
    pub(super) versions: VersionRange,
    pub(super) role: u8,
    pub(super) exchange: [u8; 16],
    pub(super) run: u32,
    pub(super) epoch: u32,
    pub(super) process: [u8; 16],
    pub(super) max_segment: u32,
    pub(super) nonce: [u8; 32],
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Kind::Hello.start();
        out.extend_from_slice(&self.versions.min.to_be_bytes());
        out.extend_from_slice(&self.versions.max.to_be_bytes());
        out.push(self.role);
        out.extend_from_slice(&self.exchange);
        out.extend_from_slice(&self.run.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.process);
        out.extend_from_slice(&self.max_segment.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out
    }

    pub(super) fn decode(message: &[u8]) -> Self {
        let input = &mut &message[HEAD_LEN..];
        Self {
            versions: VersionRange { min: take_u16(input), max: take_u16(input) },
            role: take_u8(input),
            exchange: take(input),
            run: take_u32(input),
            epoch: take_u32(input),
            process: take(input),
            max_segment: take_u32(input),
            nonce: take(input),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge {
    pub(super) version: u16,
    pub(super) process: [u8; 16],
    pub(super) max_segment: u32,
    pub(super) nonce: [u8; 32],
}

impl Challenge {
    /// Encodes the message without its proof, which covers these bytes.
    pub(super) fn encode_unproved(&self) -> Vec<u8> {
        let mut out = Kind::Challenge.start();
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.process);
        out.extend_from_slice(&self.max_segment.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out
    }

    pub(super) fn decode(message: &[u8]) -> (Self, [u8; MAC_LEN]) {
        let input = &mut &message[HEAD_LEN..];
        let challenge = Self {
            version: take_u16(input),
            process: take(input),
            max_segment: take_u32(input),
            nonce: take(input),
        };
        (challenge, take(input))
    }
}

pub(super) fn encode_proof(proof: &[u8; MAC_LEN]) -> Vec<u8> {
    let mut out = Kind::Proof.start();
    out.extend_from_slice(proof);
    out
}

pub(super) fn decode_proof(message: &[u8]) -> [u8; MAC_LEN] {
    take(&mut &message[HEAD_LEN..])
}

pub(super) fn encode_accept() -> Vec<u8> {
    Kind::Accept.start()
}
