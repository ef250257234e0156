//! Counted read-only views.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::Block;
use crate::pooled_segment::PooledSegment;

/// A counted, read-only view of bytes in a pool segment, or of ordinary memory (events).
///
/// Clones and slices share one count; the segment goes back to its pool exactly once, when the
/// last of them is dropped. Ordinary memory never counts against a pool.
#[derive(Clone)]
pub struct Buffer(Inner);

#[derive(Clone)]
enum Inner {
    Pooled { block: Arc<Block>, from: usize, to: usize },
    Heap(Bytes),
}

impl Buffer {
    /// The first `len` bytes of a segment that nobody writes any more.
    pub fn freeze(segment: PooledSegment, len: usize) -> Self {
        let block = Block::frozen(segment, len);
        let to = block.published().len;
        Self(Inner::Pooled { block: Arc::new(block), from: 0, to })
    }

    pub(crate) fn of_block(block: Arc<Block>, from: usize, to: usize) -> Self {
        Self(Inner::Pooled { block, from, to })
    }

    /// The bytes; borrowed for as long as this view lives.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Inner::Pooled { block, from, to } => block.read(*from, *to),
            Inner::Heap(bytes) => bytes,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Pooled { from, to, .. } => to - from,
            Inner::Heap(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A view of `from..to` of this view, sharing its count.
    ///
    /// # Panics
    /// When the range is not inside this view.
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.len(), "a slice stays inside its buffer");
        match &self.0 {
            Inner::Pooled { block, from: start, .. } => {
                Self::of_block(Arc::clone(block), start + from, start + to)
            }
            Inner::Heap(bytes) => Self(Inner::Heap(bytes.slice(from..to))),
        }
    }

    /// Whether the bytes lie in a pool segment.
    pub fn is_pooled(&self) -> bool {
        matches!(self.0, Inner::Pooled { .. })
    }

    /// Charges the segment to "held by the caller" instead of to its pool, so that a batch the
    /// caller keeps can never starve the exchange.
    ///
    /// Returns false when too many segments are held already: copy the bytes out instead.
    /// Buffers of ordinary memory are always fine.
    pub fn pin(&self) -> bool {
        match &self.0 {
            Inner::Pooled { block, .. } => block.segment().pin(),
            Inner::Heap(_) => true,
        }
    }

    /// The same bytes as a [`Bytes`], without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Inner::Heap(bytes) => bytes,
            Inner::Pooled { .. } => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self(Inner::Heap(bytes))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("pooled", &self.is_pooled())
            .finish()
    }
}
