//! The errors of an exchange: one variant for each thing a caller can do about it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headgate_memory::{PoolTooSmall, RequestError, Unmapped};
use headgate_protocol::{PartitionId, Sequence};
use headgate_record::{
    DecompressError, DeserializeError, PageError, SelectError, SourceError, SpanningError,
};
use headgate_tls::TlsOptionsError;

use crate::limits;

/// Every failure of the data plane. Cheap to clone: the first failure becomes the cause of all
/// others.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExchangeError {
    /// An event cannot be encoded or decoded.
    #[error("{0}")]
    Event(String),
    /// An event does not fit a segment.
    #[error("an event of {size} bytes does not fit a segment of {limit} bytes")]
    EventTooLarge {
        /// Bytes of the event.
        size: u64,
        /// Bytes of a segment.
        limit: u64,
    },
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
    /// The caller aborted, with this cause.
    #[error("{0}")]
    Aborted(String),
    /// Something was used after it was closed.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// No connection to a peer could be opened.
    #[error("cannot connect to {peer}: {detail}")]
    Connect {
        /// The address of the peer.
        peer: SocketAddr,
        /// The operating system's error.
        detail: String,
    },
    /// The process, or the system, has reached its limit of open files.
    #[error(
        "{doing}: {detail}: {} descriptors are open, {} are allowed",
        number(*open), number(*limit)
    )]
    Descriptors {
        /// The call that needed a descriptor.
        doing: String,
        /// The operating system's error.
        detail: String,
        /// Open descriptors of the process.
        open: Option<u64>,
        /// Limit of the process; none if the limit of the system was reached.
        limit: Option<u64>,
    },
    /// The output flusher could not send what was emitted.
    #[error("flushing by time failed: {0}")]
    Flush(Arc<Self>),
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
    /// The environment itself failed. Its data is lost, and it cannot be used any more.
    #[error("{0}")]
    Internal(String),
    /// The caller asked to stop waiting, for this reason.
    #[error("interrupted by {0}")]
    Interrupted(String),
    /// A connection could not be encrypted, or an encrypted one was damaged.
    #[error("TLS with {peer} failed: {detail}")]
    Tls {
        /// The address of the peer.
        peer: SocketAddr,
        /// The rule that was broken.
        detail: String,
    },
    /// The options of TLS cannot be used.
    #[error(transparent)]
    TlsOptions(#[from] TlsOptionsError),
    /// The operating system refused memory.
    #[error("no memory for the {what}: {source} ({limits})")]
    Memory {
        /// The user of the pool that asked.
        what: &'static str,
        /// The limits of memory.
        limits: String,
        /// The segments of the pool, and the operating system's error.
        source: Unmapped,
    },
    /// The operating system refused a thread.
    #[error("cannot start the {thread}: {source} ({limits})")]
    Thread {
        /// Purpose and name of the thread.
        thread: &'static str,
        /// The limits of threads, and their number.
        limits: String,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// The operating system refused something else that every environment needs.
    #[error("{doing}: {source}")]
    System {
        /// The call that failed.
        doing: &'static str,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// The environment was used in a forked child.
    #[error("the environment belongs to process {owner}, this is its forked child {child}")]
    Forked {
        /// The process that created it.
        owner: u32,
        /// The process that used it.
        child: u32,
    },
    /// A page from a peer is not well formed.
    #[error("corrupt page on {channel}: {source}")]
    Page {
        /// Name of the channel.
        channel: String,
        /// The rule that it breaks.
        source: Arc<PageError>,
    },
    /// The peer does not have the partition.
    #[error("{peer}: {detail}")]
    PartitionNotFound {
        /// The process that was asked.
        peer: String,
        /// The partition, and why it was not found.
        detail: String,
    },
    /// A selector named a channel that does not exist.
    #[error("row {row} is sent to channel {channel}, there are {count} channels")]
    OutOfRange {
        /// Row of the batch.
        row: usize,
        /// The channel number.
        channel: u64,
        /// Number of channels.
        count: u32,
    },
    /// A selector did not return one channel number per row.
    #[error("the selector returned {got} channel numbers for {rows} rows")]
    SelectorLength {
        /// Channel numbers that it returned.
        got: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// The peer closed its connection without a GOODBYE message.
    #[error("lost {peer}: {detail}")]
    PeerLost {
        /// The peer.
        peer: String,
        /// The event that showed the loss.
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
    /// The promised minimums do not fit the budget.
    #[error("{what} needs {needed} segments: {source}")]
    PoolTooSmall {
        /// The user of the segments.
        what: &'static str,
        /// Segments that it needs.
        needed: usize,
        /// Bytes of one segment.
        segment_size: usize,
        /// Segments in total and promised.
        source: PoolTooSmall,
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
    /// The consumer expects another schema than the producer writes.
    #[error("{peer}: {detail}")]
    SchemaRefused {
        /// The peer.
        peer: String,
        /// Its message.
        detail: String,
    },
    /// A record is larger than the limit.
    #[error("a record of {size} bytes exceeds the limit of {limit} bytes")]
    RecordTooLarge {
        /// Bytes of the record.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A batch does not fit the schema of the exchange.
    #[error(transparent)]
    Schema(#[from] SourceError),
    /// Channel numbers or key columns are wrong.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The environment cannot listen on its address.
    #[error("cannot listen on {address}: {detail}")]
    Listen {
        /// The configured address.
        address: String,
        /// The operating system's error.
        detail: String,
    },
    /// No spill file can be created in any of the directories.
    #[error("no spill file can be created: {tried}")]
    SpillDirectories {
        /// Each directory with its error.
        tried: String,
        /// The error of the last directory.
        source: Arc<std::io::Error>,
    },
    /// A spill file of a record cannot be written or read.
    #[error("cannot {doing}: {source}")]
    SpillFile {
        /// The call that failed.
        doing: &'static str,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// The spill file of a partition cannot be written or read.
    #[error("cannot {doing} {bytes} bytes of partition {partition} on disk: {source}")]
    SpilledPartition {
        /// Id of the partition.
        partition: PartitionId,
        /// `write` or `read`.
        doing: &'static str,
        /// Bytes of the call.
        bytes: usize,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// The file of a kept partition cannot be named, or read.
    #[error("kept file {path}: {source}")]
    KeptFile {
        /// Path of the file.
        path: String,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// A partition needs more space on disk than its limit.
    #[error("partition {partition} needs more than {limit} bytes on disk, its max_spill_size")]
    SpillLimit {
        /// Id of the partition.
        partition: PartitionId,
        /// `max_spill_size`, in bytes.
        limit: u64,
    },
    /// Writer and reader expect different kinds of records.
    #[error("{0}")]
    WrongRecords(&'static str),
    /// A call is not allowed in the current state.
    #[error("{0}")]
    State(&'static str),
    /// The producer does not take a task event.
    #[error("{0}")]
    TaskEvent(String),
    /// A host name has no address.
    #[error("cannot resolve {host}: {detail}")]
    Unresolved {
        /// The host name.
        host: String,
        /// The resolver's error.
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

fn number(known: Option<u64>) -> String {
    known.map_or_else(|| "an unknown number of".to_owned(), |number| number.to_string())
}

/// The result of this crate's calls.
pub type Result<T, E = ExchangeError> = std::result::Result<T, E>;

impl ExchangeError {
    pub(crate) fn of_request(error: RequestError, what: &'static str) -> Self {
        match error {
            RequestError::Closed => Self::Closed(what),
            RequestError::Unmapped(source) => {
                Self::Memory { what, limits: limits::of_memory(), source }
            }
        }
    }

    /// The error of a buffer that cannot be decompressed.
    pub(crate) fn damaged(channel: &str, sequence: Sequence, error: &DecompressError) -> Self {
        let detail = format!("buffer {sequence} cannot be decompressed: {error}");
        Self::Integrity { channel: channel.to_owned(), detail }
    }

    pub(crate) fn of_spanning(error: SpanningError, channel: &str) -> Self {
        match error {
            SpanningError::RecordTooLarge { length, limit } => {
                Self::RecordTooLarge { size: length as u64, limit: limit as u64 }
            }
            other => Self::Integrity { channel: channel.to_owned(), detail: other.to_string() },
        }
    }

    pub(crate) fn of_deserialize(error: DeserializeError<Self>, channel: &str) -> Self {
        match error {
            DeserializeError::Record(error) => Self::of_spanning(error, channel),
            DeserializeError::Spill(Self::Integrity { detail, .. }) => {
                Self::Integrity { channel: channel.to_owned(), detail }
            }
            DeserializeError::Spill(error) => error,
        }
    }
}

/// A reason to give up a wait, such as a signal that the user sent.
///
/// A closure is one that may arise at any time.
pub trait Interruption {
    /// Returns the reason as an error, which ends the wait.
    ///
    /// # Errors
    /// There is a reason.
    fn check(&self) -> Result<()>;

    /// Returns the time between two checks during a wait; `None` if no reason can arise.
    fn period(&self) -> Option<Duration> {
        Some(INTERRUPT_PERIOD)
    }
}

impl<F: Fn() -> Result<()>> Interruption for F {
    fn check(&self) -> Result<()> {
        self()
    }
}

/// Checked repeatedly while a call blocks.
pub type Interrupt<'a> = &'a dyn Interruption;

/// Time between two looks at what is not announced during a wait.
pub(crate) const INTERRUPT_PERIOD: Duration = Duration::from_millis(50);
