//! Segments in use by each subpartition, and the number of saturated subpartitions.

/// Counts of one local pool (spec 1.5, max-buffers-per-channel).
#[derive(Debug, Default)]
pub(crate) struct SubpartitionCounts {
    /// Segments in use, by subpartition; empty if no request names a subpartition.
    out: Vec<usize>,
    /// Soft maximum: a subpartition with this many segments is saturated, but may still get more.
    max: usize,
    /// Invariant: the number of entries of `out` that are at least `max`.
    saturated: usize,
    /// True if one subpartition that is not saturated is enough.
    needs_one: bool,
}

impl SubpartitionCounts {
    pub(crate) fn new(count: usize, max: usize) -> Self {
        Self { out: vec![0; count], max: max.max(1), ..Self::default() }
    }

    pub(crate) fn taken(&mut self, subpartition: Option<usize>) {
        if let Some(out) = subpartition.and_then(|subpartition| self.out.get_mut(subpartition)) {
            *out += 1;
            self.saturated += usize::from(*out == self.max);
        }
    }

    pub(crate) fn returned(&mut self, subpartition: Option<usize>) {
        if let Some(out) = subpartition.and_then(|subpartition| self.out.get_mut(subpartition)) {
            self.saturated -= usize::from(*out == self.max);
            *out -= 1;
        }
    }

    pub(crate) fn need_one(&mut self) {
        self.needs_one = true;
    }

    pub(crate) fn is_saturated(&self) -> bool {
        self.saturated > 0 && (!self.needs_one || self.saturated == self.out.len())
    }

    /// Segments in use by each subpartition.
    pub(crate) fn out(&self) -> &[usize] {
        &self.out
    }
}
