//! How many segments each subpartition has out, and how many of them reached the soft maximum.

/// The counts of one local pool (spec 1.5, max-buffers-per-channel).
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// Segments out, by subpartition; empty where nobody asks for a subpartition.
    out: Vec<usize>,
    /// From here on a subpartition is saturated; it may still get more.
    max: usize,
    /// Invariant: how many of `out` are at least `max`.
    saturated: usize,
}

impl Channels {
    pub(crate) fn new(count: usize, max: usize) -> Self {
        Self { out: vec![0; count], max: max.max(1), saturated: 0 }
    }

    pub(crate) fn taken(&mut self, channel: Option<usize>) {
        if let Some(out) = channel.and_then(|channel| self.out.get_mut(channel)) {
            *out += 1;
            self.saturated += usize::from(*out == self.max);
        }
    }

    pub(crate) fn returned(&mut self, channel: Option<usize>) {
        if let Some(out) = channel.and_then(|channel| self.out.get_mut(channel)) {
            self.saturated -= usize::from(*out == self.max);
            *out -= 1;
        }
    }

    pub(crate) fn any_saturated(&self) -> bool {
        self.saturated > 0
    }
}
