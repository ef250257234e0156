//! The interface of a gate's channels, local and remote.

use std::fmt::Display;

use headgate_memory::Buffer;
use headgate_net::UpstreamMessage;
use headgate_protocol::{
    ChannelStateBuilder, CheckpointId, DataType, Sequence, Totals, TotalsError,
};

use crate::error::{ExchangeError, Result};
use crate::stats::ChannelStats;

/// The consumer's end of one subpartition.
pub(crate) trait InputChannel: Send + Sync {
    /// The channel's name in errors.
    fn name(&self) -> &str;

    /// Returns true if the producer is in this process.
    fn is_local(&self) -> bool;

    /// Takes the next buffer or event; `None` if there is none yet.
    ///
    /// # Errors
    /// The channel's failure, after everything that arrived before it.
    fn take(&self) -> Result<Option<Taken>>;

    /// Gives up the channel: frees its segments and cancels the request if the producer may still
    /// send.
    fn release(&self);

    /// Sends a message to the producer; ignored once the channel is released.
    fn tell(&self, message: UpstreamMessage);

    /// Lets the producer continue behind a barrier.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if no barrier blocks the channel.
    fn resume(&self) -> Result<()>;

    /// Lets an announced barrier overtake the buffers that arrived before it. Returns false if no
    /// such barrier waits.
    fn convert_to_priority(&self, sequence: Sequence) -> bool;

    /// Starts to copy the data in flight of a checkpoint. False if the barrier of a newer one was seen.
    ///
    /// # Errors
    /// [`ExchangeError::State`] for a channel that has no barriers.
    fn start_persisting(&self, checkpoint: CheckpointId) -> Result<bool>;

    /// Copies no further data of this checkpoint.
    fn stop_persisting(&self, checkpoint: CheckpointId);

    /// Takes what was copied for a checkpoint.
    fn take_persisted(&self, checkpoint: CheckpointId) -> Option<ChannelStateBuilder>;

    /// Counts the buffers that wait here or at the producer, without those the channel's own
    /// segments hold.
    fn buffers_in_use(&self) -> usize;

    /// A snapshot.
    fn stats(&self) -> ChannelStats;
}

/// One buffer of a channel.
pub(crate) struct Taken {
    pub(crate) buffer: Buffer,
    pub(crate) data_type: DataType,
    pub(crate) sequence: Sequence,
    /// The producer's totals, with EndOfPartition.
    pub(crate) totals: Option<Totals>,
    pub(crate) more: More,
}

/// The content of a channel behind a buffer, as far as it knows. Priority events are announced to the
/// gate as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    Nothing,
    Something,
    PriorityEvent,
}

/// Decodes the producer's totals, which follow the four bytes that say EndOfPartition.
pub(super) fn totals_of(event: &[u8]) -> Result<Totals, TotalsError> {
    Totals::decode(event.get(4..).unwrap_or_default())
}

/// Returns the error of a channel whose bytes or counts differ from those that were sent.
pub(super) fn integrity(channel: &str, detail: &dyn Display) -> ExchangeError {
    ExchangeError::Integrity { channel: channel.to_owned(), detail: detail.to_string() }
}
