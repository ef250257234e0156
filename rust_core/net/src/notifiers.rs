//! The ways in which other threads tell the I/O thread of partitions that it serves.

use std::sync::Arc;

use headgate_protocol::ChannelId;

use crate::mailbox::{Command, Mailbox};

/// Tells the I/O thread of data in a subpartition that it serves.
pub struct DataNotifier {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: usize,
    pub(crate) channel: ChannelId,
    /// True if buffers are lent to the peer, which takes none in pieces.
    pub(crate) lends: bool,
}

impl DataNotifier {
    /// Returns true if the connection takes buffers in pieces.
    pub fn takes_pieces(&self) -> bool {
        !self.lends
    }

    /// Something can be taken, or the subpartition has ended.
    pub fn data_available(&self) {
        let (connection, channel) = (self.connection, self.channel);
        self.mailbox.post(Command::Data { connection, channel });
    }
}

/// Tells the I/O thread that the partition of a waiting request was created.
pub struct PartitionNotifier {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: usize,
    pub(crate) channel: ChannelId,
}

impl PartitionNotifier {
    /// The requested partition is there.
    pub fn partition_created(&self) {
        let (connection, channel) = (self.connection, self.channel);
        self.mailbox.post(Command::PartitionCreated { connection, channel });
    }
}
