//! What a channel reads: one consumer's place in one subpartition (spec 4.3).

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Next, Sequence};

use crate::error::{ExchangeError, Result};

/// Told, outside every lock of the partition, that a reader that found nothing should look again.
pub(crate) trait DataListener: Send + Sync {
    /// Something to take, or an end.
    fn data_available(&self);

    /// A priority event that will be polled with this number; told also when other buffers wait.
    fn priority_event(&self, _sequence: Sequence) {
        self.data_available();
    }
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) struct Polled {
    /// The bytes.
    pub(crate) buffer: Buffer,
    /// Of what kind they are.
    pub(crate) data_type: DataType,
    /// Data buffers still queued behind this one.
    pub(crate) backlog: u32,
    /// Counted at poll, so a priority event simply gets the next number.
    pub(crate) sequence: Sequence,
    /// What another poll would give.
    pub(crate) next: Next,
}

/// One consumer's place in a subpartition, made by [`ResultPartition::create_view`].
///
/// [`ResultPartition::create_view`]: crate::ResultPartition
pub(crate) trait SubpartitionView: Send + Sync {
    /// Takes the next buffer. Where nothing follows, the listener is told once something does.
    ///
    /// # Errors
    /// Why the producer failed.
    fn poll(&self) -> Result<Option<Polled>>;

    /// What a poll would give; if nothing, the listener is told when that changes.
    fn availability(&self) -> Next;

    /// Whether nothing can be taken any more.
    fn is_released(&self) -> bool;

    /// Why the producer failed, once it has.
    fn failure(&self) -> Option<ExchangeError>;

    /// The reader has everything, EndOfPartition included, or wants no more.
    fn consumed(&self);

    /// The process that read here is gone.
    fn consumer_lost(&self, cause: &ExchangeError);
}
