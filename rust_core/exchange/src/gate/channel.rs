//! One channel of a gate, whichever side of a connection its producer is on.

use std::sync::Arc;

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Sequence, Totals};

use crate::error::Result;
use crate::gate::{LocalChannel, RemoteChannel, UpstreamMessage};

/// One buffer out of a channel, and whether there is more.
pub(crate) struct Taken {
    pub(crate) buffer: Buffer,
    pub(crate) data_type: DataType,
    pub(crate) sequence: Sequence,
    pub(crate) totals: Option<Totals>,
    pub(crate) more: More,
}

/// What a channel has behind a buffer, as far as it knows; of priority events the gate is told, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    Nothing,
    Something,
    PriorityEvent,
}

pub(crate) enum Channel {
    Local(Box<LocalChannel>),
    Remote(Arc<RemoteChannel>),
}

impl Channel {
    pub(super) fn take(&self) -> Result<Option<Taken>> {
        match self {
            Self::Local(channel) => channel.take(),
            Self::Remote(channel) => channel.take(),
        }
    }

    pub(super) fn release(&self) {
        match self {
            Self::Local(channel) => channel.release(),
            Self::Remote(channel) => channel.release(),
        }
    }

    /// Tells the producer something; nothing happens once the channel is released.
    pub(super) fn tell(&self, message: UpstreamMessage) {
        match self {
            Self::Local(channel) => channel.tell(message),
            Self::Remote(channel) => channel.tell(message),
        }
    }

    pub(super) fn resume(&self) -> Result<()> {
        match self {
            Self::Local(channel) => channel.resume(),
            Self::Remote(channel) => channel.resume(),
        }
    }

    /// Buffers that wait, here or at the producer, beyond those that a channel always has.
    pub(super) fn buffers_in_use(&self) -> usize {
        match self {
            Self::Local(channel) => channel.buffers_in_use(),
            Self::Remote(channel) => channel.buffers_in_use(),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Local(channel) => channel.name(),
            Self::Remote(channel) => channel.name(),
        }
    }
}
