//! Checkpoint barriers and their options.

use bytes::Bytes;

/// The border between what belongs to a checkpoint and what does not.
///
/// Its body: id i64, timestamp i64, snapshot type u8, for savepoints format u8, location length
/// i32 (-1: the default location), location, alignment u8, timeout i64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointBarrier {
    /// Id of the checkpoint, ascending.
    pub id: i64,
    /// When it was triggered, in milliseconds since 1970.
    pub timestamp: i64,
    /// How it is taken.
    pub options: CheckpointOptions,
}

/// How a checkpoint is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// What kind of snapshot.
    pub snapshot_type: SnapshotType,
    /// Where it is stored; none for the default location.
    pub location: Option<Bytes>,
    /// Whether barriers wait for each other.
    pub alignment: AlignmentType,
    /// Milliseconds after which an aligned one becomes unaligned; [`NO_TIMEOUT`](Self::NO_TIMEOUT) for never.
    pub aligned_timeout: i64,
}

impl CheckpointOptions {
    /// The timeout that never comes.
    pub const NO_TIMEOUT: i64 = i64::MAX;
}

/// Kinds of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotType {
    /// A checkpoint.
    Checkpoint,
    /// A checkpoint that shares nothing with earlier ones.
    FullCheckpoint,
    /// A savepoint, after which the job goes on.
    Savepoint(SavepointFormat),
    /// A savepoint to suspend the job with.
    SavepointSuspend(SavepointFormat),
    /// A savepoint to end the job with.
    SavepointTerminate(SavepointFormat),
}

/// Formats of savepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavepointFormat {
    /// The same for all state backends.
    Canonical,
    /// The state backend's own.
    Native,
}

/// How barriers treat records that they meet on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignmentType {
    /// Barriers wait for each other.
    Aligned,
    /// Records may be seen twice after recovery.
    AtLeastOnce,
    /// Aligned because the channel cannot do otherwise.
    ForcedAligned,
    /// Barriers overtake records, which become part of the checkpoint.
    Unaligned,
}

impl SnapshotType {
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
