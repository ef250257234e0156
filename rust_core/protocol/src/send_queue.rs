//! The producer's half of a connection: which channel sends next.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use thiserror::Error;

use crate::{ChannelId, CreditError, DataType, SendCredit};

/// What a subpartition would give next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Next {
    /// Nothing yet.
    None,
    /// A data buffer: needs credit.
    Data,
    /// An event: passes without credit.
    Event,
}

impl From<Option<DataType>> for Next {
    fn from(next: Option<DataType>) -> Self {
        match next {
            None => Self::None,
            Some(data_type) if data_type.is_event() => Self::Event,
            Some(_) => Self::Data,
        }
    }
}

/// The channels of one connection, served in turn. `V` is the view a channel reads from.
///
/// The driver's loop: [`poll`](Self::poll) a channel, take one buffer from its view, write it, then
/// [`sent`](Self::sent), which puts the channel at the tail if it can send more. A channel stays
/// open after its last buffer, as credits may still be under way, until the consumer cancels it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SendQueue<V> {
    channels: BTreeMap<ChannelId, Channel<V>>,
    available: VecDeque<ChannelId>,
}

impl<V> SendQueue<V> {
    /// A connection without channels.
    #[must_use]
    pub const fn new() -> Self {
        Self { channels: BTreeMap::new(), available: VecDeque::new() }
    }

    /// A partition request arrived. Nothing is sent before the first
    /// [`notify`](Self::notify). A second request for a channel gives its view back.
    pub fn open(&mut self, channel: ChannelId, initial_credit: u32, view: V) -> Result<(), V> {
        if self.channels.contains_key(&channel) {
            return Err(view);
        }
        let credit = SendCredit::new(initial_credit);
        let open = Channel { initial: initial_credit, credit, turn: Turn::Idle, view };
        self.channels.insert(channel, open);
        Ok(())
    }

    /// The view of a channel.
    #[must_use]
    pub fn view(&self, channel: ChannelId) -> Option<&V> {
        self.channels.get(&channel).map(|open| &open.view)
    }

    /// The view of a channel, to take a buffer from.
    #[must_use]
    pub fn view_mut(&mut self, channel: ChannelId) -> Option<&mut V> {
        self.channels.get_mut(&channel).map(|open| &mut open.view)
    }

    /// Data buffers a channel may send now; `None` if it is not open.
    #[must_use]
    pub fn credit(&self, channel: ChannelId) -> Option<u32> {
        self.channels.get(&channel).map(|open| open.credit.available())
    }

    /// The view of a channel has something new, or had it when the channel was opened. Nothing
    /// happens if the channel is not open: its view may be late.
    pub fn notify(&mut self, channel: ChannelId, next: Next) {
        if let Some(open) = self.channels.get_mut(&channel) {
            open.enqueue(channel, next, &mut self.available);
        }
    }

    /// The consumer grants a channel `credit` more data buffers.
    pub fn grant(
        &mut self,
        channel: ChannelId,
        credit: NonZeroU32,
        next: Next,
    ) -> Result<(), SendQueueError> {
        let open = self.open_channel(channel)?;
        let granted = open.credit.grant(credit);
        granted.map_err(|source| SendQueueError::Credit { channel, source })?;
        self.notify(channel, next);
        Ok(())
    }

    /// The consumer lets a channel go on that a barrier had blocked; `next` is what it has now. A
    /// consumer without buffers of its own took its credit back when the barrier reached it.
    pub fn resume(&mut self, channel: ChannelId, next: Next) -> Result<(), SendQueueError> {
        let open = self.open_channel(channel)?;
        if open.initial == 0 {
            open.credit.revoke();
        }
        self.notify(channel, next);
        Ok(())
    }

    /// Whether the consumer must be told the backlog of a channel with `next` to send: it has no
    /// buffers of its own, so nothing else would make it grant credit.
    #[must_use]
    pub fn announces_backlog(&self, channel: ChannelId, next: Next) -> bool {
        let starved = |open: &Channel<V>| open.initial == 0 && open.credit.available() == 0;
        next == Next::Data && self.channels.get(&channel).is_some_and(starved)
    }

