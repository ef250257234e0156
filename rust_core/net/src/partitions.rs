//! The partitions that a process serves to others, as their connections see them.

use std::sync::Arc;

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Next, PartitionId, PartitionRequest, Sequence};

use crate::error::ConnectionError;
use crate::notifiers::{DataNotifier, PartitionNotifier};

/// The partitions that this process serves. The I/O thread calls all methods, and holds no lock.
pub trait Partitions: Send + Sync {
    /// Opens the requested subpartition: `data` is told of its data. Returns `None` if its partition does not exist
    /// yet; `appears` is told once it does.
    ///
    /// # Errors
    /// The reason for the consumer, such as a partition that was released.
    fn open(
        &self,
        request: &PartitionRequest,
        data: DataNotifier,
        appears: &Arc<PartitionNotifier>,
    ) -> Result<Option<Arc<dyn View>>, Refusal>;

    /// Tells `appears` no more that this partition exists.
    fn forget(&self, id: PartitionId, appears: &Arc<PartitionNotifier>);
}

/// The position of one consumer of another process in a subpartition.
pub trait View: Send + Sync {
    /// Takes the next buffer. If nothing follows it, the notifier is told once something does.
    ///
    /// # Errors
    /// The producer failed.
    fn poll(&self) -> Result<Option<Polled>, Refusal>;

    /// Returns what can be taken. Where it is nothing, the notifier is told once something can.
    ///
    /// # Errors
    /// The subpartition has ended: its producer failed, or closed it.
    fn look(&self) -> Result<Available, Refusal>;

    /// Resumes behind the barrier that was polled. Tells the notifier nothing: [look](Self::look) afterwards.
    ///
    /// # Errors
    /// No barrier blocks it.
    fn resume(&self) -> Result<(), String>;

    /// Asks for buffers of at most this many bytes from now on.
    fn set_buffer_size(&self, size: u32);

    /// Tells how many data buffers the consumer has and has not read, as far as its credit shows.
    fn set_unread(&self, buffers: u32);

    /// Reports that the consumer processed every record up to the end of data.
    fn acknowledge(&self);

    /// Hands an encoded event to the producing task.
    ///
    /// # Errors
    /// The task does not take it.
    fn task_event(&self, event: &[u8]) -> Result<(), Refusal>;

    /// Reports that the consumer has everything, or wants nothing more.
    fn consumed(&self);

    /// Reports that the consumer's process is gone.
    fn consumer_lost(&self, cause: &ConnectionError);
}

/// A buffer or event that was polled.
#[derive(Debug)]
pub struct Polled {
    /// The bytes.
    pub buffer: Buffer,
    /// The kind of buffer or event.
    pub data_type: DataType,
    /// Data buffers queued behind this one.
    pub backlog: u32,
    /// Its number, counted at the poll: a priority event gets the next number too.
    pub sequence: Sequence,
    /// The kind of buffer that another poll would return.
    pub next: Next,
}

/// The content of a subpartition as its reader sees it, read under one lock.
#[derive(Debug, Clone, Copy)]
pub struct Available {
    /// The kind of buffer that a poll would return.
    pub next: Next,
    /// Data buffers that a reader could take before it must resume.
    pub backlog: u32,
}

impl Available {
    /// Nothing can be taken.
    pub const NOTHING: Self = Self { next: Next::None, backlog: 0 };
}

/// The reason for which a channel is refused or ends, for its consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of reason, by which the consumer chooses its error.
    pub reason: Reason,
    /// The text of its error.
    pub text: String,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The partition is not here, or not any more.
    PartitionNotFound,
    /// Bytes differ from those that were written.
    Integrity,
    /// The task takes no such event. The channel is served on.
    TaskEvent,
    /// The consumer expects another schema.
    SchemaMismatch,
    /// Any other failure of the producer.
    ProducerFailed,
}
