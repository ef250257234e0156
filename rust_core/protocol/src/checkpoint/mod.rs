//! Checkpoint barriers (spec 10.2, 10.3): when a task takes its snapshot, which channels wait for it,
//! and which buffers in flight belong to it.
//!
//! The machines read no clock and call nobody. The task's thread gives each event to
//! [`CheckpointBarrierHandler`] and carries out the effects that it returns, in their order.
//!
//! The input gate of the crate `exchange` does not call these machines yet.

mod barrier_handler;
mod effect;
mod options;

pub use barrier_handler::{CheckpointBarrierHandler, CheckpointNotStarted};
pub use effect::{AlignmentMetrics, ChannelNotOpen, CheckpointEffect, CheckpointFailureReason};
pub use options::{Alignment, CheckpointBarrier, CheckpointOptions};
