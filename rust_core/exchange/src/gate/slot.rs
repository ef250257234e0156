//! What a gate's queue knows of one channel.

use std::sync::Arc;

use headgate_protocol::Sequence;

use crate::gate::Channel;

pub(super) struct Slot {
    /// `None` until its producer is known.
    pub(super) channel: Option<Arc<Channel>>,
    /// In the queue.
    pub(super) queued: bool,
    pub(super) ended: bool,
    pub(super) end_of_data: bool,
    /// Reached the end of the superstep; never true of an ended channel, which is not read then.
    pub(super) paused: bool,
    /// The last priority event that was announced, and the last that was read: where they differ,
    /// there is one to read.
    pub(super) announced: Option<Sequence>,
    pub(super) seen: Option<Sequence>,
}

impl Slot {
    pub(super) fn new(channel: Option<Arc<Channel>>) -> Self {
        Self {
            channel,
            queued: false,
            ended: false,
            end_of_data: false,
            paused: false,
            announced: None,
            seen: None,
        }
    }

    pub(super) fn has_priority(&self) -> bool {
        self.announced.is_some_and(|announced| is_new(announced, self.seen))
    }
}

/// Whether a priority event was not read yet; numbers wrap.
pub(super) fn is_new(sequence: Sequence, seen: Option<Sequence>) -> bool {
    seen.is_none_or(|seen| sequence.is_after(seen))
}
