//! `Emitted`: a batch with the size of the memory that it keeps alive.
//!
//! Decision: ADR 0021.

use arrow_array::RecordBatch;

/// A batch, and the size of the memory that it keeps alive.
#[derive(Clone, Copy, Debug)]
pub struct Emitted<'a> {
    /// The rows.
    pub batch: &'a RecordBatch,
    /// Bytes that cannot be freed while the batch lives, as far as the caller knows: for a slice,
    /// the size of the whole batch. 0 if the caller knows no more than the batch's buffers show.
    pub pinned: u64,
}

impl Emitted<'_> {
    /// Returns the smallest size in bytes of a batch that may be sent in pieces, without a copy. A
    /// page in pieces has rows of one batch only, so smaller batches would make many small pages,
    /// which cost the sender and the reader as much as the copy.
    pub const fn least_in_pieces(segment_size: usize) -> usize {
        segment_size / 4 * 3
    }
}

impl<'a> From<&'a RecordBatch> for Emitted<'a> {
    fn from(batch: &'a RecordBatch) -> Self {
        Self { batch, pinned: 0 }
    }
}
