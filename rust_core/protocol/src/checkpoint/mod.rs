//! Checkpoint barriers (spec 10.2 to 10.4): when a task takes its snapshot, which channels wait for it,
//! and which buffers in flight belong to it.
//!
//! The machines read no clock and call nobody. The task's thread gives each event to
//! [`CheckpointBarrierHandler`] (exactly once) or [`CheckpointBarrierTracker`] (at least once) and
//! carries out the effects that it returns, in their order.
//!
//! The input gate of the crate `exchange` does not call these machines yet.

mod barrier_handler;
mod barrier_tracker;
mod effect;
mod options;

pub use barrier_handler::{CheckpointBarrierHandler, CheckpointNotStarted};
pub use barrier_tracker::{CheckpointBarrierTracker, MAX_CHECKPOINTS_TO_TRACK};
pub use effect::{AlignmentMetrics, ChannelNotOpen, CheckpointEffect, CheckpointFailureReason};
pub use options::{Alignment, CheckpointBarrier, CheckpointOptions};
