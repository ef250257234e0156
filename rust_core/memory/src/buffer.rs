//! Counted read-only views.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::Block;
use crate::foreign::{Chain, Charge, ForeignMemory};
use crate::peer_region::Borrowed;
use crate::pooled_segment::PooledSegment;
use crate::region::RegionFile;

/// A counted, read-only view of bytes in a pool segment, of ordinary memory (events), of bytes that
/// another process lent, or of pieces of [foreign memory](ForeignMemory).
///
/// Clones and slices share one count; the segment goes back to its pool exactly once, when the
/// last of them is dropped. Ordinary memory never counts against a pool.
#[derive(Clone)]
pub struct Buffer {
    view: View,
    /// How many bytes these stand for, where they are compressed.
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
    /// The first `len` bytes of a segment that nobody writes any more.
    pub fn freeze(segment: PooledSegment, len: usize) -> Self {
        let block = Block::frozen(segment, len);
        let to = block.published().len;
        Self::of_block(Arc::new(block), 0, to)
    }

    /// Like [`freeze`](Self::freeze), of bytes that stand for `plain_len` others.
    pub fn freeze_compressed(segment: PooledSegment, len: usize, plain_len: usize) -> Self {
        Self { plain_len: Some(plain_len), ..Self::freeze(segment, len) }
    }

    pub(crate) fn of_block(block: Arc<Block>, from: usize, to: usize) -> Self {
        Self { view: View::Pooled { block, from, to }, plain_len: None }
    }

    pub(crate) fn borrowed(bytes: Arc<Borrowed>) -> Self {
        let to = bytes.len();
        Self { view: View::Borrowed { bytes, from: 0, to }, plain_len: None }
    }

    /// Pieces of foreign memory, in their order. The charge is given back once no buffer shares it.
    pub fn of_pieces(pieces: Vec<Bytes>, charge: Arc<Charge>, memory: Arc<ForeignMemory>) -> Self {
        let chain = Chain::new(pieces, charge, memory);
        Self { view: View::Pieces(Arc::new(chain)), plain_len: None }
    }

    /// The bytes; borrowed for as long as this view lives. Those in pieces are put together once, in a
    /// copy: who can, reads their [chunks](Self::chunks).
    pub fn as_slice(&self) -> &[u8] {
        match &self.view {
            View::Pooled { block, from, to } => block.read(*from, *to),
            View::Heap(bytes) => bytes,
            View::Borrowed { bytes, from, to } => &bytes.as_slice()[*from..*to],
            View::Pieces(chain) => chain.whole(),
        }
    }

    /// The bytes as they lie in memory.
    pub fn chunks(&self) -> Chunks<'_> {
        match &self.view {
            View::Pieces(chain) => Chunks::Many(chain.pieces().iter()),
            _ => Chunks::One(Some(self.as_slice())),
        }
    }

    /// The pieces, which are not charged from now on, as far as this buffer is concerned.
    ///
    /// # Errors
    /// The buffer itself, where it is in one.
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

    /// How many bytes it stands for: its length, unless it is compressed.
    pub fn plain_len(&self) -> usize {
        self.plain_len.unwrap_or_else(|| self.len())
    }

    /// Whether its bytes stand for others.
    pub fn is_compressed(&self) -> bool {
        self.plain_len.is_some()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A view of `from..to` of this view, sharing its count.
    ///
    /// # Panics
    /// When the range is not inside this view, or a part only of one that is compressed.
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.len(), "a slice stays inside its buffer");
        let is_whole = from == 0 && to == self.len();
        assert!(is_whole || !self.is_compressed(), "a compressed buffer is taken whole");
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

    /// Whether the bytes lie in a pool segment.
    pub fn is_pooled(&self) -> bool {
        matches!(self.view, View::Pooled { .. })
    }

    /// Whether the bytes lie in memory of another process, which gets it back with the last view.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.view, View::Borrowed { .. })
    }

    /// The region that the bytes lie in, and where in there: what another process needs to read them.
    /// None of memory that is not shared.
    pub fn place(&self) -> Option<(RegionFile, u64)> {
        let View::Pooled { block, from, .. } = &self.view else {
            return None;
        };
        let (file, offset) = block.segment().place()?;
        Some((file, (offset + from) as u64))
    }

    /// Charges the segment to "held by the caller" instead of to its pool, so that a batch the
    /// caller keeps can never starve the exchange.
    ///
    /// Returns false when too many segments are held already: copy the bytes out instead.
    /// Buffers of ordinary memory are always fine, and so is foreign memory.
    pub fn pin(&self) -> bool {
        match &self.view {
            View::Pooled { block, .. } => block.segment().pin(),
            View::Borrowed { bytes, .. } => bytes.segment().pin(),
            View::Heap(_) | View::Pieces(_) => true,
        }
    }

    /// The segment, to be written again, and how many of its first bytes this view showed.
    ///
    /// # Errors
    /// The buffer itself, where others refer to the segment as well, or it is none or a later part.
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

    /// The same bytes as a [`Bytes`], without a copy unless they are in pieces.
    pub fn into_bytes(self) -> Bytes {
        match self.view {
            View::Heap(bytes) => bytes,
            View::Pieces(chain) => chain.whole().clone(),
            View::Pooled { .. } | View::Borrowed { .. } => Bytes::from_owner(self),
        }
    }
}

/// The slices that bytes lie in, in their order.
#[derive(Debug)]
pub enum Chunks<'a> {
    /// All in one, until it is taken.
    One(Option<&'a [u8]>),
    /// Those that are left.
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
