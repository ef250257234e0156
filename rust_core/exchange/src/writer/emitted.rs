//! `Emitted`: a batch with the memory that it keeps.
//!
//! Decision: ADR 0021.

use arrow_array::RecordBatch;

/// A batch, and the size of the memory that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Emitted<'a> {
    /// The rows.
    pub batch: &'a RecordBatch,
    /// Bytes that cannot be freed while the batch lives, as far as its owner knows. For a slice,
    /// the size of the whole. May leave out the buffers that Arrow shows.
    pub pinned: u64,
}

impl Emitted<'_> {
    /// Returns the size from which on a batch may be sent in pieces, without a copy. A page in
    /// pieces holds rows of one batch only, so that smaller batches would make many small pages:
    /// those cost the sender and the reader as much as the copy.
    pub const fn least_in_pieces(segment_size: usize) -> usize {
        segment_size / 4 * 3
    }
}

impl<'a> From<&'a RecordBatch> for Emitted<'a> {
    fn from(batch: &'a RecordBatch) -> Self {
        Self { batch, pinned: 0 }
    }
}
