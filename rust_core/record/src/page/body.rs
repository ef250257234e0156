//! The bytes of a page that is read.

use arrow_buffer::Buffer;
use bytes::Bytes;

use super::error::PageError;

/// Contiguous bytes, or several pieces. The first piece holds the header, and each buffer must be
/// within one.
pub(super) enum Body {
    Whole(Buffer),
    Pieces {
        /// Offset of each piece in the page.
        pieces: Vec<(usize, Buffer)>,
        len: usize,
    },
}

impl Body {
    pub(super) fn of_pieces(pieces: Vec<Bytes>) -> Self {
        let mut len = 0;
        let placed = pieces.into_iter().map(|piece| {
            let start = len;
            len += piece.len();
            (start, Buffer::from(piece))
        });
        let pieces = placed.collect();
        Self::Pieces { pieces, len }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(page) => page.len(),
            Self::Pieces { len, .. } => *len,
        }
    }

    /// Returns the first bytes, which include the header.
    pub(super) fn front(&self) -> &[u8] {
        match self {
            Self::Whole(page) => page,
            Self::Pieces { pieces, .. } => pieces.first().map_or(&[], |(_, piece)| piece),
        }
    }

    /// Returns the bytes of a buffer that is within the page.
    ///
    /// # Errors
    /// The buffer is not within one piece.
    pub(super) fn buffer(&self, start: usize, len: usize) -> Result<Buffer, PageError> {
        match self {
            Self::Whole(page) => Ok(page.slice_with_length(start, len)),
            Self::Pieces { pieces, .. } => {
                let behind = pieces.partition_point(|(first, _)| *first <= start);
                let found = behind.checked_sub(1).and_then(|index| pieces.get(index));
                found
                    .map(|(first, piece)| (start - first, piece))
                    .filter(|(start, piece)| start + len <= piece.len())
                    .map(|(start, piece)| piece.slice_with_length(start, len))
                    .ok_or(PageError::Torn { start, len })
            }
        }
    }
}
