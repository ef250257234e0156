//! The rows of a source to append: a list of row numbers, or a range.

use std::ops::Range;

/// Rows of a source, in the order of writing.
pub(super) trait RowSet: Copy {
    fn len(self) -> usize;

    /// The row numbers, in order.
    fn iter(self) -> impl Iterator<Item = usize> + Clone;

    /// The rows as a range, if they are one.
    fn range(self) -> Option<Range<usize>>;

    /// The first `n` rows.
    fn head(self, n: usize) -> Self;

    /// All but the first `n` rows.
    fn tail(self, n: usize) -> Self;

    /// Copies the words of these rows to the front of `target`.
    fn gather<W: Copy>(self, words: &[W], target: &mut [W]);
}

impl RowSet for &[u32] {
    fn len(self) -> usize {
        self.len()
    }

    fn iter(self) -> impl Iterator<Item = usize> + Clone {
        <[u32]>::iter(self).map(|&row| row as usize)
    }

    fn range(self) -> Option<Range<usize>> {
        None
    }

    fn head(self, n: usize) -> Self {
        &self[..n]
    }

    fn tail(self, n: usize) -> Self {
        &self[n..]
    }

    #[inline]
    fn gather<W: Copy>(self, words: &[W], target: &mut [W]) {
        for (word, &row) in target.iter_mut().zip(self) {
            *word = words[row as usize];
        }
    }
}

/// Rows `start..start + len`.
#[derive(Clone, Copy)]
pub(super) struct Contiguous {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl RowSet for Contiguous {
    fn len(self) -> usize {
        self.len
    }

    fn iter(self) -> impl Iterator<Item = usize> + Clone {
        self.start..self.start + self.len
    }

    fn range(self) -> Option<Range<usize>> {
        Some(self.start..self.start + self.len)
    }

    fn head(self, n: usize) -> Self {
        debug_assert!(n <= self.len);
        Self { start: self.start, len: n }
    }

    fn tail(self, n: usize) -> Self {
        Self { start: self.start + n, len: self.len - n }
    }

    #[inline]
    fn gather<W: Copy>(self, words: &[W], target: &mut [W]) {
        target[..self.len].copy_from_slice(&words[self.start..self.start + self.len]);
    }
}
