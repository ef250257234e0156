//! What can go wrong in an exchange; one variant per thing a caller can do about it.

use std::net::SocketAddr;
use std::sync::Arc;

use headgate_memory::{PoolTooSmall, RequestError};
use headgate_protocol::{PartitionId, Sequence};
use headgate_record::{
    DecompressError, DeserializeError, PageError, SelectError, SourceError, SpanningError,
};

/// Every failure of the data plane. Cheap to clone: the first one becomes the cause of all others.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExchangeError {
    /// An event that cannot be written or read.
    #[error("{0}")]
    Event(String),
    /// An event that does not fit a segment.
    #[error("an event of {size} bytes does not fit a segment of {limit} bytes")]
    EventTooLarge {
        /// Bytes of the event.
        size: u64,
        /// Bytes of a segment.
        limit: u64,
    },
    /// A buffer that the consumer has no segment for.
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
    /// Ended from outside, with the cause the caller gave.
    #[error("{0}")]
    Aborted(String),
    /// Used after it was closed.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// No connection to a peer could be made.
    #[error("cannot connect to {peer}: {detail}")]
    Connect {
        /// Whom.
        peer: SocketAddr,
        /// The operating system's words.
        detail: String,
    },
    /// The process, or the system, has as many files open as it may.
    #[error(
        "{doing}: {detail}: {} descriptors are open, {} are allowed",
        number(*open), number(*limit)
    )]
    Descriptors {
        /// What needed one.
        doing: String,
        /// The operating system's words.
        detail: String,
        /// How many the process has open.
        open: Option<u64>,
        /// Its limit; none if it is the system's that was reached.
        limit: Option<u64>,
    },
    /// What was emitted could not be sent when its time had come.
    #[error("flushing by time failed: {0}")]
    Flush(Arc<Self>),
    /// The peer does not know our secret, or belongs to another exchange, run or epoch.
    #[error("handshake with {peer} failed: {detail}")]
    Handshake {
        /// Whom.
        peer: SocketAddr,
        /// What is known; never why a proof was wrong.
        detail: String,
    },
    /// Bytes, order or counts are not what was sent.
    #[error("integrity check failed on {channel}: {detail}")]
    Integrity {
        /// Which channel.
        channel: String,
        /// Which check.
        detail: String,
    },
    /// The environment itself broke: what it holds is lost, and it does nothing any more.
    #[error("{0}")]
    Internal(String),
    /// The caller asked to stop waiting (a signal).
    #[error("interrupted")]
    Interrupted,
    /// Memory the kernel would not give.
    #[error("no memory: {0}")]
    Memory(String),
    /// The environment was used in a forked child.
    #[error("the environment belongs to process {owner}, this is its forked child {child}")]
    Forked {
        /// Who made it.
        owner: u32,
        /// Who used it.
        child: u32,
    },
    /// A page from a peer is not well formed.
    #[error("corrupt page on {channel}: {source}")]
    Page {
        /// Which channel.
        channel: String,
        /// Which rule it breaks.
        source: Arc<PageError>,
    },
    /// The peer does not have that partition.
    #[error("{peer}: {detail}")]
    PartitionNotFound {
        /// Where it was asked for.
        peer: String,
        /// Which.
        detail: String,
    },
    /// A selector named a channel that does not exist.
    #[error("row {row} is sent to channel {channel}, there are {count} channels")]
    OutOfRange {
        /// Row of the batch.
        row: usize,
        /// What it named.
        channel: u64,
        /// How many there are.
        count: u32,
    },
    /// A selector did not answer for every row.
    #[error("the selector returned {got} channel numbers for {rows} rows")]
    SelectorLength {
        /// What it returned.
        got: usize,
        /// What was due.
        rows: usize,
    },
    /// The process at the other end went away without a goodbye.
    #[error("lost {peer}: {detail}")]
    PeerLost {
        /// Who.
        peer: String,
        /// What was seen.
        detail: String,
    },
    /// The host at the other end does not answer any more.
    #[error("lost {peer}: {detail}")]
    LinkLost {
        /// Who.
        peer: String,
        /// The operating system's words.
        detail: String,
    },
    /// The guaranteed minimums do not fit the budget.
    #[error("{what} needs {needed} segments: {source}")]
    PoolTooSmall {
        /// For what.
        what: &'static str,
        /// How many segments.
        needed: usize,
        /// Bytes of one segment.
        segment_size: usize,
        /// The numbers.
        source: PoolTooSmall,
    },
    /// The producer failed; its own cause in its own words.
    #[error("the producer failed: {0}")]
    ProducerFailed(String),
    /// The peer broke the protocol.
    #[error("protocol violation by {peer}: {detail}")]
    Protocol {
        /// Who.
        peer: String,
        /// Which rule.
        detail: String,
    },
    /// The consumer expects another schema than the producer writes.
    #[error("{peer}: {detail}")]
    SchemaRefused {
        /// Who.
        peer: String,
        /// Its words.
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
    /// A socket of ours cannot be set up.
    #[error("cannot listen on {address}: {detail}")]
    Listen {
        /// The address asked for.
        address: String,
        /// The operating system's words.
        detail: String,
    },
    /// No file for what does not fit memory can be made in any of the directories.
    #[error("no spill file can be made: {tried}")]
    SpillDirectories {
        /// Each directory and the operating system's words.
        tried: String,
        /// What was wrong with the last one.
        source: Arc<std::io::Error>,
    },
    /// A file for what does not fit memory cannot be written or read.
    #[error("cannot {doing}: {source}")]
    SpillFile {
        /// What was tried.
        doing: &'static str,
        /// The operating system's words.
        source: Arc<std::io::Error>,
    },
    /// What a partition keeps on disk cannot be written or read.
    #[error("cannot {doing} {bytes} bytes of partition {partition} on disk: {source}")]
    SpilledPartition {
        /// Whose.
        partition: PartitionId,
        /// `write` or `read`.
        doing: &'static str,
        /// How much at once.
        bytes: usize,
        /// The operating system's words.
        source: Arc<std::io::Error>,
    },
    /// A partition would use more of the disk than it may.
    #[error("partition {partition} needs more than {limit} bytes on disk, which is its limit")]
    SpillLimit {
        /// Whose.
        partition: PartitionId,
        /// `max_spill_size`, in bytes.
        limit: u64,
    },
    /// One side writes other records than the other side reads.
    #[error("{0}")]
    WrongRecords(&'static str),
    /// The calls are in an order that makes no sense.
    #[error("{0}")]
    State(&'static str),
    /// A task event that the producer does not take.
    #[error("{0}")]
    TaskEvent(String),
    /// A host name that has no address.
    #[error("cannot resolve {host}: {detail}")]
    Unresolved {
        /// The name.
        host: String,
        /// The resolver's words.
        detail: String,
    },
    /// The peer speaks another version.
    #[error("version mismatch with {peer}: {detail}")]
    Version {
        /// Who.
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
            RequestError::Unmappable(errno) => Self::Memory(errno.to_string()),
        }
    }

    /// A buffer that cannot be decompressed.
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
            DeserializeError::Spill(error) => error,
        }
    }
}

/// Asked every so often while a call blocks; an error ends the wait.
pub type Interrupt<'a> = &'a dyn Fn() -> Result<()>;

/// How long a blocked call sleeps before it asks its [`Interrupt`].
pub(crate) const INTERRUPT_PERIOD: std::time::Duration = std::time::Duration::from_millis(50);
