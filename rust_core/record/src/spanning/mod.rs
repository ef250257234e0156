//! Records of any length in buffers of any size: `[length: i32 big-endian][payload]`, split at any
//! byte.
//!
//! Each channel has one serializer and one deserializer. A record within one buffer is read without
//! a copy. A record that spans buffers is assembled on the heap, or in a file if it is large; its
//! length is limited.

mod deserializer;
mod serializer;
mod spill;
mod wrapper;

pub use deserializer::{DeserializationResult, SpanningDeserializer};
pub use serializer::{SerializationResult, SpanningSerializer};
pub use spill::{InMemory, SpillStore};

/// Failures of writing or reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanningError {
    /// A buffer was set before the previous one was consumed.
    #[error("the previous buffer still has {bytes} unread bytes")]
    BufferNotConsumed {
        /// Remaining bytes.
        bytes: usize,
    },
    /// A length prefix is negative: the stream does not consist of records, or bytes were lost.
    #[error("a record has the negative length {length}")]
    NegativeLength {
        /// Length in the prefix.
        length: i32,
    },
    /// A record was set before the previous one was written.
    #[error("the previous record still has {bytes} unwritten bytes")]
    RecordNotWritten {
        /// Remaining bytes.
        bytes: usize,
    },
    /// The record exceeds the limit.
    #[error("a record of {length} bytes is larger than max_record_size, {limit} bytes")]
    RecordTooLarge {
        /// Length of the record.
        length: usize,
        /// Maximum length.
        limit: usize,
    },
}

/// Failures of reading the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeserializeError<E> {
    /// A length prefix is invalid.
    #[error(transparent)]
    Record(#[from] SpanningError),
    /// The store of spilled records failed.
    #[error("a large record cannot be put together: {0}")]
    Spill(E),
}

/// Bytes of the length prefix.
pub const LENGTH_LEN: usize = 4;

/// Maximum length of a record.
const MAX_LENGTH: usize = i32::MAX as usize;
