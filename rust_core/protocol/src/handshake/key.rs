//! The key of one attempt and the proofs made with it.

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
    /// HKDF-SHA256 of the exchange's secret, without salt, for
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

    /// Compares in constant time.
    pub(super) fn verify(&self, prover: Prover, transcript: &[u8], proof: &[u8; 32]) -> bool {
        self.mac(prover.label(), transcript).verify_slice(proof).is_ok()
    }

    /// The mask of the connection whose handshake this was, up to the server's proof.
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

/// The label under which the mask of a connection's frames is made.
const FRAMES: &[u8] = b"headgate frame mask\0";

/// Whose proof it is: a proof of one side is never one of the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prover {
    Client,
    Server,
}

impl Prover {
    /// Names the link too, so that a proof made for one kind of link is worth nothing on another.
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"headgate client proof, link tcp, tls none\0",
            Self::Server => b"headgate server proof, link tcp, tls none\0",
        }
    }
}
