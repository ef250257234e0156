//! TLS 1.3 for connections between hosts.
//!
//! Without certificates of the deployment, each environment makes a key pair and a certificate of its
//! own that nobody checks. The handshake of the exchange covers the TLS session (its exporter, RFC 9266), so
//! one who stands between two processes would have to know the exchange's secret.
//!
//! Decision: ADR 0031.

#![forbid(unsafe_code)]

mod certificates;
mod configs;
mod control_session;
mod endpoint;
mod error;
mod reloaded;
mod stream;
mod verifiers;

pub use certificates::{TlsFiles, self_signed_certificate};
pub use control_session::TlsSession;
pub use endpoint::Tls;
pub use error::{TlsFailure, TlsOptionsError};
pub use stream::TlsStream;
