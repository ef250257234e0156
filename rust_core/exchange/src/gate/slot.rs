//! The state of one channel in its gate's queue.

use std::sync::Arc;

use headgate_protocol::Sequence;

use crate::gate::channel::InputChannel;

pub(super) struct Slot {
    /// `None` until the producer is known.
    pub(super) channel: Option<Arc<dyn InputChannel>>,
    /// True while the channel is in the queue.
    pub(super) queued: bool,
    pub(super) ended: bool,
    pub(super) end_of_data: bool,
    /// Number of the last priority event that was announced. It waits to be read while it is newer
    /// than `seen`.
    pub(super) announced: Option<Sequence>,
    /// Number of the last priority event that was read.
    pub(super) seen: Option<Sequence>,
}

impl Slot {
    pub(super) fn new(channel: Option<Arc<dyn InputChannel>>) -> Self {
        Self {
            channel,
            queued: false,
            ended: false,
            end_of_data: false,
            announced: None,
            seen: None,
        }
    }

    /// Returns true if a priority event waits to be read.
    pub(super) fn has_priority(&self) -> bool {
        self.announced.is_some_and(|announced| is_new(announced, self.seen))
    }
}

/// Returns true if the priority event `sequence` comes after the last one read. Numbers wrap.
pub(super) fn is_new(sequence: Sequence, seen: Option<Sequence>) -> bool {
    seen.is_none_or(|seen| sequence.is_after(seen))
}
