//! What is emitted.

use arrow_array::RecordBatch;

/// A batch, and what is known of the memory it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Emitted<'a> {
    /// The rows.
    pub batch: &'a RecordBatch,
    /// Bytes that stay in memory as long as the batch does, as far as its owner knows: of what it is a
    /// slice of, all. What Arrow itself shows need not be in here.
    pub pinned: u64,
}

impl Emitted<'_> {
    /// Bytes from which on the pages of a batch may be pieces of it, so that what it keeps matters. A
    /// smaller one would fill its pages badly, since none of them has rows of another batch: more buffers,
    /// and more batches for the reader, cost what the copy does.
    pub const fn least_in_pieces(segment_size: usize) -> usize {
        segment_size / 4 * 3
    }
}

impl<'a> From<&'a RecordBatch> for Emitted<'a> {
    fn from(batch: &'a RecordBatch) -> Self {
        Self { batch, pinned: 0 }
    }
}
