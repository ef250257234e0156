//! Reads records from buffers.

use bytes::{Buf, Bytes};

use super::spill::{InMemory, SpillStore};
use super::wrapper::{SpanningWrapper, check_length};
use super::{DeserializeError, LENGTH_LEN, MAX_LENGTH, SpanningError};

/// Result of reading the current buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeserializationResult {
    /// A record; the buffer has more bytes.
    IntermediateRecordFromBuffer(Bytes),
    /// A record; the buffer is consumed.
    LastRecordFromBuffer(Bytes),
    /// No record; the buffer is consumed.
    PartialRecord,
}

impl DeserializationResult {
    /// True if there is a record.
    #[must_use]
    pub fn is_full_record(&self) -> bool {
        *self != Self::PartialRecord
    }

    /// True if the next buffer can be set.
    #[must_use]
    pub fn is_buffer_consumed(&self) -> bool {
        !matches!(self, Self::IntermediateRecordFromBuffer(_))
    }

    /// Returns the record, if there is one.
    #[must_use]
    pub fn into_record(self) -> Option<Bytes> {
        match self {
            Self::IntermediateRecordFromBuffer(record) | Self::LastRecordFromBuffer(record) => {
                Some(record)
            }
            Self::PartialRecord => None,
        }
    }
}

/// Reads records from successive buffers; one per channel.
///
/// A record within one buffer is a slice of it and keeps it alive. A record that spans buffers is
/// copied to the heap, or above the threshold to a file of the [`SpillStore`], and read back when
/// it is complete. So many channels can wait for the rest of large records without keeping them in
/// memory.
///
/// With [`new`](Self::new) it corresponds to Flink's `AdaptiveSpanningRecordDeserializer`, with
/// [`spilling`](Self::spilling) to its `SpillingAdaptiveSpanningRecordDeserializer`.
///
/// ```
/// # use headgate_record::{DeserializationResult as Result, SpanningDeserializer};
/// let mut deserializer = SpanningDeserializer::new(1 << 20);
/// deserializer.set_next_buffer("\0\0\0\x03abc\0\0\0\x02d".into())?;
/// assert_eq!(deserializer.next_record()?, Result::IntermediateRecordFromBuffer("abc".into()));
/// assert_eq!(deserializer.next_record()?, Result::PartialRecord);
/// deserializer.set_next_buffer("e".into())?;
/// assert_eq!(deserializer.next_record()?, Result::LastRecordFromBuffer("de".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SpanningDeserializer<S: SpillStore = InMemory> {
    max_record_size: usize,
    /// Records above this length are assembled in a file.
    threshold: usize,
    store: S,
    /// Unread part of the current buffer (Flink's `NonSpanningWrapper`).
    buffer: Bytes,
    spanning: SpanningWrapper<S::File>,
}

impl SpanningDeserializer {
    /// Creates a deserializer that rejects records of more than `max_record_size` bytes and never
    /// spills.
    #[must_use]
    pub fn new(max_record_size: usize) -> Self {
        Self::spilling(max_record_size, usize::MAX, InMemory::STORE)
    }
}

impl<S: SpillStore> SpanningDeserializer<S> {
    /// Creates a deserializer that rejects records of more than `max_record_size` bytes, and
    /// assembles records of more than `threshold` bytes in files of the store if they span buffers.
    #[must_use]
    pub fn spilling(max_record_size: usize, threshold: usize, store: S) -> Self {
        Self {
            max_record_size: max_record_size.min(MAX_LENGTH),
            threshold,
            store,
            buffer: Bytes::new(),
            spanning: SpanningWrapper::new(),
        }
    }

