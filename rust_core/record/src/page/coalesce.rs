//! Combines the rows of small batches into larger ones.
//!
//! Decision: ADR 0020.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;

use super::ALIGNMENT;
use super::body::Body;
use super::builder::PageBuilder;
use super::error::PageError;
use super::layout::PageProfile;
use super::reader::read_body;
use super::schema::PageSchema;
use super::source::{Source, SourceError};

/// Failures of combining batches.
#[derive(Debug, thiserror::Error)]
pub enum CoalesceError {
    /// A batch has another schema.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The combined page is not a valid batch.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Copies the rows of batches into larger batches of a target size, on the heap.
///
/// A batch is copied when it is pushed, so that its memory can be freed at once. The rows are
/// written into an open page, whose target has the size of the combined batches.
#[derive(Debug)]
pub struct BatchCoalescer {
    schema: Arc<PageSchema>,
    batch_bytes: usize,
    page: Option<PageBuilder<Target>>,
    profile: PageProfile,
    /// Target of an earlier batch that was so small that its rows were copied out.
    spare: Option<Target>,
}

impl BatchCoalescer {
    /// Creates a coalescer for batches of up to `batch_bytes` bytes, measured as pages.
    #[must_use]
    pub fn new(schema: Arc<PageSchema>, batch_bytes: usize) -> Self {
        Self { schema, batch_bytes, page: None, profile: PageProfile::new(), spare: None }
    }

    /// True if no row is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.page.is_none()
    }

    /// Returns true if a page of `page_bytes` bytes is large enough to pass on: combining it would
    /// copy much and save little. A smaller page always fits an empty batch.
    #[must_use]
    pub fn is_large(&self, page_bytes: usize) -> bool {
        page_bytes > self.batch_bytes / 2
    }

    /// Copies all rows of a batch whose page [is not large](Self::is_large). Calls `complete` with
    /// each combined batch that is full.
    ///
    /// # Errors
    /// A batch has another schema.
    pub fn push(
        &mut self,
        batch: &RecordBatch,
        complete: &mut impl Extend<RecordBatch>,
    ) -> Result<(), CoalesceError> {
        let source = Source::try_new(&self.schema, batch)?;
        let mut done = 0;
        while done < source.num_rows() {
            let page = self.page.get_or_insert_with(|| {
                let target = self.spare.take().unwrap_or_else(|| Target::new(self.batch_bytes));
                PageBuilder::new(Arc::clone(&self.schema), target, &self.profile)
            });
            let appended = page.append_range(&source, done, source.num_rows() - done);
            done += appended;
            if done == source.num_rows() {
                break;
            }
            if appended == 0 && page.is_empty() {
                self.page = None;
                complete.extend([batch.slice(done, source.num_rows() - done)]);
                break;
            }
            complete.extend(self.finish()?);
        }
        Ok(())
    }

    /// Returns the pending rows.
    ///
    /// # Errors
    /// Arrow rejects the combined batch, which cannot happen if it accepted the pushed ones.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, CoalesceError> {
        let Some(page) = self.page.take() else {
            return Ok(None);
        };
        page.teach(&mut self.profile);
        let (target, length) = page.finish();
        let page = if length <= self.batch_bytes / 2 {
            // Copies the rows, so that a small batch does not keep the whole target alive.
            let copy = Buffer::from_slice_ref(&target.as_ref()[..length]);
            self.spare = Some(target);
            copy
        } else {
            target.into_buffer(length)
        };
        Ok(Some(read_body(&self.schema, &Body::Whole(page))?))
    }
}

/// Target memory of the open page, from which a batch is read in place.
#[derive(Debug)]
struct Target {
    /// Allocates zeroed memory, whose pages the kernel commits only when rows are written.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Target {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, len }
    }

    fn into_buffer(self, len: usize) -> Buffer {
        Buffer::from_vec(self.bytes).slice_with_length(self.start, len)
    }
}

impl AsRef<[u8]> for Target {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for Target {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
