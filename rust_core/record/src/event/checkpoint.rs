//! Checkpoint barriers and their options.

use bytes::Bytes;

use super::error::EventError;

/// Separates the records that belong to a checkpoint from those that do not.
///
/// Body: id i64, timestamp i64, snapshot type u8, for savepoints format u8, location length i32 (-1
/// for the default location), location, alignment u8, timeout i64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointBarrier {
    /// Id of the checkpoint, ascending.
    pub id: i64,
    /// Trigger time in milliseconds since 1970.
    pub timestamp: i64,
    /// Options of the checkpoint.
    pub options: CheckpointOptions,
}

/// Options of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Kind of snapshot.
    pub snapshot_type: SnapshotType,
    /// Storage location; `None` for the default location.
    pub location: Option<Bytes>,
    /// Alignment of barriers.
    pub alignment: AlignmentType,
    /// Milliseconds until an aligned checkpoint becomes unaligned; [`NO_TIMEOUT`](Self::NO_TIMEOUT)
    /// for never.
    pub aligned_timeout: i64,
}

impl CheckpointOptions {
    /// Timeout of a checkpoint that never becomes unaligned.
    pub const NO_TIMEOUT: i64 = i64::MAX;

    /// Options of a snapshot under the settings of a job (Flink's `CheckpointOptions.forConfig`).
    ///
    /// `aligned_timeout` is in milliseconds; with 0, barriers overtake records at once.
    #[must_use]
    pub fn for_config(
        snapshot_type: SnapshotType,
        location: Option<Bytes>,
        is_exactly_once: bool,
        is_unaligned_enabled: bool,
        aligned_timeout: i64,
    ) -> Self {
        let (alignment, aligned_timeout) = if !is_exactly_once {
            (AlignmentType::AtLeastOnce, Self::NO_TIMEOUT)
        } else if snapshot_type.is_savepoint() || !is_unaligned_enabled {
            (AlignmentType::Aligned, Self::NO_TIMEOUT)
        } else if aligned_timeout == 0 {
            (AlignmentType::Unaligned, Self::NO_TIMEOUT)
        } else {
            (AlignmentType::Aligned, aligned_timeout)
        };
        Self { snapshot_type, location, alignment, aligned_timeout }
    }

    /// True if an aligned checkpoint becomes unaligned after a timeout.
    #[must_use]
    pub fn is_timeoutable(&self) -> bool {
        let can_come = (1..Self::NO_TIMEOUT).contains(&self.aligned_timeout);
        self.alignment == AlignmentType::Aligned && can_come
    }

    /// Returns true if barriers of this checkpoint wait for each other.
    #[must_use]
    pub fn needs_alignment(&self) -> bool {
        match self.alignment {
            AlignmentType::AtLeastOnce => false,
            AlignmentType::Unaligned => self.snapshot_type.is_savepoint(),
            AlignmentType::Aligned | AlignmentType::ForcedAligned => true,
        }
    }

    /// True if records in flight can become part of the checkpoint.
    #[must_use]
    pub fn needs_channel_state(&self) -> bool {
        self.alignment == AlignmentType::Unaligned || self.is_timeoutable()
    }

    /// Options for a channel on which barriers cannot overtake records: forces alignment and keeps
    /// the timeout, from which the original alignment can be restored.
    #[must_use]
    pub fn with_unaligned_unsupported(self) -> Self {
        if self.needs_channel_state() {
            Self { alignment: AlignmentType::ForcedAligned, ..self }
        } else {
            self
        }
    }

    /// Reverts [`with_unaligned_unsupported`](Self::with_unaligned_unsupported).
    #[must_use]
    pub fn with_unaligned_supported(self) -> Self {
        let alignment = match self.alignment {
            AlignmentType::ForcedAligned if self.aligned_timeout == Self::NO_TIMEOUT => {
                AlignmentType::Unaligned
            }
            AlignmentType::ForcedAligned => AlignmentType::Aligned,
            other => other,
        };
        Self { alignment, ..self }
    }

    /// Checks that the options do not contradict each other.
    pub(super) fn check(&self) -> Result<(), EventError> {
        if self.alignment != AlignmentType::Unaligned {
            return Ok(());
        }
        if self.snapshot_type.is_savepoint() {
            return Err(EventError::Contradiction("a savepoint cannot be unaligned"));
        }
        if self.aligned_timeout != Self::NO_TIMEOUT {
            return Err(EventError::Contradiction("an unaligned checkpoint has no timeout"));
        }
        Ok(())
    }
}

/// Kind of snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotType {
    /// A checkpoint.
    Checkpoint,
    /// A checkpoint that does not share files with earlier ones.
    FullCheckpoint,
    /// A savepoint; the job continues.
    Savepoint(SavepointFormat),
    /// A savepoint that suspends the job.
    SavepointSuspend(SavepointFormat),
    /// A savepoint that terminates the job.
    SavepointTerminate(SavepointFormat),
}

/// Format of a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavepointFormat {
    /// Common to all state backends.
    Canonical,
    /// Specific to the state backend.
    Native,
}

/// Handling of the records that a barrier meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignmentType {
    /// Barriers wait for each other.
    Aligned,
    /// Barriers do not wait; records may be processed twice after recovery.
    AtLeastOnce,
    /// Aligned because the channel does not support overtaking.
    ForcedAligned,
    /// Barriers overtake records, which become part of the checkpoint.
    Unaligned,
}

impl SnapshotType {
    /// True for savepoints.
    #[must_use]
    pub fn is_savepoint(self) -> bool {
        self.format().is_some()
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Checkpoint => 0,
            Self::Savepoint(_) => 1,
            Self::SavepointSuspend(_) => 2,
            Self::SavepointTerminate(_) => 3,
            Self::FullCheckpoint => 4,
        }
    }

    pub(super) fn format(self) -> Option<SavepointFormat> {
        match self {
            Self::Savepoint(format)
            | Self::SavepointSuspend(format)
            | Self::SavepointTerminate(format) => Some(format),
            Self::Checkpoint | Self::FullCheckpoint => None,
        }
    }
}

impl SavepointFormat {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Canonical => 0,
            Self::Native => 1,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Canonical, Self::Native].into_iter().find(|format| format.code() == code)
    }
}

impl AlignmentType {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::AtLeastOnce => 0,
            Self::Aligned => 1,
            Self::Unaligned => 2,
            Self::ForcedAligned => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::AtLeastOnce, Self::Aligned, Self::Unaligned, Self::ForcedAligned]
            .into_iter()
            .find(|alignment| alignment.code() == code)
    }
}
