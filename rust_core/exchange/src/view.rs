//! What a channel reads: one consumer's place in one subpartition (spec 4.3).

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Next, Sequence};

use crate::error::{ExchangeError, Result};

/// Told, outside every lock of the partition, that a reader that found nothing should look again.
pub(crate) trait DataListener: Send + Sync {
    /// Something to take, or an end.
    fn data_available(&self);

    /// Whether the reader is in this process, so that nothing is won by making its data smaller.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether the reader takes buffers in pieces: as they are, or written to a socket.
    fn takes_pieces(&self) -> bool {
        false
    }

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

/// The state of a subpartition as its reader sees it, read under one lock.
#[derive(Debug)]
pub(crate) enum ViewState {
    Open {
        /// The kind of buffer that a poll would return.
        next: Next,
        /// Data buffers that a reader could take.
        backlog: u32,
    },
    /// Nothing can be taken any more.
    Released,
    /// The producer failed with this cause.
    Failed(ExchangeError),
}

impl ViewState {
    /// What can be taken: nothing once the subpartition is released or failed.
    pub(crate) fn next_and_backlog(self) -> (Next, u32) {
        match self {
            Self::Open { next, backlog } => (next, backlog),
            Self::Released | Self::Failed(_) => (Next::None, 0),
        }
    }
}

/// The partition behind a view: the view reports to it what its consumer does.
pub(crate) trait ViewedPartition: Send + Sync {
    /// The consumer of this subpartition has processed every record up to the end of data.
    fn acknowledged(&self, index: usize);

    /// Hands an encoded event to the producing task.
    ///
    /// # Errors
    /// [`ExchangeError::TaskEvent`] when the task does not take it.
    fn publish_task_event(&self, index: usize, event: &[u8]) -> Result<()>;

    /// The consumer of this subpartition has everything, or wants nothing more.
    fn consumed(&self, index: usize);

    /// The process that read this subpartition is gone.
    fn consumer_lost(&self, index: usize, cause: &ExchangeError);

    /// Fails the writer and all readers with this cause, unless they failed before.
    fn fail(&self, cause: &ExchangeError);
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

    /// Returns the state of the subpartition. Where nothing can be taken, the listener is called once
    /// something can.
    fn look(&self) -> ViewState;

    /// Returns the kind of buffer that a poll would return. Where there is none, the listener is called
    /// once there is.
    fn availability(&self) -> Next {
        self.look().next_and_backlog().0
    }

    /// True once nothing can be taken any more.
    fn is_released(&self) -> bool;

    /// Data buffers that a reader could take.
    fn backlog(&self) -> u32;

    /// Buffers that wait, and the bytes of data that were ever written here.
    fn waiting(&self) -> (usize, u64);

    /// Goes on behind the barrier that was polled. What there is to take then is not told:
    /// ask for the [`availability`](Self::availability) afterwards.
    ///
    /// # Errors
    /// When no barrier blocks it.
    fn resume(&self) -> Result<()> {
        Err(ExchangeError::State("the subpartition is not blocked by a barrier"))
    }

    /// Gives data buffers without bytes as well: the consumer has no segments of its own, and one
    /// that was granted for such a buffer must come back.
    fn give_empty_buffers(&self) {}

    /// Buffers that are begun from now on should hold no more than this many bytes.
    fn set_buffer_size(&self, _size: u32) {}

    /// The consumer processed every record up to the end of data.
    fn acknowledge(&self) {}

    /// Hands an encoded event to the producing task.
    ///
    /// # Errors
    /// [`ExchangeError::TaskEvent`] when nobody there wants it.
    fn task_event(&self, _event: &[u8]) -> Result<()> {
        Err(ExchangeError::TaskEvent("nobody writes this partition any more".to_owned()))
    }

    /// The reader has everything, EndOfPartition included, or wants no more.
    fn consumed(&self);

    /// The process that read here is gone.
    fn consumer_lost(&self, cause: &ExchangeError);
}
