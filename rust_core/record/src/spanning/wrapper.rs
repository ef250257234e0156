//! The record of a channel that spans buffers: Flink's `SpanningWrapper` (spec 6.3).

use bytes::{Buf, Bytes};

use super::spill::SpillStore;
use super::{LENGTH_LEN, SpanningError};

/// An incomplete record: a part of its length prefix, or the prefix and a part of its bytes.
#[derive(Debug)]
pub(super) struct SpanningWrapper<F> {
    /// The first `prefix_len` bytes of the length prefix.
    prefix: [u8; LENGTH_LEN],
    prefix_len: usize,
    /// `Some` once the prefix is complete.
    payload: Option<Payload<F>>,
}

#[derive(Debug)]
struct Payload<F> {
    length: usize,
    /// Invariant: at most `length`.
    filled: usize,
    parts: Parts<F>,
}

#[derive(Debug)]
enum Parts<F> {
    File(F),
    Memory(Vec<u8>),
}

impl<F> SpanningWrapper<F> {
    pub(super) fn new() -> Self {
        Self { prefix: [0; LENGTH_LEN], prefix_len: 0, payload: None }
    }

    /// True if no record is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.prefix_len == 0
    }

    /// Bytes taken from buffers so far.
    pub(super) fn len(&self) -> usize {
        self.prefix_len + self.filled()
    }

    /// Takes the rest of the length prefix; returns the length once it is complete.
    pub(super) fn take_length(
        &mut self,
        buffer: &mut Bytes,
        max_record_size: usize,
    ) -> Result<Option<usize>, SpanningError> {
        let count = (LENGTH_LEN - self.prefix_len).min(buffer.len());
        buffer.copy_to_slice(&mut self.prefix[self.prefix_len..self.prefix_len + count]);
        self.prefix_len += count;
        if self.prefix_len < LENGTH_LEN {
            return Ok(None);
        }
        check_length(self.prefix, max_record_size).map(Some)
    }

    /// True once bytes after the prefix were taken or the file was created.
    pub(super) fn has_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// Takes the rest of the record; returns the record once it is complete.
    ///
    /// An error changes nothing, so that the call can be repeated.
    pub(super) fn take_payload<S: SpillStore<File = F>>(
        &mut self,
        buffer: &mut Bytes,
        length: usize,
        threshold: usize,
        store: &S,
    ) -> Result<Option<Bytes>, S::Error> {
        let payload = match &mut self.payload {
            Some(payload) => payload,
            None => self.payload.insert(Payload::new(length, threshold, store)?),
        };
        let count = (payload.length - payload.filled).min(buffer.len());
        payload.append(&buffer[..count], store)?;
        buffer.advance(count);
        if payload.filled < payload.length {
            return Ok(None);
        }
        let record = match &mut payload.parts {
            Parts::File(file) => store.read(file, 0, payload.length)?,
            Parts::Memory(bytes) => std::mem::take(bytes).into(),
        };
        self.clear();
        Ok(Some(record))
    }

    /// Returns at most `limit` of the bytes taken, from `offset` on, unchanged.
    pub(super) fn taken<S: SpillStore<File = F>>(
        &self,
        offset: usize,
        limit: usize,
        store: &S,
    ) -> Result<Bytes, S::Error> {
        if let Some(rest) = self.prefix[..self.prefix_len].get(offset..).filter(|r| !r.is_empty()) {
            return Ok(Bytes::copy_from_slice(&rest[..rest.len().min(limit)]));
        }
        let offset = offset - self.prefix_len;
        let count = (self.filled() - offset).min(limit);
        match self.payload.as_ref().map(|payload| &payload.parts) {
            None => Ok(Bytes::new()),
            Some(Parts::File(file)) => store.read(file, offset, count),
            Some(Parts::Memory(bytes)) => {
                Ok(Bytes::copy_from_slice(&bytes[offset..offset + count]))
            }
        }
    }

    /// Drops the record with its memory or file.
    pub(super) fn clear(&mut self) {
        self.prefix_len = 0;
        self.payload = None;
    }

    fn filled(&self) -> usize {
        self.payload.as_ref().map_or(0, |payload| payload.filled)
    }
}

impl<F> Payload<F> {
    fn new<S: SpillStore<File = F>>(
        length: usize,
        threshold: usize,
        store: &S,
    ) -> Result<Self, S::Error> {
        let parts = if length > threshold {
            Parts::File(store.create()?)
        } else {
            Parts::Memory(Vec::new())
        };
        Ok(Self { length, filled: 0, parts })
    }

    fn append<S: SpillStore<File = F>>(&mut self, part: &[u8], store: &S) -> Result<(), S::Error> {
        let filled = self.filled + part.len();
        match &mut self.parts {
            Parts::File(file) => store.write(file, self.filled, part)?,
            Parts::Memory(bytes) => {
                // Allocate for received bytes, not for the declared length.
                if filled > bytes.capacity() {
                    let capacity = filled.max(2 * bytes.capacity()).max(MIN_CAPACITY);
                    bytes.reserve_exact(capacity.min(self.length) - bytes.len());
                }
                bytes.extend_from_slice(part);
            }
        }
        self.filled = filled;
        Ok(())
    }
}

/// Returns the length in a prefix, if a record can have it.
pub(super) fn check_length(
    prefix: [u8; LENGTH_LEN],
    max_record_size: usize,
) -> Result<usize, SpanningError> {
    let length = i32::from_be_bytes(prefix);
    let Ok(length) = usize::try_from(length) else {
        return Err(SpanningError::NegativeLength { length });
    };
    if length > max_record_size {
        return Err(SpanningError::RecordTooLarge { length, limit: max_record_size });
    }
    Ok(length)
}

const MIN_CAPACITY: usize = 1 << 10;
