//! The part of one channel's data that belongs to a checkpoint (spec 10.6).

use thiserror::Error;

use crate::{CheckpointId, Sequence};

/// Decides which data of a channel is written to the channel state of a checkpoint.
///
/// The driver calls it under the channel's lock. A channel from another process calls
/// [`on_barrier`](Self::on_barrier) and [`persists`](Self::persists) when a buffer arrives, a local
/// one when it is read. An announcement is no event for the persister.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ChannelStatePersister {
    status: Status,
    /// Newest checkpoint that was started or stopped, or whose barrier was seen. `status` is about
    /// this one.
    last: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Status {
    /// The channel's part of the checkpoint is complete, or nothing has happened yet.
    #[default]
    Completed,
    /// The checkpoint was started, and the channel's barrier is still to come.
    BarrierPending,
    /// The channel's barrier was seen.
    BarrierReceived {
        /// Number of the barrier: data with a lower one comes before the checkpoint.
        sequence: Sequence,
    },
}

impl ChannelStatePersister {
    /// Starts a checkpoint. Returns which of the queued data must be written to it now.
    ///
    /// # Errors
    /// The barrier of a newer checkpoint was seen, so the data of this one is not known any more.
    pub fn start(&mut self, checkpoint: CheckpointId) -> Result<InFlight, Overtaken> {
        if let (Status::BarrierReceived { sequence }, Some(last)) = (self.status, self.last) {
            if last > checkpoint {
                return Err(Overtaken { checkpoint, by: last });
            }
            if last == checkpoint {
                return Ok(InFlight::Before(sequence));
            }
        }
        if Some(checkpoint) > self.last {
            self.status = Status::BarrierPending;
            self.last = Some(checkpoint);
        }
        Ok(InFlight::All)
    }

    /// Returns the checkpoint to which data that arrives now must be written, if any.
    #[must_use]
    pub fn persists(&self) -> Option<CheckpointId> {
        self.last.filter(|_| self.status == Status::BarrierPending)
    }

    /// Handles a barrier of the channel; `sequence` is its number. Ignored if a newer checkpoint was
    /// started, or if the channel's part of this one is complete.
    pub fn on_barrier(&mut self, checkpoint: CheckpointId, sequence: Sequence) {
        let accepted = if self.status == Status::Completed {
            Some(checkpoint) > self.last
        } else {
            Some(checkpoint) >= self.last
        };
        if accepted {
            self.status = Status::BarrierReceived { sequence };
            self.last = Some(checkpoint);
        }
    }

    /// Stops a checkpoint that was completed or aborted. Ignored if a newer one was seen.
    pub fn stop(&mut self, checkpoint: CheckpointId) {
        if Some(checkpoint) >= self.last {
            self.status = Status::Completed;
            self.last = Some(checkpoint);
        }
    }

    /// Returns true if a barrier was seen whose checkpoint is not stopped.
    #[must_use]
    pub const fn has_barrier_received(&self) -> bool {
        matches!(self.status, Status::BarrierReceived { .. })
    }
}

/// The queued data of a channel that belongs to a checkpoint.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum InFlight {
    /// All of it: the barrier is still to come.
    All,
    /// Data before the barrier of this number.
    Before(Sequence),
}

impl InFlight {
    /// Returns true if a queued buffer of this number belongs to the checkpoint.
    #[must_use]
    pub const fn contains(self, sequence: Sequence) -> bool {
        match self {
            Self::All => true,
            Self::Before(barrier) => barrier.is_after(sequence),
        }
    }
}

/// A checkpoint cannot be started, as the channel has seen a newer barrier.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("checkpoint {checkpoint} cannot start: the barrier of checkpoint {by} has arrived")]
pub struct Overtaken {
    /// Checkpoint to start.
    pub checkpoint: CheckpointId,
    /// Checkpoint of the barrier.
    pub by: CheckpointId,
}
