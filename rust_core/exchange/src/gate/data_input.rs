//! The input of a reader: one gate, or several as one (spec 8.3).

use std::sync::Weak;
use std::task::Poll;
use std::time::Duration;

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Sequence, Totals};

use crate::error::{Interrupt, Result};
use crate::gate::checkpointing::CheckpointedInput;

/// One buffer or event of one channel.
#[derive(Debug)]
pub struct Received {
    /// Index of the channel in the gate; in a union, counted over its gates in their order.
    pub channel: usize,
    /// The bytes.
    pub buffer: Buffer,
    /// The type of the bytes.
    pub data_type: DataType,
    /// Number of the buffer on its channel.
    pub sequence: Sequence,
    /// The producer's totals, with EndOfPartition.
    pub totals: Option<Totals>,
    /// True if a channel is queued to be read; it may turn out to be empty.
    pub more_available: bool,
    /// True if a channel with a priority event is queued to be read.
    pub more_priority_events: bool,
}

/// The progress of all channels towards their end of data (spec 8.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndOfDataStatus {
    /// A channel may still send records.
    NotEndOfData,
    /// All channels sent their end of data because their input was exhausted.
    Drained,
    /// All channels sent their end of data, at least one because its job stops and will be resumed.
    Stopped,
}

/// Called, outside every lock, when a poll that found nothing, or the last buffer, is worth
/// repeating.
pub trait AvailabilityListener: Send + Sync {
    /// A buffer, an event, an end or an error can be polled.
    fn data_available(&self);

    /// The first priority event arrived. `data_available` is called as well if it is due.
    fn priority_available(&self) {}
}

/// A fair queue of the buffers of several channels, with one reader.
pub trait DataInput: CheckpointedInput + Send + Sync {
    /// Returns the next buffer or event of any channel. Blocks until there is one. Returns `None`
    /// once all channels have ended.
    ///
    /// # Errors
    /// The failure of a channel or of the gate, or the interrupt's error.
    fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>>;

    /// Like [`next`](Self::next), but pending instead of blocking.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn poll_next(&self) -> Result<Poll<Option<Received>>>;

    /// Waits until a poll should not be pending, [`wake_up`](Self::wake_up) is called, or the timeout
    /// has passed. Returns [`is_available`](Self::is_available).
    ///
    /// # Errors
    /// The interrupt's error.
    fn wait_available(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<bool>;

    /// Returns true if a poll should not be pending; a queued channel may turn out to be empty.
    fn is_available(&self) -> bool;

    /// Returns true if a channel with a priority event is queued: the next poll takes that event.
    fn has_priority_event(&self) -> bool;

    /// Returns true once all channels have ended and none can be added.
    fn is_finished(&self) -> bool;

    /// Returns the progress of all channels towards their end of data.
    fn end_of_data_status(&self) -> EndOfDataStatus;

    /// Adds a listener, and calls it at once if there is something to poll. It is removed with its
    /// last owner.
    fn add_listener(&self, listener: Weak<dyn AvailabilityListener>);

    /// The name of a channel in errors.
    fn channel_name(&self, channel: usize) -> String;
}
