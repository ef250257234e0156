//! Turns the pages of a reader into batches.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_record::{PageSchema, read_page, read_pieces};

use crate::aligned::Aligned;
use crate::copies::Copies;
use crate::error::{ExchangeError, Result};

/// Makes the batches of the pages of one reader.
pub(super) struct Pages {
    /// None if records are bytes.
    pub(super) schema: Option<Arc<PageSchema>>,
    pub(super) copies: Arc<Copies>,
}

impl Pages {
    /// Returns the batch of a page. Unless it `is_kept`, it is over memory that the caller gives back at once.
    /// `channel` names the page's channel in errors.
    ///
    /// # Errors
    /// Records that are no batches, or a page that is damaged.
    pub(super) fn batch(
        &self,
        page: Buffer,
        is_kept: bool,
        channel: impl FnOnce() -> String,
    ) -> Result<RecordBatch> {
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
        read.map_err(|source| ExchangeError::Page { channel: channel(), source: Arc::new(source) })
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
