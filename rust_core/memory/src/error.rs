//! Errors of requests for memory.

use std::time::Duration;

/// The minimums of all pools together would exceed the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "insufficient number of network buffers: {requested} segments requested, {available} of \
     {total} not yet promised ({pinned} of them held by batches the caller keeps)"
)]
pub struct PoolTooSmall {
    /// Minimum of the new pool, in segments.
    pub requested: usize,
    /// Segments that are not guaranteed to another pool.
    pub available: usize,
    /// Budget in segments.
    pub total: usize,
    /// Segments pinned by batches that the caller keeps.
    pub pinned: usize,
}

/// Failures of a request for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The pool is closed. The cause is with the code that closed it, not with the caller of the
    /// request.
    #[error("the buffer pool is closed")]
    Closed,
    /// The kernel refused a mapping.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
}

/// The kernel refused to map another segment, for example because of a limit of the address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel refused to map another segment of {segment_size} bytes: {errno}; the pool that asked \
     holds {held} of {size} segments, all pools together {used} of {total}"
)]
pub struct Unmapped {
    /// The kernel's error.
    pub errno: rustix::io::Errno,
    /// Bytes of the segment.
    pub segment_size: usize,
    /// Segments that the pool holds.
    pub held: usize,
    /// Segments that the pool may hold now.
    pub size: usize,
    /// Segments in use by all pools and under batches that the caller keeps.
    pub used: usize,
    /// Budget in segments.
    pub total: usize,
}

/// Failures of a request for unpooled segments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpooledError {
    /// Too few segments became free in time.
    #[error(
        "{requested} segments were requested and {collected} came free within {} s: \
         other pools still hold the rest",
        timeout.as_secs_f64()
    )]
    TimedOut {
        /// Requested segments.
        requested: usize,
        /// Segments that became free and were returned.
        collected: usize,
        /// Time waited.
        timeout: Duration,
    },
    /// The caller's `interrupted` returned true.
    #[error("interrupted while waiting for segments")]
    Interrupted,
    /// The segments do not fit beside the guarantees of the pools.
    #[error(transparent)]
    TooSmall(#[from] PoolTooSmall),
    /// The global pool is closed, or the kernel refused a mapping.
    #[error(transparent)]
    Request(#[from] RequestError),
}
