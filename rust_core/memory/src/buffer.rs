//! Reference-counted read-only views of bytes.
//!
//! Decision: ADR 0021.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::Block;
use crate::foreign::{Chain, Charge, ForeignMemory};
use crate::peer_region::{Borrowed, PeerBytes, PeerReadError, PeerRegion};
use crate::pooled_segment::PooledSegment;
use crate::region::RegionFile;

/// A reference-counted, read-only view of bytes in one of four places: a pool segment, heap memory
/// (events), memory that another process lent, or pieces of [foreign memory](ForeignMemory).
///
/// Clones and slices share one count. The segment returns to its pool exactly once, when the last
/// of them is dropped. Heap memory is not charged to a pool.
#[derive(Clone)]
pub struct Buffer {
    view: View,
    /// Length before compression; `None` if the bytes are not compressed.
    plain_len: Option<usize>,
}

#[derive(Clone)]
enum View {
    Pooled { block: Arc<Block>, from: usize, to: usize },
    Heap(Bytes),
    Borrowed { bytes: Arc<Borrowed>, from: usize, to: usize },
    Pieces(Arc<Chain>),
}

impl Buffer {
    /// Makes a buffer of the first `len` bytes of a segment.
    pub fn freeze(segment: PooledSegment, len: usize) -> Self {
        let block = Block::frozen(segment, len);
        let to = block.published().len;
        Self::of_block(Arc::new(block), 0, to)
    }

    /// Like [`freeze`](Self::freeze), for bytes that were `plain_len` bytes before compression.
    pub fn freeze_compressed(segment: PooledSegment, len: usize, plain_len: usize) -> Self {
        Self { plain_len: Some(plain_len), ..Self::freeze(segment, len) }
    }

    pub(crate) fn of_block(block: Arc<Block>, from: usize, to: usize) -> Self {
        Self { view: View::Pooled { block, from, to }, plain_len: None }
    }

    /// Borrows `len` bytes at `offset` that the owner of a region lent, and charges them to
    /// `segment`, which stays empty. If the region is not mapped, the bytes are copied into the
    /// segment instead. The loan is dropped with the last view of the bytes, but never in a forked
    /// child.
    ///
    /// # Errors
    /// [`PeerReadError`] if the range exceeds the region or the segment, or the kernel refuses to
    /// read it.
    pub fn borrow(
        region: &Arc<PeerRegion>,
        offset: u64,
        len: usize,
        segment: PooledSegment,
        loan: Box<dyn Send + Sync>,
    ) -> Result<Self, PeerReadError> {
        Ok(match region.borrow(offset, len, segment, loan)? {
            PeerBytes::Borrowed(bytes) => {
                let view = View::Borrowed { bytes: Arc::new(bytes), from: 0, to: len };
                Self { view, plain_len: None }
            }
            PeerBytes::Copied(segment) => Self::freeze(segment, len),
        })
    }

    /// Makes a buffer of pieces of foreign memory. The charge ends with the last buffer that shares
    /// it.
    pub fn of_pieces(pieces: Vec<Bytes>, charge: Arc<Charge>, memory: Arc<ForeignMemory>) -> Self {
        let chain = Chain::new(pieces, charge, memory);
        Self { view: View::Pieces(Arc::new(chain)), plain_len: None }
    }

    /// Makes a buffer of bytes outside the pool that were `plain_len` bytes before compression.
    pub fn of_compressed(bytes: Bytes, plain_len: usize) -> Self {
        Self { view: View::Heap(bytes), plain_len: Some(plain_len) }
    }

    /// Returns the bytes as one slice. Pieces are copied together on the first call;
    /// [`chunks`](Self::chunks) reads them without a copy.
    pub fn as_slice(&self) -> &[u8] {
        match &self.view {
            View::Pooled { block, from, to } => block.read(*from, *to),
            View::Heap(bytes) => bytes,
            View::Borrowed { bytes, from, to } => &bytes.as_slice()[*from..*to],
            View::Pieces(chain) => chain.whole(),
        }
    }

