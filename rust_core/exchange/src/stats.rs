//! Snapshots: plain numbers, taken without stopping anything.

use std::time::Duration;

use headgate_memory::PoolStats;
use headgate_protocol::PartitionId;

use crate::metrics::{Passed, TaskTimes};

/// Open connections, by the link they run over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections over TCP.
    pub tcp: usize,
    /// Connections within the host, which share memory.
    pub same_host: usize,
}

/// Buffers lent to processes of the same host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LentStats {
    /// Buffers on loan now.
    pub now: usize,
    /// Buffers lent since the environment was created.
    pub buffers: u64,
    /// Bytes of those buffers.
    pub bytes: u64,
}

pub(crate) mod names;

/// Buffers that wait somewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queued {
    /// Their number, with events and the one that is still written.
    pub buffers: usize,
    /// Bytes of data in them.
    pub bytes: u64,
}

/// Segments that somebody may use, and uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use.
    pub used: usize,
    /// At hand; fewer than in use where some are overdrawn, or were lent and are wanted back.
    pub size: usize,
}

/// How one subpartition is doing.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubpartitionStats {
    /// Data buffers waiting for the consumer.
    pub queued: u32,
    /// Rows added.
    pub rows: u64,
    /// Bytes taken.
    pub bytes: u64,
    /// Buffers taken.
    pub buffers: u64,
    /// Everything that waits for the consumer, or for the disk.
    pub queue: Queued,
    /// Data buffers that the writer finished.
    pub finished: Passed,
}

/// How one partition is doing.
#[derive(Debug, Clone)]
pub struct PartitionStats {
    /// Its name.
    pub id: PartitionId,
    /// Of its pool.
    pub pool: Usage,
    /// How long its writer waited for output.
    pub times: TaskTimes,
    /// In order.
    pub subpartitions: Vec<SubpartitionStats>,
}

/// Where a channel's data comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// A partition of this process.
    Local,
    /// Another process.
    Remote,
    /// Not known yet.
    #[default]
    Unknown,
}

/// How one channel is doing.
#[derive(Debug, Clone, Default)]
pub struct ChannelStats {
    /// Its name in errors.
    pub name: String,
    /// Where its data comes from.
    pub origin: Origin,
    /// Segments the producer may still fill; `None` for a local channel, which needs none.
    pub credit: Option<u32>,
    /// What waits for the reader; of a local channel, in the subpartition.
    pub queue: Queued,
    /// Data buffers that the reader took.
    pub taken: Passed,
    /// Its exclusive segments: none of a local channel, or of one that was read to its end.
    pub exclusive: Usage,
    /// Its segments that are free, of either kind.
    pub free: usize,
}

/// How one gate is doing.
#[derive(Debug, Clone, Default)]
pub struct GateStats {
    /// Exclusive segments of all its channels.
    pub exclusive: Usage,
    /// Segments that go where the backlog is.
    pub floating: Usage,
    /// How long its reader found nothing.
    pub times: TaskTimes,
    /// What its buffers are to be; none without debloating.
    pub debloating: Option<DebloatStats>,
    /// In order.
    pub channels: Vec<ChannelStats>,
}

/// How large the buffers of a gate are to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebloatStats {
    /// Bytes that the producers were told last.
    pub buffer_size: u32,
    /// How long the reader would take for all buffers in use, if they were full.
    pub time_to_consume: Duration,
}

/// What went to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes written to files, of all partitions so far.
    pub bytes_written: u64,
    /// Bytes read back; what is read twice counts twice.
    pub bytes_read: u64,
    /// Files that are open now.
    pub files: u64,
}

/// A snapshot of an environment.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Segments by state.
    pub pool: PoolStats,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
    /// Bytes read from sockets.
    pub bytes_received: u64,
    /// Connections that proved themselves and are open.
    pub connections: Connections,
    /// What processes of this host read in its segments.
    pub lent: LentStats,
    /// Payload bytes gathered into pages.
    pub copied_scatter: u64,
    /// Payload bytes of small pages put together into larger batches.
    pub copied_coalesced: u64,
    /// Payload bytes copied out because the caller keeps too many batches.
    pub copied_pool_low: u64,
    /// Payload bytes of records that spanned buffers.
    pub copied_spanning: u64,
    /// Payload bytes of lent buffers that could not be read in place.
    pub copied_unmapped: u64,
    /// Payload bytes of slices that were gathered into pages rather than keep what they are of.
    pub copied_compacted: u64,
    /// Payload bytes of buffers in pieces that were read in one.
    pub copied_joined: u64,
    /// Bytes of large records written to files until they were complete.
    pub copied_spilled: u64,
    /// Bytes of buffers that were to be compressed.
    pub compressed_in: u64,
    /// Bytes of the same buffers afterwards.
    pub compressed_out: u64,
    /// What went to disk.
    pub spilled: SpillStats,
    /// Data buffers that its readers took from channels of this process, so far.
    pub in_local: Passed,
    /// The same, from channels of other processes.
    pub in_remote: Passed,
    /// Data buffers that its writers finished so far, once for each subpartition that gets them.
    pub out: Passed,
    /// What it spends its time on, as one task.
    pub times: TaskTimes,
    /// Those that are open.
    pub partitions: Vec<PartitionStats>,
    /// Those that are open.
    pub gates: Vec<GateStats>,
}
