//! The protocol between two Headgate processes as pure state machines: no I/O, no clock, no threads
//! and no payload bytes. The driver, which is the I/O thread of the crate `exchange`, owns sockets
//! and memory and asks these types for the next step.
//!
//! A connection begins with the handshake ([`ClientHandshake`], [`ServerHandshake`]). Then the
//! consumer sends requests and credits, the producer sends buffers ([`Frame`], [`FrameDecoder`]). A
//! CRC32C ([`Crc32c`]) covers every byte of every frame.
//!
//! The producer's half is one [`SendQueue`] per connection. The consumer's half is one
//! [`ReceiveChannel`] per channel and one [`SegmentQueue`] per gate. [`HeartbeatMonitor`] detects
//! silent peers, [`BufferDebloater`] chooses the size of buffers.
//!
//! [`CheckpointBarrierHandler`] decides when a task takes its snapshot, or at least once
//! [`CheckpointBarrierTracker`]. [`ChannelStatePersister`] and [`ChannelStateWriter`] say which data
//! in flight belongs to it; [`ChannelStateBuilder`] encodes that data.

#![forbid(unsafe_code)]

mod budget;
mod channel_state;
mod checkpoint;
mod crc32c;
mod credit;
mod data_type;
mod debloat;
mod decoder;
mod deque;
mod frame;
mod frame_error;
mod frame_kind;
mod handshake;
mod header;
mod heartbeat;
mod ids;
mod kept;
mod kept_table;
mod lent;
mod mask;
mod receive;
mod segment_queue;
mod send_queue;
mod side;
mod totals;
mod wire;

pub use budget::{Budget, BudgetError, BudgetLimits, Counter};
pub use channel_state::{
    ChannelStateBuffer, ChannelStateBuilder, ChannelStateError, ChannelStateReader,
};
pub use checkpoint::{
    Alignment, AlignmentMetrics, ChannelNotOpen, ChannelStatePart, ChannelStatePersister,
    ChannelStateWriter, ChannelStateWriterError, CheckpointBarrier, CheckpointBarrierHandler,
    CheckpointBarrierTracker, CheckpointEffect, CheckpointFailureReason, CheckpointNotStarted,
    CheckpointOptions, InFlight, MAX_CHANNEL_STATES, MAX_CHECKPOINTS_TO_TRACK, Overtaken,
};
pub use crc32c::{Crc32c, crc32c};
pub use credit::{BufferKind, CreditError, NoCredit, ReceiveLedger, SendCredit};
pub use data_type::{DataType, UnknownDataType};
pub use debloat::{BufferDebloater, BufferSizeEma, ThroughputCalculator};
pub use decoder::{FrameDecoder, Limits};
pub use deque::{NotFound, PrioritizedDeque};
pub use frame::{ErrorFrame, Frame, MAX_ERROR_TEXT, PartitionRequest};
pub use frame_error::FrameError;
pub use frame_kind::{
    BUFFER_HEADER_LEN, FRAME_HEADER_LEN, FrameKind, MAGIC, TASK_EVENT_HEADER_LEN,
};
pub use handshake::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, MAX_HANDSHAKE_LEN, Peer, Refusal,
    ServerHandshake, SessionKey, Step, VERSION, VersionRange,
};
pub use header::{BufferHeader, CRC_OFFSET, MAX_PAYLOAD, TASK_EVENT_CRC_OFFSET, TaskEventHeader};
pub use heartbeat::{HEARTBEAT_INTERVAL, HeartbeatMonitor};
pub use ids::{ChannelId, CheckpointId, Generation, PartitionId, Sequence};
pub use kept::{KeptBlock, KeptIndex, KeptIndexError};
pub use kept_table::{KeptTable, KeptTableError};
pub use lent::LentBuffer;
pub use mask::FrameMask;
pub use receive::{ReceiveChannel, ReceiveError};
pub use segment_queue::{QueuedFor, SegmentQueue};
pub use send_queue::{Next, SendQueue, SendQueueError};
pub use side::Side;
pub use totals::{Totals, TotalsError};
