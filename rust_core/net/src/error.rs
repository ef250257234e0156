//! The end of a connection, or of one channel on it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The end of a connection, or of one channel on it. Cheap to clone: all channels of a connection end with one cause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectionError {
    /// This process ended it, with this cause.
    #[error("{0}")]
    Aborted(String),
    /// A buffer does not fit the consumer's segments.
    #[error(
        "a buffer of {size} bytes does not fit the consumer's segments of {limit} bytes: \
         use the same segment_size in both processes"
    )]
    BufferTooLarge {
        /// Bytes of the buffer.
        size: usize,
        /// Bytes of a segment of the consumer.
        limit: usize,
    },
    /// No connection to a peer could be opened.
    #[error("cannot connect to {peer}: {source}")]
    Connect {
        /// The address of the peer.
        peer: SocketAddr,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// An event cannot be decoded.
    #[error("{0}")]
    Event(String),
    /// The peer does not know our secret, or belongs to another exchange, run or epoch.
    #[error("handshake with {peer} failed: {detail}")]
    Handshake {
        /// The address of the peer.
        peer: SocketAddr,
        /// The failed step. Never says why a proof was wrong.
        detail: String,
    },
    /// Bytes, order or counts differ from those that were sent.
    #[error("integrity check failed on {channel}: {detail}")]
    Integrity {
        /// Name of the channel.
        channel: String,
        /// The check that failed.
        detail: String,
    },
    /// The peer's host does not answer any more.
    #[error("lost {peer}: {detail}")]
    LinkLost {
        /// The peer.
        peer: String,
        /// The operating system's error.
        detail: String,
    },
    /// The peer does not have the partition.
    #[error("{peer}: {detail}")]
    PartitionNotFound {
        /// The process that was asked.
        peer: String,
        /// The partition, and why it was not found.
        detail: String,
    },
    /// The peer closed its connection without a GOODBYE message.
    #[error("lost {peer}: {detail}")]
    PeerLost {
        /// The peer.
        peer: String,
        /// The event that showed the loss.
        detail: String,
    },
    /// The producer failed, with the message of its cause.
    #[error("the producer failed: {0}")]
    ProducerFailed(String),
    /// The peer broke the protocol.
    #[error("protocol violation by {peer}: {detail}")]
    Protocol {
        /// The peer.
        peer: String,
        /// The rule that it broke.
        detail: String,
    },
    /// The operating system has no random numbers for the handshake.
    #[error("no random numbers: {0}")]
    Random(Arc<io::Error>),
    /// The consumer expects another schema than the producer writes.
    #[error("{peer}: {detail}")]
    SchemaRefused {
        /// The peer.
        peer: String,
        /// Its message.
        detail: String,
    },
    /// A task event could not be sent, or the producer does not take it.
    #[error("{0}")]
    TaskEvent(String),
    /// A connection could not be encrypted, or an encrypted one was damaged.
    #[error("TLS with {peer} failed: {detail}")]
    Tls {
        /// The address of the peer.
        peer: SocketAddr,
        /// The rule that was broken.
        detail: String,
    },
    /// The peer speaks another version of the protocol.
    #[error("version mismatch with {peer}: {detail}")]
    Version {
        /// The peer.
        peer: SocketAddr,
        /// Both versions.
        detail: String,
    },
}

/// The result of what a peer can make fail.
pub(crate) type Result<T, E = ConnectionError> = std::result::Result<T, E>;
