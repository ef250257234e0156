//! The key of one attempt, and the proofs made with it.

use std::fmt;
use std::sync::Arc;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::FrameMask;

/// The key of one (exchange, run, epoch). Clones share one copy, which is zeroed on drop.
#[derive(Clone)]
pub struct Key(Arc<Zeroizing<[u8; 32]>>);

impl Key {
    /// Derives the key from the exchange's secret by HKDF-SHA256, without salt and with the info
    /// `"headgate v1" || exchange || run || epoch`.
    #[must_use]
    pub fn derive(secret: &[u8; 32], exchange: &[u8; 16], run: u32, epoch: u32) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        let info: [&[u8]; 4] = [b"headgate v1", exchange, &run.to_be_bytes(), &epoch.to_be_bytes()];
        Hkdf::<Sha256>::new(None, secret)
            .expand_multi_info(&info, key.as_mut_slice())
            .expect("32 bytes are far below the limit of HKDF-SHA256");
        Self(Arc::new(key))
    }

    pub(super) fn prove(&self, prover: Prover, transcript: &[u8]) -> [u8; 32] {
        self.mac(prover.label(), transcript).finalize().into_bytes().into()
    }

    /// Checks a proof, in constant time.
    pub(super) fn verify(&self, prover: Prover, transcript: &[u8], proof: &[u8; 32]) -> bool {
        self.mac(prover.label(), transcript).verify_slice(proof).is_ok()
    }

    /// Derives the mask of a connection's frames from its handshake up to the server's proof.
    pub(super) fn mask(&self, transcript: &[u8]) -> FrameMask {
        let bytes: [u8; 32] = self.mac(FRAMES, transcript).finalize().into_bytes().into();
        FrameMask::new([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn mac(&self, label: &[u8], transcript: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_slice())
            .expect("HMAC takes keys of any length");
        mac.update(label);
        mac.update(transcript);
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The label of the mask of a connection's frames.
const FRAMES: &[u8] = b"headgate frame mask\0";

/// The side that makes a proof. Its label makes the proof invalid for the other side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prover {
    Client,
    Server,
}

impl Prover {
    /// Contains the kind of link, so that a proof for one kind is invalid on another.
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"headgate client proof, link tcp, tls none\0",
            Self::Server => b"headgate server proof, link tcp, tls none\0",
        }
    }
}
