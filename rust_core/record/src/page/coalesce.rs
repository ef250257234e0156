//! Puts the rows of small batches together into larger ones.
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

/// Why batches could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum CoalesceError {
    /// A batch of another schema.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What was put together is no batch.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Copies the rows of batches behind each other, into batches of about one size in ordinary memory.
///
/// A batch is copied as soon as it comes, so what it was made of is free again at once. What is put
/// together is a page whose target is as large as the batches are to be.
#[derive(Debug)]
pub struct BatchCoalescer {
    schema: Arc<PageSchema>,
    batch_bytes: usize,
    page: Option<PageBuilder<Target>>,
    profile: PageProfile,
    /// Of a batch that was so small that it was copied once more.
    spare: Option<Target>,
}

impl BatchCoalescer {
    /// Makes batches of up to so many bytes, counted as of a page.
    #[must_use]
    pub fn new(schema: Arc<PageSchema>, batch_bytes: usize) -> Self {
        Self { schema, batch_bytes, page: None, profile: PageProfile::new(), spare: None }
    }

    /// Whether no row waits for others.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.page.is_none()
    }

    /// Whether a page of so many bytes is large enough to go by itself: putting it together with
    /// others would copy much and save little. A smaller one always fits an empty batch.
    #[must_use]
    pub fn is_large(&self, page_bytes: usize) -> bool {
        page_bytes > self.batch_bytes / 2
    }

    /// Copies all rows of a batch that came as a page which [is not large](Self::is_large); `complete`
    /// gets each batch that is full with it.
    ///
    /// # Errors
    /// A batch of another schema.
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

    /// The rows that wait for others, as they are.
    ///
    /// # Errors
    /// What Arrow refuses, which it did not in the batches that were pushed.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, CoalesceError> {
        let Some(page) = self.page.take() else {
            return Ok(None);
        };
        page.teach(&mut self.profile);
        let (target, length) = page.finish();
        let page = if length <= self.batch_bytes / 2 {
            // Whoever keeps a few rows is not to keep all of the target with them.
            let copy = Buffer::from_slice_ref(&target.as_ref()[..length]);
            self.spare = Some(target);
            copy
        } else {
            target.into_buffer(length)
        };
        Ok(Some(read_body(&self.schema, &Body::Whole(page))?))
    }
}

/// Memory that a batch can be read from in place.
#[derive(Debug)]
struct Target {
    /// From the system as zeros, which costs nothing where no row comes to lie.
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
