//! How far the consumers of a partition are.

use std::time::{Duration, Instant};

use crate::error::ExchangeError;

/// Which subpartitions are done with, and what went wrong.
#[derive(Default)]
pub(super) struct Progress {
    /// Subpartitions that are neither taken to the end nor released.
    pub(super) open: usize,
    pub(super) closed: Vec<bool>,
    /// Consumers that processed all records up to the end of data.
    pub(super) acknowledged: Vec<bool>,
    /// Consumers that vanished; a subpartition that is closed since then needs none.
    pub(super) lost: Vec<Loss>,
    pub(super) failure: Option<ExchangeError>,
}

/// A consumer that vanished.
pub(super) struct Loss {
    pub(super) index: usize,
    pub(super) since: Instant,
    pub(super) cause: ExchangeError,
}

impl Progress {
    /// The loss that nobody has explained for so long.
    pub(super) fn overdue(&self, timeout: Duration) -> Option<ExchangeError> {
        let open = |loss: &&Loss| !self.closed[loss.index] && loss.since.elapsed() >= timeout;
        self.lost.iter().find(open).map(|loss| loss.cause.clone())
    }
}
