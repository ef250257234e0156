//! Turns the bytes of a page, or of a record from several buffers, into a record.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_record::{read_page, read_pieces};

use super::RecordReader;
use super::record::Record;
use crate::aligned::Aligned;
use crate::copies::Copies;
use crate::error::{ExchangeError, Result};

impl RecordReader {
    pub(super) fn record(&mut self, channel: usize, record: Bytes) -> Result<Option<Record>> {
        if self.schema.is_some() {
            Copies::count(&self.copies.spanning, record.len());
            return self.page(channel, record.into());
        }
        self.channels[channel].rows += 1;
        self.counters.add(1, 0, 0);
        Ok(Some(Record::Bytes(record)))
    }

    /// Returns the batch of a page, or copies its rows to be coalesced.
    pub(super) fn page(&mut self, channel: usize, page: Buffer) -> Result<Option<Record>> {
        let waits = self.coalescing.as_ref().is_some_and(|coalescing| {
            // With nothing to coalesce it with, the page is returned without a copy.
            let is_alone = coalescing.is_empty() && !self.gate.is_available();
            !is_alone && !coalescing.is_large(page.len())
        });
        // Dropped last where no batch is returned: a buffer leaves foreign memory to the user's threads,
        // but a batch over it frees it at once, here under the caller's locks.
        let memory = page.clone();
        if !waits {
            let batch = self.batch(channel, page, true)?;
            // The batch holds all foreign memory of the page, which must end with the batch.
            drop(memory.into_pieces());
            return Ok(Some(Record::Batch(batch)));
        }
        Copies::count(&self.copies.coalesced, page.len());
        let batch = self.batch(channel, page, false)?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.push(&batch, || self.gate.channel_name(channel))?;
        }
        Ok(None)
    }

    fn batch(&mut self, channel: usize, page: Buffer, is_kept: bool) -> Result<RecordBatch> {
        let Some(schema) = &self.schema else {
            return Err(ExchangeError::WrongRecords(
                "the producer writes Arrow batches, this reader expects bytes",
            ));
        };
        let read = match page.into_pieces() {
            Ok(pieces) => read_pieces(schema, pieces),
            Err(page) if is_kept => read_page(schema, self.keep(page)),
            Err(page) => read_page(schema, page.into_bytes()),
        };
        let batch = read.map_err(|source| {
            let channel = self.gate.channel_name(channel);
            ExchangeError::Page { channel, source: Arc::new(source) }
        })?;
        self.channels[channel].rows += batch.num_rows() as u64;
        self.counters.add(batch.num_rows() as u64, 0, 0);
        Ok(batch)
    }

    /// Returns memory that the caller may keep: the segment itself, or a copy if too many are kept
    /// already.
    fn keep(&self, buffer: Buffer) -> Bytes {
        if buffer.keep() {
            return buffer.into_bytes();
        }
        Copies::count(&self.copies.pool_low, buffer.len());
        Bytes::from_owner(Aligned(arrow_buffer::Buffer::from_slice_ref(buffer.as_slice())))
    }
}
