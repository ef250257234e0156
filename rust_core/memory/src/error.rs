//! Why memory could not be had.

use std::time::Duration;

/// The guaranteed minimums of all pools would exceed the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "insufficient number of network buffers: {requested} segments requested, {available} of \
     {total} not yet promised ({pinned} of them held by batches the caller keeps)"
)]
pub struct PoolTooSmall {
    /// Segments the new pool wanted as its minimum.
    pub requested: usize,
    /// Segments that are not promised to another pool.
    pub available: usize,
    /// All segments of the budget.
    pub total: usize,
    /// Segments that stay with batches the caller keeps.
    pub pinned: usize,
}

/// Why a segment could not be requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The pool was closed: whoever closed it is the cause, not the caller who meets this.
    #[error("the buffer pool is closed")]
    Closed,
    /// The kernel gave no memory, for example under an address space limit.
    #[error("the kernel maps no further segment: {0}")]
    Unmappable(rustix::io::Errno),
}

/// Why segments could not be requested from the global pool itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpooledError {
    /// They were not to be had in time.
    #[error(
        "{requested} segments were requested and {collected} came free within {} s: \
         others have borrowed the rest and not given it back yet",
        timeout.as_secs_f64()
    )]
    TimedOut {
        /// Segments asked for.
        requested: usize,
        /// Segments that came free; they were given back.
        collected: usize,
        /// How long it waited.
        timeout: Duration,
    },
    /// The caller wanted to wait no longer.
    #[error("interrupted while waiting for segments")]
    Interrupted,
    /// They can not be promised.
    #[error(transparent)]
    TooSmall(#[from] PoolTooSmall),
    /// The global pool was closed, or the kernel refuses.
    #[error(transparent)]
    Request(#[from] RequestError),
}
