//! Errors on the wire: a code and a text in an Error frame.

use headgate_protocol::{ChannelId, ErrorFrame, Frame};

use crate::error::ConnectionError;
use crate::partitions::{Reason, Refusal};

const PROTOCOL: u16 = 3004;
const INTEGRITY: u16 = 3005;
const PARTITION_NOT_FOUND: u16 = 3006;
const TASK_EVENT: u16 = 3009;
const SCHEMA_MISMATCH: u16 = 4003;
const PRODUCER_FAILED: u16 = 6002;

/// Returns the frame that tells a consumer why its channel ends.
pub(crate) fn encode(channel: ChannelId, refusal: Refusal) -> Frame {
    let code = match refusal.reason {
        Reason::PartitionNotFound => PARTITION_NOT_FOUND,
        Reason::Integrity => INTEGRITY,
        Reason::TaskEvent => TASK_EVENT,
        Reason::SchemaMismatch => SCHEMA_MISMATCH,
        Reason::ProducerFailed => PRODUCER_FAILED,
    };
    Frame::Error(ErrorFrame::new(Some(channel), code, refusal.text))
}

/// Returns the last frame of a connection on which the consumer broke the protocol. Without it the
/// consumer would take the producer for lost.
pub(crate) fn farewell(error: &ConnectionError) -> Frame {
    let (code, text) = match error {
        ConnectionError::Integrity { detail, .. } => (INTEGRITY, detail),
        ConnectionError::Protocol { detail, .. } => (PROTOCOL, detail),
        other => return Frame::Error(ErrorFrame::new(None, PRODUCER_FAILED, other.to_string())),
    };
    Frame::Error(ErrorFrame::new(
        None,
        code,
        format!("the producer refused bytes of this consumer: {text}"),
    ))
}

/// Returns the error that a consumer raises for an Error frame.
pub(crate) fn decode(frame: &ErrorFrame, peer: &str) -> ConnectionError {
    let (peer, detail) = (peer.to_owned(), frame.text().to_owned());
    match frame.code() {
        PARTITION_NOT_FOUND => ConnectionError::PartitionNotFound { peer, detail },
        TASK_EVENT => ConnectionError::TaskEvent(format!("{peer}: {detail}")),
        SCHEMA_MISMATCH => ConnectionError::SchemaRefused { peer, detail },
        INTEGRITY => ConnectionError::Integrity { channel: peer, detail },
        PROTOCOL => ConnectionError::Protocol { peer, detail },
        _ => ConnectionError::ProducerFailed(detail),
    }
}

/// Returns true if the frame only refuses a task event, so that the channel is still served.
pub(crate) fn is_refused_event(frame: &ErrorFrame) -> bool {
    frame.code() == TASK_EVENT
}