    /// Closes a channel and returns its view; nothing more is sent for it.
    pub fn cancel(&mut self, channel: ChannelId) -> Option<V> {
        let open = self.channels.remove(&channel)?;
        if open.turn == Turn::Queued {
            self.available.retain(|queued| *queued != channel);
        }
        Some(open.view)
    }

    /// Takes the channel whose turn it is. [`sent`](Self::sent), [`not_sent`](Self::not_sent) or
    /// [`cancel`](Self::cancel) must follow before the channel has another turn.
    pub fn poll(&mut self) -> Option<ChannelId> {
        let channel = self.available.pop_front()?;
        if let Some(open) = self.channels.get_mut(&channel) {
            open.turn = Turn::Polled;
        }
        Some(channel)
    }

    /// The polled channel sent one buffer and has `next` to send.
    pub fn sent(
        &mut self,
        channel: ChannelId,
        was_event: bool,
        next: Next,
    ) -> Result<(), SendQueueError> {
        let open = self.polled_channel(channel)?;
        if !was_event {
            let spent = open.credit.spend();
            spent.map_err(|source| SendQueueError::Credit { channel, source })?;
        }
        self.not_sent(channel, next)
    }

    /// The polled channel sent nothing, as its view had nothing after all; `next` is what it has now.
    pub fn not_sent(&mut self, channel: ChannelId, next: Next) -> Result<(), SendQueueError> {
        self.polled_channel(channel)?.turn = Turn::Idle;
        self.notify(channel, next);
        Ok(())
    }

    /// Whether [`poll`](Self::poll) would give a channel.
    #[must_use]
    pub fn has_available(&self) -> bool {
        !self.available.is_empty()
    }

    /// Number of open channels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.channels.keys().copied()
    }

    /// Closes all channels: the connection is over.
    pub fn drain(&mut self) -> impl Iterator<Item = (ChannelId, V)> + use<V> {
        self.available.clear();
        std::mem::take(&mut self.channels).into_iter().map(|(channel, open)| (channel, open.view))
    }

    fn open_channel(&mut self, channel: ChannelId) -> Result<&mut Channel<V>, SendQueueError> {
        self.channels.get_mut(&channel).ok_or(SendQueueError::UnknownChannel { channel })
    }

    fn polled_channel(&mut self, channel: ChannelId) -> Result<&mut Channel<V>, SendQueueError> {
        let open = self.open_channel(channel)?;
        if open.turn == Turn::Polled {
            Ok(open)
        } else {
            Err(SendQueueError::NotPolled { channel })
        }
    }
}

impl<V> Default for SendQueue<V> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Channel<V> {
    /// What the request granted.
    initial: u32,
    credit: SendCredit,
    turn: Turn,
    view: V,
}

impl<V> Channel<V> {
    /// Queues the channel if it can send and is not queued. While it is polled nothing is queued:
    /// `sent` brings what comes next, and only then is the credit known.
    fn enqueue(&mut self, channel: ChannelId, next: Next, available: &mut VecDeque<ChannelId>) {
        let can_send = match next {
            Next::None => false,
            Next::Data => self.credit.available() > 0,
            Next::Event => true,
        };
        if can_send && self.turn == Turn::Idle {
            self.turn = Turn::Queued;
            available.push_back(channel);
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Turn {
    Idle,
    Queued,
    Polled,
}

/// A step the queue does not allow.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SendQueueError {
    /// Credit that cannot be.
    #[error("channel {channel}: {source}")]
    Credit {
        /// The channel.
        channel: ChannelId,
        /// What is wrong with it.
        source: CreditError,
    },
    /// A buffer was sent out of turn.
    #[error("channel {channel} sent a buffer out of turn")]
    NotPolled {
        /// The channel.
        channel: ChannelId,
    },
    /// A channel that is not open.
    #[error("channel {channel} is not open")]
    UnknownChannel {
        /// The channel.
        channel: ChannelId,
    },
}
