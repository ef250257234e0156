//! Options of a local pool.

/// Guarantee and limits of a local pool, in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPoolOptions {
    /// Guaranteed minimum.
    pub min: usize,
    /// Maximum, reached only while other pools do not need the segments; [`usize::MAX`] for no
    /// limit.
    pub max: usize,
    /// Segments that the pool may hold beyond its size, as long as no other pool may take them.
    pub max_overdraft: usize,
    /// Number of subpartitions that requests name; 0 if requests name none.
    pub num_subpartitions: usize,
    /// Soft limit, at least 1: the pool is unavailable while a subpartition holds this many
    /// segments.
    pub max_buffers_per_channel: usize,
}

impl LocalPoolOptions {
    /// Options without overdraft and subpartitions.
    pub fn new(min: usize, max: usize) -> Self {
        let max = max.max(min);
        let max_buffers_per_channel = usize::MAX;
        Self { min, max, max_overdraft: 0, num_subpartitions: 0, max_buffers_per_channel }
    }
}
