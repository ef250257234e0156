//! Errors that cross connections: those of a connection here, and the reasons of ours for a consumer elsewhere.
//!
//! Decision: ADR 0046.

use std::io::ErrorKind;

use headgate_net::{ConnectionError, Reason, Refusal};

use crate::descriptors;
use crate::error::ExchangeError;
use crate::random;

impl From<ConnectionError> for ExchangeError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Aborted(text) => Self::Aborted(text),
            ConnectionError::BufferTooLarge { size, limit } => Self::BufferTooLarge { size, limit },
            ConnectionError::Connect { peer, source } => {
                let doing = format_args!("cannot connect to {peer}");
                let detail = source.to_string();
                descriptors::exhausted(doing, &source).unwrap_or(Self::Connect { peer, detail })
            }
            ConnectionError::Event(text) => Self::Event(text),
            ConnectionError::Handshake { peer, detail } => Self::Handshake { peer, detail },
            ConnectionError::Integrity { channel, detail } => Self::Integrity { channel, detail },
            ConnectionError::LinkLost { peer, detail } => Self::LinkLost { peer, detail },
            ConnectionError::PartitionNotFound { peer, detail } => {
                Self::PartitionNotFound { peer, detail }
            }
            ConnectionError::PeerLost { peer, detail } => Self::PeerLost { peer, detail },
            ConnectionError::ProducerFailed(text) => Self::ProducerFailed(text),
            ConnectionError::Protocol { peer, detail } => Self::Protocol { peer, detail },
            ConnectionError::Random(source) => random::refused(source),
            ConnectionError::SchemaRefused { peer, detail } => Self::SchemaRefused { peer, detail },
            ConnectionError::TaskEvent(text) => Self::TaskEvent(text),
            ConnectionError::Tls { peer, detail } => Self::Tls { peer, detail },
            ConnectionError::Version { peer, detail } => Self::Version { peer, detail },
        }
    }
}

/// Returns the reason that a consumer in another process is told.
pub(crate) fn refusal_of(error: &ExchangeError) -> Refusal {
    let (reason, text) = match error {
        ExchangeError::PartitionNotFound { detail, .. } => {
            (Reason::PartitionNotFound, detail.clone())
        }
        ExchangeError::KeptFile { source, .. } if source.kind() == ErrorKind::NotFound => {
            (Reason::PartitionNotFound, error.to_string())
        }
        ExchangeError::Integrity { .. } => (Reason::Integrity, error.to_string()),
        ExchangeError::TaskEvent(text) => (Reason::TaskEvent, text.clone()),
        ExchangeError::ProducerFailed(text) | ExchangeError::Aborted(text) => {
            (Reason::ProducerFailed, text.clone())
        }
        other => (Reason::ProducerFailed, other.to_string()),
    };
    Refusal { reason, text }
}
