//! Snapshots: plain numbers, taken without stopping anything.

use std::time::Duration;

use headgate_memory::PoolStats;

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
}

/// How one channel is doing.
#[derive(Debug, Clone, Default)]
pub struct ChannelStats {
    /// Its name in errors.
    pub name: String,
    /// Segments the producer may still fill; `None` for a local channel, which needs none.
    pub credit: Option<u32>,
    /// Buffers waiting for the reader.
    pub queued: usize,
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
    /// Payload bytes gathered into pages.
    pub copied_scatter: u64,
    /// Payload bytes copied out because the caller keeps too many batches.
    pub copied_pool_low: u64,
    /// Payload bytes of records that spanned buffers.
    pub copied_spanning: u64,
    /// Bytes of large records written to files until they were complete.
    pub copied_spilled: u64,
    /// Bytes of buffers that were to be compressed.
    pub compressed_in: u64,
    /// Bytes of the same buffers afterwards.
    pub compressed_out: u64,
    /// What went to disk.
    pub spilled: SpillStats,
    /// Of each open partition, its subpartitions.
    pub partitions: Vec<Vec<SubpartitionStats>>,
    /// Of each open gate, its channels.
    pub gates: Vec<Vec<ChannelStats>>,
    /// Of each open gate, what its buffers are to be; none without debloating.
    pub debloating: Vec<Option<DebloatStats>>,
}
