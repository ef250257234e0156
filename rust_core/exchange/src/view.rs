//! Views: the position of one consumer in one subpartition (spec 4.3).

use std::sync::Arc;

use headgate_net::Polled;
use headgate_protocol::{Next, Sequence};

use crate::error::{ExchangeError, Result};

/// Notified that a reader that found nothing should look again. Called outside every lock of the
/// partition.
pub(crate) trait DataListener: Send + Sync {
    /// Something can be taken, or the subpartition has ended.
    fn data_available(&self);

    /// True if the reader is in this process: compression would only cost it time.
    fn is_local(&self) -> bool {
        false
    }

    /// True if the reader takes buffers in pieces, to read them in place or to write them to a
    /// socket.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// A priority event was queued, and will be polled with this number. Called even while other
    /// buffers wait.
    fn priority_event(&self, _sequence: Sequence) {
        self.data_available();
    }
}

/// The state of a subpartition as its reader sees it, read under one lock.
#[derive(Debug)]
pub(crate) enum ViewState {
    Open {
        /// The kind of buffer that a poll would return.
        next: Next,
        /// Data buffers that a reader could take before it must resume.
        backlog: u32,
    },
    /// Nothing can be taken any more.
    Released,
    /// The producer failed with this cause.
    Failed(ExchangeError),
}

impl ViewState {
    /// Returns both numbers of an open subpartition, and nothing once it is released or failed.
    pub(crate) fn next_and_backlog(self) -> (Next, u32) {
        match self {
            Self::Open { next, backlog } => (next, backlog),
            Self::Released | Self::Failed(_) => (Next::None, 0),
        }
    }
}

/// A partition that consumers find by its id.
pub(crate) trait ReadablePartition: Send + Sync {
    /// Hash of the schema of its rows; `None` if it is not known.
    fn schema_hash(&self) -> Option<[u8; 32]>;

    /// Attaches a reader to a subpartition. The listener is called when the reader should poll
    /// again.
    ///
    /// # Errors
    /// No such subpartition, one that has its reader, was released or is not built, or the failure
    /// of the partition.
    fn create_view(
        &self,
        index: usize,
        listener: Arc<dyn DataListener>,
    ) -> Result<Arc<dyn SubpartitionView>>;
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

/// The position of one consumer in a subpartition, created by [`ReadablePartition::create_view`].
pub(crate) trait SubpartitionView: Send + Sync {
    /// Takes the next buffer. If nothing follows it, the listener is called once something does.
    ///
    /// # Errors
    /// Why the producer failed.
    fn poll(&self) -> Result<Option<Polled>>;

    /// Returns the state of the subpartition. Where nothing can be taken, the listener is called
    /// once something can.
    fn look(&self) -> ViewState;

    /// Returns the kind of buffer that a poll would return. Where there is none, the listener is
    /// called once there is.
    fn availability(&self) -> Next {
        self.look().next_and_backlog().0
    }

    /// Returns the number of the last priority event that waits, and can be taken.
    fn priority_event(&self) -> Option<Sequence> {
        None
    }

    /// True once nothing can be taken any more.
    fn is_released(&self) -> bool;

    /// Data buffers that a reader could take.
    fn backlog(&self) -> u32;

    /// Buffers that are queued, and the bytes of data that were ever written.
    fn waiting(&self) -> (usize, u64);

    /// Resumes behind the barrier that was polled. Calls no listener: ask for the
    /// [`availability`](Self::availability) afterwards.
    ///
    /// # Errors
    /// When no barrier blocks it.
    fn resume(&self) -> Result<()> {
        Err(ExchangeError::State("the subpartition is not blocked by a barrier"))
    }

    /// Makes polls return data buffers without bytes too: the consumer has no exclusive segments,
    /// and gets a floating segment that it granted back only with a buffer.
    fn give_empty_buffers(&self) {}

    /// Asks for buffers of at most this many bytes from now on. Ignored where data may be stored
    /// (ADR 0018).
    fn set_buffer_size(&self, _size: u32) {}

    /// Tells how many data buffers the consumer has and has not read. Ignored where data may be
    /// stored: its consumer need not read at the pace of the writer.
    fn set_unread(&self, _buffers: u32) {}

    /// Reports that the consumer processed every record up to the end of data.
    fn acknowledge(&self) {}

    /// Hands an encoded event to the producing task.
    ///
    /// # Errors
    /// [`ExchangeError::TaskEvent`] when the task does not take it.
    fn task_event(&self, _event: &[u8]) -> Result<()> {
        Err(ExchangeError::TaskEvent("nobody writes this partition any more".to_owned()))
    }

    /// Reports that the reader has everything, EndOfPartition included, or wants nothing more.
    fn consumed(&self);

    /// Reports that the reader's process is gone.
    fn consumer_lost(&self, cause: &ExchangeError);
}
