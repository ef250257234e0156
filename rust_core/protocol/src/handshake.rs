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
//! A proof is an HMAC-SHA256 over a label of its plane and side and all earlier bytes of both
//! directions. The mask of the connection's frames and the session key are HMACs over all bytes up to
//! the server's proof, with labels of their own. HELLO and REJECT keep their layout in every version,
//! so that processes without a common version can report it.
//!
//! Data connections and control connections (the planes) have keys, roles and proofs of their own.

mod client;
mod config;
mod error;
mod key;
mod kind;
mod message;
mod reject;
mod server;

pub use client::ClientHandshake;
pub use config::{HandshakeConfig, Peer, Step, VERSION, VersionRange};
pub use error::{HandshakeError, Refusal};
pub use key::{Key, SessionKey};
pub use kind::MAX_HANDSHAKE_LEN;
pub use server::ServerHandshake;
