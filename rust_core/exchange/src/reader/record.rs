//! `Record`: what a reader returns.

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_record::Event;

use super::checkpoints::CheckpointNotice;

/// One item of a channel.
#[derive(Debug)]
pub enum Record {
    /// Rows. They lie in the segment they arrived in where that is possible.
    Batch(RecordBatch),
    /// A bytes record. It may borrow its segment: copy it before you keep it.
    Bytes(Bytes),
    /// An event of a channel.
    Event {
        /// Index of the channel in the gate.
        channel: usize,
        /// The decoded event.
        event: Event,
    },
    /// The progress of a checkpoint, if the gate takes checkpoints.
    Checkpoint(CheckpointNotice),
}
