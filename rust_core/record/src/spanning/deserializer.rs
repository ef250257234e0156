//! Puts records together from buffers.

use bytes::{Buf, Bytes};

use super::spill::{InMemory, SpillStore};
use super::wrapper::{SpanningWrapper, check_length};
use super::{DeserializeError, LENGTH_LEN, MAX_LENGTH, SpanningError};

/// What the current buffer had to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeserializationResult {
    /// A record, and the buffer has more bytes.
    IntermediateRecordFromBuffer(Bytes),
    /// A record, and the buffer is consumed.
    LastRecordFromBuffer(Bytes),
    /// No record, the buffer is consumed.
    PartialRecord,
}

impl DeserializationResult {
    /// Whether there is a record.
    #[must_use]
    pub fn is_full_record(&self) -> bool {
        *self != Self::PartialRecord
    }

    /// Whether the next buffer may be set.
    #[must_use]
    pub fn is_buffer_consumed(&self) -> bool {
        !matches!(self, Self::IntermediateRecordFromBuffer(_))
    }

    /// The record, if there is one.
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
/// A record within one buffer is a slice of it and keeps it alive. One that spans buffers has memory of
/// its own, and above the threshold is put together in a file of the [`SpillStore`]: many channels
/// can then wait for the rest of large records while only the one that is returned is in memory.
///
/// Made by [`new`](Self::new) it is Flink's `AdaptiveSpanningRecordDeserializer`, made by
/// [`spilling`](Self::spilling) its `SpillingAdaptiveSpanningRecordDeserializer`.
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
    /// Larger records than this are put together in a file.
    threshold: usize,
    store: S,
    /// What is left of the current buffer: all that Flink's `NonSpanningWrapper` has.
    buffer: Bytes,
    spanning: SpanningWrapper<S::File>,
}

impl SpanningDeserializer {
    /// A deserializer that refuses records of more bytes than this, and never spills.
    #[must_use]
    pub fn new(max_record_size: usize) -> Self {
        Self::spilling(max_record_size, usize::MAX, InMemory::STORE)
    }
}

impl<S: SpillStore> SpanningDeserializer<S> {
    /// A deserializer that refuses records of more than `max_record_size` bytes, and puts those of more
    /// than `threshold` bytes together in files of the store if they span buffers.
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

    /// Takes the next buffer; it is dropped as soon as it is consumed.
    ///
    /// # Errors
    /// The previous buffer is not consumed; `buffer` is then dropped.
    pub fn set_next_buffer(&mut self, buffer: Bytes) -> Result<(), SpanningError> {
        if !self.buffer.is_empty() {
            return Err(SpanningError::BufferNotConsumed { bytes: self.buffer.len() });
        }
        self.buffer = buffer;
        Ok(())
    }

    /// The next record of the current buffer. Call it until the buffer is consumed.
    ///
    /// # Errors
    /// A length that is negative or above the limit, before any memory is taken for it: the stream cannot
    /// be read any further then, and each later call gives the same error. Or what the store says: then a
    /// later call tries the same again.
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
            // An empty slice would keep the whole buffer alive.
            self.buffer = Bytes::new();
        }
        Ok(result)
    }

    /// Whether a record was begun and not completed, or the buffer has bytes that were not looked at.
    #[must_use]
    pub fn has_unconsumed(&self) -> bool {
        !self.spanning.is_empty() || !self.buffer.is_empty()
    }

    /// How many bytes were taken and not yet returned as a record.
    #[must_use]
    pub fn unconsumed_len(&self) -> usize {
        self.spanning.len() + self.buffer.len()
    }

    /// All bytes taken and not yet returned as a record, exactly as they came, in pieces of at most 2 MiB:
    /// Flink's `getUnconsumedBuffer`. A fresh deserializer that is given them goes on where this one is.
    ///
    /// # Errors
    /// What the store says when a file cannot be read; the pieces end then.
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

    /// Drops everything taken so far: the buffer, the record in progress and its file.
    pub fn clear(&mut self) {
        self.buffer = Bytes::new();
        self.spanning.clear();
    }

    /// A record that begins and ends in the current buffer.
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

    /// A record that began in an earlier buffer, or that the current one begins and does not end.
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

/// Bytes of a file that are in memory at a time while it is read for a checkpoint.
const UNCONSUMED_PIECE: usize = 2 << 20;
