//! Barriers and options of checkpoints, as far as the state machines look at them.

use crate::CheckpointId;

/// Separates the records before a checkpoint from those after it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CheckpointBarrier<S> {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Time of the trigger, in milliseconds since 1970.
    pub timestamp: i64,
    /// Options of the checkpoint.
    pub options: CheckpointOptions<S>,
}

/// Options of a checkpoint. `S` describes the snapshot (its kind and location); the state machines
/// only pass it on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CheckpointOptions<S> {
    /// Handling of the records that the barrier meets.
    pub alignment: Alignment,
    /// Description of the snapshot.
    pub snapshot: S,
}

/// Handling of the records that a barrier meets.
///
/// Flink's forced alignment is [`Aligned`](Self::Aligned) here: only the task that sends the barrier
/// on distinguishes the two.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Alignment {
    /// Barriers wait for each other.
    Aligned,
    /// Barriers wait for each other until a timeout, then overtake records.
    Timeoutable {
        /// Milliseconds from the trigger of the checkpoint.
        timeout: u64,
    },
    /// Barriers overtake records, which become part of the checkpoint.
    Unaligned,
    /// Barriers neither wait nor overtake: records behind one may be in the snapshot, and are processed
    /// again after a recovery.
    AtLeastOnce,
}

impl Alignment {
    /// Returns true if the producer stops behind such a barrier until the channel is resumed.
    #[must_use]
    pub const fn blocks_channel(self) -> bool {
        matches!(self, Self::Aligned | Self::Timeoutable { .. })
    }

    /// Returns true if records in flight can become part of the checkpoint.
    #[must_use]
    pub const fn needs_channel_state(self) -> bool {
        matches!(self, Self::Timeoutable { .. } | Self::Unaligned)
    }
}

impl<S> CheckpointBarrier<S> {
    /// Returns the time from which the barrier overtakes records; `None` for never, and for a
    /// barrier that does so at once.
    #[must_use]
    pub const fn deadline(&self) -> Option<i64> {
        match self.options.alignment {
            Alignment::Timeoutable { timeout } => {
                Some(self.timestamp.saturating_add_unsigned(timeout))
            }
            Alignment::Aligned | Alignment::Unaligned | Alignment::AtLeastOnce => None,
        }
    }

    /// Returns true if the deadline has passed.
    #[must_use]
    pub fn is_timed_out(&self, now: i64) -> bool {
        self.deadline().is_some_and(|deadline| now > deadline)
    }

    /// Returns the barrier of a checkpoint whose alignment ended without all barriers.
    #[must_use]
    pub fn into_unaligned(mut self) -> Self {
        self.options.alignment = Alignment::Unaligned;
        self
    }
}
