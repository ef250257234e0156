//! What a local pool is made with.

/// Guarantee and limits of a local pool, in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPoolOptions {
    /// Guaranteed.
    pub min: usize,
    /// It grows to this while others do not need them; [`usize::MAX`] for no limit.
    pub max: usize,
    /// Beyond its size, of what no other pool may take; what counts is what is out, not what was
    /// asked for.
    pub max_overdraft: usize,
    /// Subpartitions that segments are requested for; 0 where that makes no difference.
    pub num_subpartitions: usize,
    /// A soft limit: the pool is not available while a subpartition has as many out. At least 1.
    pub max_buffers_per_channel: usize,
}

impl LocalPoolOptions {
    /// A pool without overdraft and without subpartitions.
    pub fn new(min: usize, max: usize) -> Self {
        let max = max.max(min);
        let max_buffers_per_channel = usize::MAX;
        Self { min, max, max_overdraft: 0, num_subpartitions: 0, max_buffers_per_channel }
    }
}
