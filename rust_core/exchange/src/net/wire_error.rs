//! Errors on the wire: a code and a text in an Error frame.

use std::io::ErrorKind;

use headgate_protocol::{ChannelId, ErrorFrame, Frame};

use crate::error::ExchangeError;

const PROTOCOL: u16 = 3004;
const INTEGRITY: u16 = 3005;
const PARTITION_NOT_FOUND: u16 = 3006;
const TASK_EVENT: u16 = 3009;
const SCHEMA_MISMATCH: u16 = 4003;
const PRODUCER_FAILED: u16 = 6002;

pub(crate) fn schema_mismatch(channel: ChannelId) -> Frame {
    let text = "the consumer expects another schema than the producer writes";
    Frame::Error(ErrorFrame::new(Some(channel), SCHEMA_MISMATCH, text))
}

/// Returns the frame that tells a consumer why its channel ends.
pub(crate) fn encode(channel: ChannelId, error: &ExchangeError) -> Frame {
    let (code, text) = match error {
        ExchangeError::PartitionNotFound { detail, .. } => (PARTITION_NOT_FOUND, detail.clone()),
        ExchangeError::KeptFile { source, .. } if source.kind() == ErrorKind::NotFound => {
            (PARTITION_NOT_FOUND, error.to_string())
        }
        ExchangeError::Integrity { .. } => (INTEGRITY, error.to_string()),
        ExchangeError::TaskEvent(text) => (TASK_EVENT, text.clone()),
        ExchangeError::ProducerFailed(text) | ExchangeError::Aborted(text) => {
            (PRODUCER_FAILED, text.clone())
        }
        other => (PRODUCER_FAILED, other.to_string()),
    };
    Frame::Error(ErrorFrame::new(Some(channel), code, text))
}

/// Returns the last frame of a connection on which the consumer broke the protocol. Without it the
/// consumer would take the producer for lost.
pub(crate) fn farewell(error: &ExchangeError) -> Frame {
    let (code, text) = match error {
        ExchangeError::Integrity { detail, .. } => (INTEGRITY, detail),
        ExchangeError::Protocol { detail, .. } => (PROTOCOL, detail),
        other => return Frame::Error(ErrorFrame::new(None, PRODUCER_FAILED, other.to_string())),
    };
    Frame::Error(ErrorFrame::new(
        None,
        code,
        format!("the producer refused bytes of this consumer: {text}"),
    ))
}

/// Returns the error that a consumer raises for an Error frame.
pub(crate) fn decode(frame: &ErrorFrame, peer: &str) -> ExchangeError {
    let detail = frame.text().to_owned();
    match frame.code() {
        PARTITION_NOT_FOUND => ExchangeError::PartitionNotFound { peer: peer.to_owned(), detail },
        TASK_EVENT => ExchangeError::TaskEvent(format!("{peer}: {detail}")),
        SCHEMA_MISMATCH => ExchangeError::SchemaRefused { peer: peer.to_owned(), detail },
        INTEGRITY => ExchangeError::Integrity { channel: peer.to_owned(), detail },
        PROTOCOL => ExchangeError::Protocol { peer: peer.to_owned(), detail },
        _ => ExchangeError::ProducerFailed(detail),
    }
}

/// Returns true if the frame only refuses a task event, so that the channel is still served.
pub(crate) fn is_refused_event(frame: &ErrorFrame) -> bool {
    frame.code() == TASK_EVENT
}
