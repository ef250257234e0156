//! Records of any length over buffers of any size: `[length: i32 big-endian][payload]`, cut anywhere.
//!
//! One serializer and one deserializer per channel. A record that lies within one buffer is read
//! without a copy; one that spans buffers is put together on the heap, or in a file when it is large,
//! within a stated limit.

mod deserializer;
mod serializer;
mod spill;
mod wrapper;

pub use deserializer::{DeserializationResult, SpanningDeserializer};
pub use serializer::{SerializationResult, SpanningSerializer};
pub use spill::{InMemory, SpillStore};

/// Why a record cannot be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanningError {
    /// A buffer came before the previous one was read to its end.
    #[error("the previous buffer still has {bytes} unread bytes")]
    BufferNotConsumed {
        /// Bytes that would be lost.
        bytes: usize,
    },
    /// A length prefix is negative: the stream is not one of records, or has lost bytes.
    #[error("a record has the negative length {length}")]
    NegativeLength {
        /// The length that was read.
        length: i32,
    },
    /// A record came before the previous one was written to its end.
    #[error("the previous record still has {bytes} unwritten bytes")]
    RecordNotWritten {
        /// Bytes that would be lost.
        bytes: usize,
    },
    /// The record exceeds the limit.
    #[error("a record of {length} bytes is larger than max_record_size, {limit} bytes")]
    RecordTooLarge {
        /// Length of the record.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

/// Why the next record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeserializeError<E> {
    /// The stream is not one of records within the limit.
    #[error(transparent)]
    Record(#[from] SpanningError),
    /// The store of spilled records failed.
    #[error("a large record cannot be put together: {0}")]
    Spill(E),
}

/// Bytes of the length before each record.
pub const LENGTH_LEN: usize = 4;

/// The largest record that a length prefix can announce.
const MAX_LENGTH: usize = i32::MAX as usize;
