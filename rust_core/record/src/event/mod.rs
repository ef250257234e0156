//! Control messages in-band with the data, each a big-endian `i32` code and a body.
//!
//! | code | event | body | bytes |
//! |---|---|---|---|
//! | 0 | `EndOfPartition` | | 4 |
//! | 1 | `CheckpointBarrier` | see [`CheckpointBarrier`] | 34 + location, 35 for savepoints |
//! | 2 | `EndOfSuperstep` | | 4 |
//! | 3 | `Custom` | name length u16, name in UTF-8, body length u32, body | 10 + both |
//! | 4 | `CancelCheckpointMarker` | checkpoint id i64 | 12 |
//! | 5 | `EndOfChannelState` | | 4 |
//! | 6 | `EventAnnouncement` | sequence number i32, the announced event | 8 + event |
//! | 7 | `SubtaskConnectionDescriptor` | input subtask i32, output subtask i32 | 12 |
//! | 8 | `EndOfData` | stop mode u8 | 5 |
//! | 9 | `EndOfSegment` | | 4 |
//! | 10 | `RecoveryMetadata` | final index of buffers i32 | 8 |
//!
//! Readers ignore what follows an event: senders may pad, and the end of a partition carries totals there.

mod checkpoint;
mod codec;

use bytes::Bytes;

pub use checkpoint::{
    AlignmentType, CheckpointBarrier, CheckpointOptions, SavepointFormat, SnapshotType,
};

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The checkpoint with this id is given up.
    CancelCheckpointMarker {
        /// Id of the checkpoint.
        checkpoint_id: i64,
    },
    /// State before it belongs to the checkpoint, state after it does not.
    CheckpointBarrier(CheckpointBarrier),
    /// An event of the user's own.
    Custom {
        /// What kind of event it is, at most 65,535 bytes.
        name: String,
        /// Its content.
        body: Bytes,
    },
    /// The recovered state of a channel ends here.
    EndOfChannelState,
    /// The user's records end here; the partition does not yet.
    EndOfData(StopMode),
    /// The partition ends here.
    EndOfPartition,
    /// A segment of a tiered partition ends here.
    EndOfSegment,
    /// A superstep of an iteration ends here.
    EndOfSuperstep,
    /// An event that is still queued, seen ahead of its turn by the receiving channel.
    EventAnnouncement {
        /// Sequence number of the announced event's buffer.
        sequence_number: i32,
        /// The event; not itself an announcement.
        announced: Box<Self>,
    },
    /// What recovery needs to know of the buffers before it.
    RecoveryMetadata {
        /// Index of the last of them.
        final_buffer_index: i32,
    },
    /// Which old channel the following recovered buffers belong to.
    SubtaskConnectionDescriptor {
        /// The sending subtask.
        input_subtask: i32,
        /// The receiving subtask.
        output_subtask: i32,
    },
}

/// Why the records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// The input is exhausted: results in waiting are to be sent.
    Drain,
    /// The job stops to go on later.
    NoDrain,
}

/// Why an event cannot be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Options of a checkpoint that cannot be had together.
    #[error("the options of a checkpoint contradict each other: {0}")]
    Contradiction(&'static str),
    /// The bytes end within the event.
    #[error("an event of {got} bytes is incomplete: {needed} more are needed at {at}")]
    Incomplete {
        /// Where the missing field starts.
        at: usize,
        /// How many bytes are missing.
        needed: usize,
        /// How many bytes there are.
        got: usize,
    },
    /// A length field is negative, or larger than what its field can say.
    #[error("{field} has the invalid length {length}")]
    InvalidLength {
        /// Which field.
        field: &'static str,
        /// The length.
        length: i64,
    },
    /// The name of a custom event is not UTF-8.
    #[error("the name of a custom event is not UTF-8")]
    InvalidName,
    /// An announcement of an announcement.
    #[error("an announcement cannot announce an announcement")]
    NestedAnnouncement,
    /// A code that stands for nothing.
    #[error("{field} has the unknown code {code}")]
    UnknownCode {
        /// Which field.
        field: &'static str,
        /// The code.
        code: i32,
    },
}
