//! When a writer's buffers that are not full are sent (spec 5.1).

use std::time::Duration;

/// How long what was emitted may wait for its buffer to fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferTimeout {
    /// For as long as it takes: a full buffer, an event, a flush and the end send it.
    #[default]
    Never,
    /// Not at all: each record is flushed.
    EveryRecord,
    /// About so long: the output flusher sends everything each time this has passed. Not zero.
    After(Duration),
}
