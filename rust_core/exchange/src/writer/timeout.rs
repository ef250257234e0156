//! The time after which a writer sends buffers that are not full (spec 5.1).
//!
//! Decision: ADR 0015.

use std::time::Duration;

/// Time that records may wait for their buffer to fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferTimeout {
    /// No limit: only a full buffer, an event, a flush or the end sends it.
    #[default]
    Never,
    /// No wait: each record is flushed.
    EveryRecord,
    /// The output flusher sends everything each time this has passed. Not zero.
    After(Duration),
}
