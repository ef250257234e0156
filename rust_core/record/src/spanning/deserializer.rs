//! Puts records together from buffers.

use bytes::{Buf, Bytes};

use super::{LENGTH_LEN, MAX_LENGTH, SpanningError};

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

/// Reads records from successive buffers.
///
/// A record within one buffer is a slice of it and keeps it alive; a spanning one has memory of its own.
#[derive(Debug)]
pub struct SpanningDeserializer {
    max_record_size: usize,
    buffer: Bytes,
    /// The first `prefix_len` bytes of a length that is not complete, or of the spanning record.
    prefix: [u8; LENGTH_LEN],
    prefix_len: usize,
    spanning: Option<SpanningRecord>,
}

#[derive(Debug)]
struct SpanningRecord {
    length: usize,
    payload: Vec<u8>,
}

impl SpanningDeserializer {
    /// A deserializer that refuses records of more bytes than this.
    #[must_use]
    pub fn new(max_record_size: usize) -> Self {
        Self {
            max_record_size: max_record_size.min(MAX_LENGTH),
            buffer: Bytes::new(),
            prefix: [0; LENGTH_LEN],
            prefix_len: 0,
            spanning: None,
        }
    }

    /// Takes the next buffer.
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
    /// A length that is negative or above the limit, before any memory is taken for it. The stream cannot
    /// be read any further then, and each later call gives the same error.
    pub fn next_record(&mut self) -> Result<DeserializationResult, SpanningError> {
        let record = match self.spanning.take() {
            Some(spanning) => self.continue_record(spanning),
            None => self.start_record()?,
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
        self.prefix_len > 0 || !self.buffer.is_empty()
    }

    /// All bytes taken and not yet returned as a record, exactly as they came.
    #[must_use]
    pub fn unconsumed(&self) -> Vec<u8> {
        let payload = self.spanning.as_ref().map_or(&[][..], |spanning| &spanning.payload);
        [&self.prefix[..self.prefix_len], payload, &self.buffer].concat()
    }

    /// Drops everything taken so far.
    pub fn clear(&mut self) {
        self.buffer = Bytes::new();
        self.prefix_len = 0;
        self.spanning = None;
    }

    fn start_record(&mut self) -> Result<Option<Bytes>, SpanningError> {
        let count = (LENGTH_LEN - self.prefix_len).min(self.buffer.len());
        self.buffer.copy_to_slice(&mut self.prefix[self.prefix_len..self.prefix_len + count]);
        self.prefix_len += count;
        if self.prefix_len < LENGTH_LEN {
            return Ok(None);
        }
        let length = i32::from_be_bytes(self.prefix);
        let Ok(length) = usize::try_from(length) else {
            return Err(SpanningError::NegativeLength { length });
        };
        if length > self.max_record_size {
            let limit = self.max_record_size;
            return Err(SpanningError::RecordTooLarge { length, limit });
        }
        if length <= self.buffer.len() {
            self.prefix_len = 0;
            return Ok(Some(self.buffer.split_to(length)));
        }
        Ok(self.continue_record(SpanningRecord { length, payload: Vec::new() }))
    }

    fn continue_record(&mut self, mut spanning: SpanningRecord) -> Option<Bytes> {
        let missing = spanning.length - spanning.payload.len();
        let part = self.buffer.split_to(missing.min(self.buffer.len()));
        spanning.append(&part);
        if spanning.payload.len() < spanning.length {
            self.spanning = Some(spanning);
            return None;
        }
        self.prefix_len = 0;
        Some(spanning.payload.into())
    }
}

impl SpanningRecord {
    /// Memory grows with the bytes that came, never with the length that was announced.
    fn append(&mut self, part: &[u8]) {
        let needed = self.payload.len() + part.len();
        if needed > self.payload.capacity() {
            let capacity = needed.max(2 * self.payload.capacity()).max(MIN_CAPACITY);
            let capacity = capacity.min(self.length);
            self.payload.reserve_exact(capacity - self.payload.len());
        }
        self.payload.extend_from_slice(part);
    }
}

const MIN_CAPACITY: usize = 1 << 10;
