//! Assembles a page of pieces: some are memory of a batch, the others are written here.

use std::ops::Range;

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::Bytes;

use super::ALIGNMENT;
use super::layout::Region;

/// A page that grows buffer by buffer.
///
/// Written bytes are in one block, in which each buffer has the same alignment as in the page:
///
/// ```text
/// page   | header  offsets | data of the batch |0| bitmap |   pieces: block, batch, block
/// block  | header  offsets |..................0| bitmap |     the dots belong to no piece
/// ```
pub(super) struct Assembly {
    /// Invariant: its length is a multiple of the alignment.
    block: MutableBuffer,
    pieces: Vec<Piece>,
    /// Length of the page, a multiple of the alignment.
    len: usize,
}

enum Piece {
    Own(Range<usize>),
    Theirs(Buffer),
}

impl Assembly {
    /// Starts a page with room for the header, which is written last.
    pub(super) fn new(header_len: usize) -> Self {
        let mut page = Self { block: MutableBuffer::new(header_len), pieces: Vec::new(), len: 0 };
        page.write(header_len, |_| ());
        page
    }

    /// Adds a buffer of `len` zeros, which `fill` overwrites.
    pub(super) fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Region {
        let region = Region { start: self.len, len };
        let start = self.block.len();
        let end = start + len.next_multiple_of(ALIGNMENT);
        self.block.resize(end, 0);
        fill(&mut self.block[start..start + len]);
        self.len += end - start;
        self.own(start..end);
        region
    }

    /// Adds a buffer of the batch, in place.
    pub(super) fn take(&mut self, buffer: Buffer) -> Region {
        let region = Region { start: self.len, len: buffer.len() };
        if buffer.is_empty() {
            return region;
        }
        self.len += buffer.len();
        self.pieces.push(Piece::Theirs(buffer));
        let padding = self.len.next_multiple_of(ALIGNMENT) - self.len;
        if padding > 0 {
            self.block.resize(self.block.len() + ALIGNMENT, 0);
            self.len += padding;
            self.own(self.block.len() - padding..self.block.len());
        }
        region
    }

    /// Current length of the page.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lets `fill` write the header; returns the pieces.
    pub(super) fn finish(mut self, header_len: usize, fill: impl FnOnce(&mut [u8])) -> Vec<Bytes> {
        fill(&mut self.block[..header_len]);
        let block = Bytes::from_owner(Memory(self.block.into()));
        let pieces = self.pieces.into_iter().map(|piece| match piece {
            Piece::Own(range) => block.slice(range),
            Piece::Theirs(buffer) => Bytes::from_owner(Memory(buffer)),
        });
        pieces.collect()
    }

    fn own(&mut self, range: Range<usize>) {
        match self.pieces.last_mut() {
            Some(Piece::Own(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Piece::Own(range)),
        }
    }
}

/// Memory owned by a reference-counted Arrow buffer.
struct Memory(Buffer);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