    /// Iterates over the contiguous slices of the bytes.
    pub fn chunks(&self) -> Chunks<'_> {
        match &self.view {
            View::Pieces(chain) => Chunks::Many(chain.pieces().iter()),
            _ => Chunks::One(Some(self.as_slice())),
        }
    }

    /// Takes the pieces and ends this buffer's part of their charge.
    ///
    /// # Errors
    /// The buffer itself if it is not made of pieces.
    pub fn into_pieces(self) -> Result<Vec<Bytes>, Self> {
        match self.view {
            View::Pieces(chain) => Ok(match Arc::try_unwrap(chain) {
                Ok(chain) => chain.into_pieces(),
                Err(shared) => shared.pieces().to_vec(),
            }),
            view => Err(Self { view, plain_len: self.plain_len }),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.view {
            View::Pooled { from, to, .. } | View::Borrowed { from, to, .. } => to - from,
            View::Heap(bytes) => bytes.len(),
            View::Pieces(chain) => chain.len(),
        }
    }

    /// Length in bytes before compression; equals [`len`](Self::len) for uncompressed bytes.
    pub fn plain_len(&self) -> usize {
        self.plain_len.unwrap_or_else(|| self.len())
    }

    /// True if the bytes are compressed.
    pub fn is_compressed(&self) -> bool {
        self.plain_len.is_some()
    }

    /// True if the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a view of `from..to` of this view that shares its count.
    ///
    /// # Panics
    /// If the range exceeds this view, or is only a part of a compressed buffer.
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.len(), "slice {from}..{to} of {} bytes", self.len());
        let is_whole = from == 0 && to == self.len();
        assert!(is_whole || !self.is_compressed(), "a compressed buffer cannot be sliced");
        let view = match &self.view {
            View::Pooled { block, from: start, .. } => {
                View::Pooled { block: Arc::clone(block), from: start + from, to: start + to }
            }
            View::Heap(bytes) => View::Heap(bytes.slice(from..to)),
            View::Borrowed { bytes, from: start, .. } => {
                View::Borrowed { bytes: Arc::clone(bytes), from: start + from, to: start + to }
            }
            View::Pieces(chain) if is_whole => View::Pieces(Arc::clone(chain)),
            View::Pieces(chain) => View::Heap(chain.whole().slice(from..to)),
        };
        Self { view, plain_len: self.plain_len }
    }

    /// True if the bytes are in a segment of a pool of this process.
    pub fn is_pooled(&self) -> bool {
        matches!(self.view, View::Pooled { .. })
    }

    /// True if another process lent the bytes; it gets them back with the last view.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.view, View::Borrowed { .. })
    }

    /// Returns the region and the offset of the bytes, with which another process can read them;
    /// `None` for memory that is not shared.
    pub fn place(&self) -> Option<(RegionFile, u64)> {
        let View::Pooled { block, from, .. } = &self.view else {
            return None;
        };
        let (file, offset) = block.segment().place()?;
        Some((file, (offset + from) as u64))
    }

    /// Counts the segment as pinned by the caller instead of for its pool, so that batches the
    /// caller keeps cannot starve the exchange.
    ///
    /// Returns false if too many segments are pinned already; the caller must copy the bytes then.
    /// Heap memory and foreign memory can always be pinned.
    pub fn pin(&self) -> bool {
        match &self.view {
            View::Pooled { block, .. } => block.segment().pin(),
            View::Borrowed { bytes, .. } => bytes.segment().pin(),
            View::Heap(_) | View::Pieces(_) => true,
        }
    }

    /// [Pins](Self::pin) the buffer for a caller whose forked children may read it too: each gets a
    /// copy, since the memory is not shared with children (F2).
    pub fn keep(&self) -> bool {
        match &self.view {
            View::Pooled { block, to, .. } if block.segment().is_shared() => {
                block.segment().keep(block.read(0, *to))
            }
            View::Borrowed { bytes, .. } => bytes.segment().keep(bytes.as_slice()),
            _ => self.pin(),
        }
    }

    /// Takes the segment, writable again, and the number of its first bytes that this view covered.
    ///
    /// # Errors
    /// The buffer itself if it is not in a segment, does not start at the segment's first byte, or
    /// is not the only reference to the segment.
    pub fn into_segment(self) -> Result<(PooledSegment, usize), Self> {
        let plain_len = self.plain_len;
        match self.view {
            View::Pooled { block, from: 0, to } => match Arc::try_unwrap(block) {
                Ok(block) => Ok((block.into_segment(), to)),
                Err(block) => Err(Self { view: View::Pooled { block, from: 0, to }, plain_len }),
            },
            view => Err(Self { view, plain_len }),
        }
    }

    /// Converts to [`Bytes`]; copies only pieces.
    pub fn into_bytes(self) -> Bytes {
        match self.view {
            View::Heap(bytes) => bytes,
            View::Pieces(chain) => chain.whole().clone(),
            View::Pooled { .. } | View::Borrowed { .. } => Bytes::from_owner(self),
        }
    }
}

/// Iterator over the contiguous slices of a [`Buffer`], in order.
#[derive(Debug)]
pub enum Chunks<'a> {
    /// One slice; `None` after it was returned.
    One(Option<&'a [u8]>),
    /// Remaining slices.
    Many(std::slice::Iter<'a, Bytes>),
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::One(chunk) => chunk.take(),
            Self::Many(pieces) => pieces.next().map(|piece| &**piece),
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
        Self { view: View::Heap(bytes), plain_len: None }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("pooled", &self.is_pooled())
            .field("plain_len", &self.plain_len())
            .finish()
    }
}
