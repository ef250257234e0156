//! Why memory could not be had.

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
