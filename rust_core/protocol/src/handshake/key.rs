//! The keys of connections and the proofs made with them.

use std::fmt;
use std::sync::Arc;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::FrameMask;

/// Role of the side that dials a data connection.
const ROLE_CONSUMER: u8 = 1;
/// Role of the side that dials a control connection.
const ROLE_WORKER: u8 = 2;

/// The key of the data connections of one (exchange, run, epoch), or of the control connections of
/// one exchange. Clones share one copy, which is zeroed on drop.
#[derive(Clone)]
pub struct Key {
    bytes: Arc<Zeroizing<[u8; 32]>>,
    plane: Plane,
    /// Known to the two ends of one encrypted stream only; every proof covers it.
    binding: Option<[u8; 32]>,
}

/// The kind of connection that a key is for. Keys, roles and proofs of one plane are worthless on
/// the other.
#[derive(Clone, Copy)]
enum Plane {
    Control,
    Data,
}

impl Key {
    /// Derives the key of data connections from the exchange's secret by HKDF-SHA256, without salt and
    /// with the info
    /// `"headgate v1" || exchange || run || epoch`.
    #[must_use]
    pub fn derive(secret: &[u8; 32], exchange: &[u8; 16], run: u32, epoch: u32) -> Self {
        let info: [&[u8]; 4] = [b"headgate v1", exchange, &run.to_be_bytes(), &epoch.to_be_bytes()];
        Self::expand(Plane::Data, secret, &info)
    }

    /// Derives the key of control connections in the same way, with the info
    /// `"headgate control v2" || exchange`.
    #[must_use]
    pub fn control(secret: &[u8; 32], exchange: &[u8; 16]) -> Self {
        Self::expand(Plane::Control, secret, &[b"headgate control v2", exchange])
    }

    fn expand(plane: Plane, secret: &[u8; 32], info: &[&[u8]]) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, secret)
            .expand_multi_info(info, key.as_mut_slice())
            .expect("32 bytes are far below the limit of HKDF-SHA256");
        Self { bytes: Arc::new(key), plane, binding: None }
    }

    /// The role that a client names in its HELLO.
    pub(super) const fn client_role(&self) -> u8 {
        match self.plane {
            Plane::Data => ROLE_CONSUMER,
            Plane::Control => ROLE_WORKER,
        }
    }

    /// Makes every proof cover the encrypted stream below; `None` for a stream in the clear.
    pub(super) const fn bind(&mut self, binding: Option<[u8; 32]>) {
        self.binding = binding;
    }

    pub(super) fn prove(&self, prover: Prover, transcript: &[u8]) -> [u8; 32] {
        self.proof(prover, transcript).finalize().into_bytes().into()
    }

    /// Checks a proof, in constant time.
    pub(super) fn verify(&self, prover: Prover, transcript: &[u8], proof: &[u8; 32]) -> bool {
        self.proof(prover, transcript).verify_slice(proof).is_ok()
    }

    fn proof(&self, prover: Prover, transcript: &[u8]) -> Hmac<Sha256> {
        let label = prover.label(self.plane);
        match &self.binding {
            None => self.mac(&[label, b", link tcp, tls none\0", transcript]),
            Some(binding) => self.mac(&[label, b", link tcp, tls exporter\0", binding, transcript]),
        }
    }

    /// Derives the mask of a connection's frames from its handshake up to the server's proof.
    pub(super) fn mask(&self, transcript: &[u8]) -> FrameMask {
        let bytes: [u8; 32] = self.mac(&[FRAMES, transcript]).finalize().into_bytes().into();
        FrameMask::new([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Derives the session key of a connection from its handshake up to the server's proof.
    pub(super) fn session(&self, transcript: &[u8]) -> SessionKey {
        SessionKey(self.mac(&[SESSION, transcript]).finalize().into_bytes().into())
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.bytes.as_slice())
            .expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// A key that only the two ends of one connection know.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// Returns the bytes of the key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The label of the mask of a connection's frames.
const FRAMES: &[u8] = b"headgate frame mask\0";
/// The label of the session key of a connection.
const SESSION: &[u8] = b"headgate session\0";

/// The side that makes a proof. Its label makes the proof invalid for the other side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prover {
    Client,
    Server,
}

impl Prover {
    /// The label names the plane too, and the link follows it, so that a proof for one kind of connection
    /// is worthless on another.
    const fn label(self, plane: Plane) -> &'static [u8] {
        match (self, plane) {
            (Self::Client, Plane::Control) => b"headgate client proof, control",
            (Self::Server, Plane::Control) => b"headgate server proof, control",
            (Self::Client, Plane::Data) => b"headgate client proof",
            (Self::Server, Plane::Data) => b"headgate server proof",
        }
    }
}
