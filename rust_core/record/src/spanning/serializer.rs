//! Writes records into buffers.

use bytes::{Buf, Bytes};

use super::{LENGTH_LEN, MAX_LENGTH, SpanningError};

/// Result of a copy into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SerializationResult {
    /// The record is complete and the buffer has room left.
    FullRecord,
    /// The record is complete and the buffer is full.
    FullRecordMemorySegmentFull,
    /// The buffer is full and the record is incomplete.
    PartialRecordMemorySegmentFull,
}

impl SerializationResult {
    /// True if the record is complete.
    #[must_use]
    pub fn is_full_record(self) -> bool {
        self != Self::PartialRecordMemorySegmentFull
    }

    /// True if the buffer is full.
    #[must_use]
    pub fn is_full_buffer(self) -> bool {
        self != Self::FullRecord
    }
}

/// Writes one record at a time into successive buffers.
///
/// ```
/// # use headgate_record::{SerializationResult, SpanningSerializer};
/// let mut serializer = SpanningSerializer::new(1 << 20);
/// serializer.set_record("abc".into())?;
/// let mut buffer = [0; 5];
/// let (written, result) = serializer.copy_to(&mut buffer);
/// assert_eq!((written, result), (5, SerializationResult::PartialRecordMemorySegmentFull));
/// assert_eq!(&buffer, b"\0\0\0\x03a");
/// let (written, result) = serializer.copy_to(&mut buffer);
/// assert_eq!((written, result), (2, SerializationResult::FullRecord));
/// # Ok::<(), headgate_record::SpanningError>(())
/// ```
#[derive(Debug)]
pub struct SpanningSerializer {
    max_record_size: usize,
    prefix: Bytes,
    payload: Bytes,
}

impl SpanningSerializer {
    /// Creates a serializer of records of at most `max_record_size` bytes, without the length
    /// prefix.
    #[must_use]
    pub fn new(max_record_size: usize) -> Self {
        let max_record_size = max_record_size.min(MAX_LENGTH);
        Self { max_record_size, prefix: Bytes::new(), payload: Bytes::new() }
    }

    /// Sets the next record.
    ///
    /// # Errors
    /// The record is too large, or the previous one is incomplete.
    pub fn set_record(&mut self, payload: Bytes) -> Result<(), SpanningError> {
        if self.has_data() {
            return Err(SpanningError::RecordNotWritten { bytes: self.remaining() });
        }
        let limit = self.max_record_size;
        let length = payload.len();
        let too_large = SpanningError::RecordTooLarge { length, limit };
        if length > limit {
            return Err(too_large);
        }
        let prefix = i32::try_from(length).map_err(|_| too_large)?;
        self.prefix = Bytes::copy_from_slice(&prefix.to_be_bytes());
        self.payload = payload;
        Ok(())
    }

    /// Copies as much of the record as fits the buffer; returns the number of bytes.
    ///
    /// Without a record in progress, writes nothing and returns `FullRecord`.
    pub fn copy_to(&mut self, buffer: &mut [u8]) -> (usize, SerializationResult) {
        let mut written = 0;
        for part in [&mut self.prefix, &mut self.payload] {
            let count = part.len().min(buffer.len() - written);
            part.copy_to_slice(&mut buffer[written..written + count]);
            written += count;
        }
        let result = match (self.has_data(), written == buffer.len()) {
            (true, _) => SerializationResult::PartialRecordMemorySegmentFull,
            (false, true) => SerializationResult::FullRecordMemorySegmentFull,
            (false, false) => {
                // Frees the memory of the record.
                self.payload = Bytes::new();
                SerializationResult::FullRecord
            }
        };
        (written, result)
    }

    /// True while a record is incomplete.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.remaining() > 0
    }

    /// Unwritten bytes of the record, including the length prefix.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.prefix.len() + self.payload.len()
    }

    /// Drops the record in progress.
    pub fn clear(&mut self) {
        self.prefix = Bytes::new();
        self.payload = Bytes::new();
    }
}

const _: () = assert!(LENGTH_LEN == size_of::<i32>());
