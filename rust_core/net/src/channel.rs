//! The consumer's end of a channel, as its connection sees it.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use headgate_memory::{Buffer, PooledSegment};
use headgate_protocol::{BufferHeader, ChannelId, DataType, Sequence};

use crate::error::{ConnectionError, Result};

/// The consumer's end of a subpartition of another process. The I/O thread calls all methods, and holds no lock.
pub trait Channel: Send + Sync {
    /// Its number, which no other channel of this process has.
    fn id(&self) -> ChannelId;

    /// Its name in errors.
    fn name(&self) -> &str;

    /// Accepts the header of a buffer: spends its credit and returns the memory for its payload.
    ///
    /// # Errors
    /// The buffer is none that the producer may send now, which ends the connection.
    fn begin(&self, header: &BufferHeader) -> Result<Target>;

    /// Makes a compressed payload of this size a buffer. Returns `None` if its bytes are wrong, which fails this
    /// channel alone.
    fn freeze_compressed(
        &self,
        payload: PooledSegment,
        size: usize,
        sequence: Sequence,
    ) -> Option<Buffer>;

    /// Queues a complete buffer for the reader.
    ///
    /// # Errors
    /// The buffer is none that the producer may send now, which ends the connection.
    fn deliver(&self, buffer: Buffer, data_type: DataType, sequence: Sequence) -> Result<()>;

    /// Records the announced backlog of a channel that has no credit, so that no header could carry it.
    fn on_backlog(&self, backlog: NonZeroU32);

    /// Takes the credit to announce.
    fn take_credit(&self) -> Option<NonZeroU32>;

    /// Records that the resume is sent: credit announced from now on arrives after it.
    fn resumed(&self);

    /// Fails the channel. Buffers that arrived before are still read.
    fn fail(&self, cause: ConnectionError);
}

/// The memory for the payload of an arriving buffer.
pub enum Target {
    /// A segment that was announced as credit.
    Segment(PooledSegment),
    /// Ordinary memory of the exact size, for an event. The decoder limits the size.
    Event(Vec<u8>),
    /// None: the channel is released or failed.
    Discard,
}

/// A message from a channel to its producer, other than credit.
#[derive(Debug, Clone)]
pub enum UpstreamMessage {
    /// An encoded event for the producing task.
    TaskEvent(Bytes),
    /// All records up to the end of data are processed.
    Acknowledge,
    /// The bytes a buffer should hold from now on.
    BufferSize(NonZeroU32),
}

/// Takes a channel's messages to its producer; never waits.
pub trait CreditSink: Send + Sync {
    /// Announces the channel's credit.
    fn credit_available(&self, channel: Arc<dyn Channel>);
    /// Cancels the partition request.
    fn cancel(&self, channel: Arc<dyn Channel>);
    /// Lets the producer continue behind a barrier.
    fn resume(&self, channel: Arc<dyn Channel>);
    /// Sends any other message.
    fn tell(&self, channel: Arc<dyn Channel>, message: UpstreamMessage);
}