    /// Sets the next buffer, which is dropped once it is consumed.
    ///
    /// # Errors
    /// The previous buffer is not consumed; `buffer` is dropped.
    pub fn set_next_buffer(&mut self, buffer: Bytes) -> Result<(), SpanningError> {
        if !self.buffer.is_empty() {
            return Err(SpanningError::BufferNotConsumed { bytes: self.buffer.len() });
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Reads the next record of the current buffer. Call it until the buffer is consumed.
    ///
    /// # Errors
    /// A length is negative or above the limit. No memory is allocated for it, the stream cannot be
    /// read any further, and each later call returns the same error. Or the store failed; a later
    /// call retries.
    pub fn next_record(&mut self) -> Result<DeserializationResult, DeserializeError<S::Error>> {
        let record = match self.whole_record()? {
            Some(record) => Some(record),
            None => self.spanning_record()?,
        };
        let result = match record {
            None => DeserializationResult::PartialRecord,
            Some(record) if self.buffer.is_empty() => {
                DeserializationResult::LastRecordFromBuffer(record)
            }
            Some(record) => DeserializationResult::IntermediateRecordFromBuffer(record),
        };
        if result.is_buffer_consumed() {
            // Even an empty slice would keep the whole buffer alive.
            self.buffer = Bytes::new();
        }
        Ok(result)
    }

    /// True while a record is incomplete or the buffer has unread bytes.
    #[must_use]
    pub fn has_unconsumed(&self) -> bool {
        !self.spanning.is_empty() || !self.buffer.is_empty()
    }

    /// Number of bytes taken but not yet returned in a record.
    #[must_use]
    pub fn unconsumed_len(&self) -> usize {
        self.spanning.len() + self.buffer.len()
    }

    /// Returns all bytes taken but not yet returned in a record, unchanged, in pieces of at most 2
    /// MiB (Flink's `getUnconsumedBuffer`). A new deserializer that reads them continues at this
    /// point.
    ///
    /// # Errors
    /// The store cannot read a file; no further pieces follow.
    pub fn unconsumed(&self) -> impl Iterator<Item = Result<Bytes, S::Error>> + use<'_, S> {
        let (mut at, spanning) = (0, self.spanning.len());
        std::iter::from_fn(move || {
            let piece = if at < spanning {
                self.spanning.taken(at, UNCONSUMED_PIECE, &self.store)
            } else {
                let rest = self.buffer.get(at - spanning..)?;
                let end = rest.len().min(UNCONSUMED_PIECE);
                Ok(self.buffer.slice_ref(&rest[..end]))
            };
            at = match &piece {
                Ok(piece) if piece.is_empty() => return None,
                Ok(piece) => at + piece.len(),
                Err(_) => self.unconsumed_len(),
            };
            Some(piece)
        })
    }

    /// Drops the buffer, the record in progress and its file.
    pub fn clear(&mut self) {
        self.buffer = Bytes::new();
        self.spanning.clear();
    }

    /// Reads a record that begins and ends in the current buffer.
    fn whole_record(&mut self) -> Result<Option<Bytes>, SpanningError> {
        let Some(prefix) = self.buffer.first_chunk().filter(|_| self.spanning.is_empty()) else {
            return Ok(None);
        };
        let length = check_length(*prefix, self.max_record_size)?;
        if self.buffer.len() - LENGTH_LEN < length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_LEN);
        Ok(Some(self.buffer.split_to(length)))
    }

    /// Reads a part of a record that spans buffers.
    fn spanning_record(&mut self) -> Result<Option<Bytes>, DeserializeError<S::Error>> {
        let Self { spanning, buffer, .. } = self;
        let Some(length) = spanning.take_length(buffer, self.max_record_size)? else {
            return Ok(None);
        };
        if !spanning.has_payload() && length <= buffer.len() {
            spanning.clear();
            return Ok(Some(buffer.split_to(length)));
        }
        spanning
            .take_payload(buffer, length, self.threshold, &self.store)
            .map_err(DeserializeError::Spill)
    }
}

/// Maximum bytes of a file in memory while it is read for a checkpoint.
const UNCONSUMED_PIECE: usize = 2 << 20;
