//! Checkpoint barriers and channel state (spec 10.2 to 10.7): when a task takes its snapshot, which
//! channels wait for it, and which buffers in flight belong to it. ADR 0032.
//!
//! The machines read no clock and call nobody. The task's thread gives each event to
//! [`CheckpointBarrierHandler`] (exactly once) or [`CheckpointBarrierTracker`] (at least once) and
//! carries out the effects that it returns, in their order. A [`ChannelStatePersister`] belongs to
//! one channel, under the channel's lock; a [`ChannelStateWriter`] to one task.
//!
//! In the crate `exchange` the reader of a gate drives the handler, and each channel its persister.

mod barrier_handler;
mod barrier_tracker;
mod channel_state_persister;
mod channel_state_writer;
mod effect;
mod options;

pub use barrier_handler::{CheckpointBarrierHandler, CheckpointNotStarted};
pub use barrier_tracker::{CheckpointBarrierTracker, MAX_CHECKPOINTS_TO_TRACK};
pub use channel_state_persister::{ChannelStatePersister, InFlight, Overtaken};
pub use channel_state_writer::{
    ChannelStatePart, ChannelStateWriter, ChannelStateWriterError, MAX_CHANNEL_STATES,
};
pub use effect::{AlignmentMetrics, ChannelNotOpen, CheckpointEffect, CheckpointFailureReason};
pub use options::{Alignment, CheckpointBarrier, CheckpointOptions};
