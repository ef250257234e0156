//! The errors of TLS: of its options, and of a stream.

use std::io;

use rustls::InvalidMessage;

pub(crate) type Result<T, E = TlsOptionsError> = std::result::Result<T, E>;

/// The options of TLS cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct TlsOptionsError(pub(crate) String);

/// The rule of TLS that a peer broke.
#[derive(Clone, Debug)]
pub struct TlsFailure {
    /// The rule.
    pub detail: String,
    /// True if the peer sent something else than records of TLS.
    pub is_no_tls: bool,
}

impl TlsFailure {
    /// Returns the rule that an error of a stream is about; `None` if the socket failed.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let detail = match error {
            rustls::Error::General(text) => text.clone(),
            _ => error.to_string(),
        };
        let no_tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        Some(Self { detail, is_no_tls: *error == no_tls })
    }
}
