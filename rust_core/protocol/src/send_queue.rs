//! The producer's half of a connection: the order in which its channels send.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use thiserror::Error;

use crate::{ChannelId, CreditError, DataType, SendCredit};

/// The kind of buffer that a subpartition would give next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Next {
    /// No buffer yet.
    None,
    /// A data buffer, which needs credit.
    Data,
    /// An event, which needs none.
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

/// The channels of one connection, served in turn. `V` is the view that a channel reads from.
///
/// The driver's loop: [`poll`](Self::poll) a channel, take one buffer from its view, write it, then
/// call [`sent`](Self::sent), which queues the channel again if it can send more. A channel stays
/// open after its last buffer until the consumer cancels it, as credit may still arrive for it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SendQueue<V> {
    channels: BTreeMap<ChannelId, Channel<V>>,
    available: VecDeque<ChannelId>,
    /// Number of channels that are starved.
    starved: usize,
}

impl<V> SendQueue<V> {
    /// Creates a queue without channels.
    #[must_use]
    pub const fn new() -> Self {
        Self { channels: BTreeMap::new(), available: VecDeque::new(), starved: 0 }
    }

    /// Opens a channel after its partition request. Nothing is sent before the first
    /// [`notify`](Self::notify).
    ///
    /// # Errors
    /// The channel is open already: returns `view`.
    pub fn open(&mut self, channel: ChannelId, initial_credit: u32, view: V) -> Result<(), V> {
        if self.channels.contains_key(&channel) {
            return Err(view);
        }
        let credit = SendCredit::new(initial_credit);
        let open =
            Channel { initial: initial_credit, credit, turn: Turn::Idle, is_starved: false, view };
        self.channels.insert(channel, open);
        Ok(())
    }

    /// Returns the view of a channel.
    #[must_use]
    pub fn view(&self, channel: ChannelId) -> Option<&V> {
        self.channels.get(&channel).map(|open| &open.view)
    }

    /// Returns the view of a channel, to take a buffer from.
    #[must_use]
    pub fn view_mut(&mut self, channel: ChannelId) -> Option<&mut V> {
        self.channels.get_mut(&channel).map(|open| &mut open.view)
    }

    /// Returns how many data buffers a channel may send now; `None` if it is not open.
    #[must_use]
    pub fn credit(&self, channel: ChannelId) -> Option<u32> {
        self.channels.get(&channel).map(|open| open.credit.available())
    }

    /// Records that `next` is the next buffer of a channel's view. Ignored if the channel is not open,
    /// as a view may notify late.
    pub fn notify(&mut self, channel: ChannelId, next: Next) {
        if let Some(open) = self.channels.get_mut(&channel) {
            open.enqueue(channel, next, &mut self.available);
            let is_starved = next == Next::Data && open.credit.available() == 0;
            self.starved += usize::from(is_starved);
            self.starved -= usize::from(std::mem::replace(&mut open.is_starved, is_starved));
        }
    }

    /// Adds credit that the consumer granted.
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

    /// Resumes a channel that a barrier blocked; `next` is its next buffer now. If its request brought
    /// no credit, the consumer revoked all credit when the barrier arrived.
    pub fn resume(&mut self, channel: ChannelId, next: Next) -> Result<(), SendQueueError> {
        let open = self.open_channel(channel)?;
        if open.initial == 0 {
            open.credit.revoke();
        }
        self.notify(channel, next);
        Ok(())
    }

    /// Returns true if the backlog of a channel whose next buffer is `next` must be announced.
    /// Without exclusive buffers and credit, no buffer is sent whose header could report it.
    #[must_use]
    pub fn announces_backlog(&self, channel: ChannelId, next: Next) -> bool {
        let starved = |open: &Channel<V>| open.initial == 0 && open.credit.available() == 0;
        next == Next::Data && self.channels.get(&channel).is_some_and(starved)
    }

    /// Closes a channel and returns its view.
    pub fn cancel(&mut self, channel: ChannelId) -> Option<V> {
        let open = self.channels.remove(&channel)?;
        self.starved -= usize::from(open.is_starved);
        if open.turn == Turn::Queued {
            self.available.retain(|queued| *queued != channel);
        }
        Some(open.view)
    }

    /// Takes the next channel. [`sent`](Self::sent), [`not_sent`](Self::not_sent) or
    /// [`cancel`](Self::cancel) must follow before it gets another turn.
    pub fn poll(&mut self) -> Option<ChannelId> {
        let channel = self.available.pop_front()?;
        if let Some(open) = self.channels.get_mut(&channel) {
            open.turn = Turn::Polled;
        }
        Some(channel)
    }

    /// Records that the polled channel sent one buffer; `next` is its next one.
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

    /// Records that the polled channel sent nothing, as its view was empty; `next` is its next buffer
    /// now.
    pub fn not_sent(&mut self, channel: ChannelId, next: Next) -> Result<(), SendQueueError> {
        self.polled_channel(channel)?.turn = Turn::Idle;
        self.notify(channel, next);
        Ok(())
    }

    /// Returns true if [`poll`](Self::poll) would return a channel.
    #[must_use]
    pub fn has_available(&self) -> bool {
        !self.available.is_empty()
    }

    /// Number of channels that had data when they were last looked at, and no credit for it.
    #[must_use]
    pub fn num_starved(&self) -> usize {
        self.starved
    }

    /// Number of open channels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Returns true if no channel is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.channels.keys().copied()
    }

    /// Closes all channels and returns their views.
    pub fn drain(&mut self) -> impl Iterator<Item = (ChannelId, V)> + use<V> {
        self.available.clear();
        self.starved = 0;
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
    /// The credit of the partition request.
    initial: u32,
    credit: SendCredit,
    turn: Turn,
    /// True if there were data and no credit when it was last looked at.
    is_starved: bool,
    view: V,
}

impl<V> Channel<V> {
    /// Queues the channel if it can send. A polled channel is queued by `sent`, which knows the credit
    /// that is left.
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

/// A call that the queue's state does not allow.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SendQueueError {
    /// Impossible credit.
    #[error("channel {channel}: {source}")]
    Credit {
        /// The channel.
        channel: ChannelId,
        /// The credit's error.
        source: CreditError,
    },
    /// A buffer was sent out of turn.
    #[error("channel {channel} sent a buffer out of turn")]
    NotPolled {
        /// The channel.
        channel: ChannelId,
    },
    /// The channel is not open.
    #[error("channel {channel} is not open")]
    UnknownChannel {
        /// The channel.
        channel: ChannelId,
    },
}
