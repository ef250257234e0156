//! What readers read: one gate, or several as one (spec 8.3).

use std::sync::Weak;
use std::task::Poll;

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Sequence, Totals};

use crate::error::{Interrupt, Result};

/// One buffer or event of one channel.
#[derive(Debug)]
pub struct Received {
    /// Index of the channel in the gate; in a union, counted over its gates in their order.
    pub channel: usize,
    /// The bytes.
    pub buffer: Buffer,
    /// Of what kind they are.
    pub data_type: DataType,
    /// Its number on its channel.
    pub sequence: Sequence,
    /// With EndOfPartition: what the producer says it sent.
    pub totals: Option<Totals>,
    /// Whether a channel waits to be read, as far as is known: it may turn out to be empty.
    pub more_available: bool,
    /// Whether a channel with a priority event waits to be read.
    pub more_priority_events: bool,
}

/// Whether all producers have said that their records are over (spec 8.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndOfDataStatus {
    /// A channel has not.
    NotEndOfData,
    /// All have, and each because its input was exhausted.
    Drained,
    /// All have, at least one because the job stops to go on later.
    Stopped,
}

/// Told, outside every lock, that a poll which found nothing, or the last thing, is worth a repeat.
pub trait AvailabilityListener: Send + Sync {
    /// A buffer, an event, an end or an error can be polled.
    fn data_available(&self);

    /// The first priority event arrived; `data_available` is told as well where it is due.
    fn priority_available(&self) {}
}

/// A fair queue of the buffers of several channels, with one reader.
pub trait DataInput: Send + Sync {
    /// The next buffer or event of any channel; `None` once all have ended, or for now when all
    /// have reached the end of the superstep. Blocks until there is one.
    ///
    /// # Errors
    /// The failure of a channel or of the gate, or what the interrupt says.
    fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>>;

    /// Like [`next`](Self::next), but pending where that would block.
    ///
    /// # Errors
    /// As of [`next`](Self::next).
    fn poll_next(&self) -> Result<Poll<Option<Received>>>;

    /// Whether a poll would not be pending, as far as is known: a channel may turn out to be empty.
    fn is_available(&self) -> bool;

    /// Whether all channels have ended and none can come.
    fn is_finished(&self) -> bool;

    /// Whether all producers have said that their records are over.
    fn end_of_data_status(&self) -> EndOfDataStatus;

    /// Adds a listener, which is told at once if there is something; gone with its last owner.
    fn add_listener(&self, listener: Weak<dyn AvailabilityListener>);

    /// The channel reached the end of the superstep: only its priority events are read before
    /// [`start_next_superstep`](Self::start_next_superstep).
    fn end_superstep(&self, channel: usize);

    /// Whether no channel can come any more and all that have not ended reached the end of the
    /// superstep, at least one of them.
    fn has_reached_end_of_superstep(&self) -> bool;

    /// Reads all channels again.
    ///
    /// # Errors
    /// [`ExchangeError::State`](crate::ExchangeError::State) before all reached the end of the
    /// superstep.
    fn start_next_superstep(&self) -> Result<()>;

    /// The name of a channel in errors.
    fn channel_name(&self, channel: usize) -> String;
}
