//! The configuration of an environment, immutable once it is created.

use std::path::PathBuf;
use std::time::Duration;

use headgate_tls::Tls;

/// Sizes, names and secrets of one environment.
#[derive(Clone)]
pub struct Config {
    /// Budget of exchange data, in bytes.
    pub memory: usize,
    /// Bytes of one segment: a multiple of 64.
    pub segment_size: usize,
    /// `host:port` to listen on, from the first call of `address` on. Port 0 is any free port.
    pub listen: String,
    /// Secret of all processes of the exchange.
    pub secret: [u8; 32],
    /// Id of the exchange.
    pub exchange: [u8; 16],
    /// Number of the evaluation of the exchange.
    pub run: u32,
    /// Number of the attempt at this run.
    pub epoch: u32,
    /// Name of the process within the exchange. Random if not given; given to a process that takes
    /// the place of one that has ended, for those who know its address.
    pub process: Option<[u8; 16]>,
    /// Size of the largest record, in bytes.
    pub max_record_size: usize,
    /// Shares of partitions and gates in the pool.
    pub buffers: BufferOptions,
    /// Size in bytes from which on records that span buffers are assembled in files.
    pub spill_threshold: usize,
    /// Directories for spill files. Empty for the system's directory for temporary files.
    pub temp_directories: Vec<PathBuf>,
    /// Time that a request waits for a partition that does not exist yet. Zero refuses it at once.
    pub partition_request_timeout: Duration,
    /// Silence after which a peer with open channels counts as lost.
    pub idle_timeout: Duration,
    /// True if processes of this host and user connect over Unix sockets and share memory.
    pub same_host_link: bool,
    /// Encrypts connections over TCP; None leaves them in the clear.
    pub tls: Option<Tls>,
    /// Options of buffer debloating; none for buffers as large as they can be.
    pub buffer_debloat: Option<BufferDebloatOptions>,
}

/// Options of buffer debloating, under Flink's names. Buffers are never larger than a segment.
///
/// Decision: ADR 0018.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferDebloatOptions {
    /// Time in which a reader should consume all buffers that wait for it.
    pub target: Duration,
    /// Time between two samples.
    pub period: Duration,
    /// Number of samples that the size is smoothed over. At least 1.
    pub samples: u32,
    /// Smallest change that is announced, in percent of the size.
    pub threshold_percentages: u32,
    /// Smallest size, in bytes.
    pub min_segment_size: usize,
    /// Size at first, in bytes.
    pub starting_segment_size: usize,
}

/// Numbers of segments that partitions and gates are promised and may have, under Flink's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferOptions {
    /// Exclusive segments of a remote channel, and segments that a subpartition may queue beside
    /// the one being written. With 0 a channel has floating segments only, for the backlog that is
    /// announced.
    pub buffers_per_channel: usize,
    /// Floating segments of a gate or partition, for whichever channel needs them. At least 1.
    pub floating_buffers_per_gate: usize,
    /// Queued segments of a subpartition from which on its writer waits before the next batch. At
    /// least 1.
    pub max_buffers_per_channel: usize,
    /// Segments that a partition may take beyond its size to complete a batch. They come from those
    /// that are promised to no other pool.
    pub max_overdraft_buffers: usize,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self {
            buffers_per_channel: 2,
            floating_buffers_per_gate: 8,
            max_buffers_per_channel: 10,
            max_overdraft_buffers: 5,
        }
    }
}

#[cfg(test)]
impl Config {
    /// A configuration for tests with no special needs.
    pub(crate) fn of_segments(segments: usize, segment_size: usize) -> Self {
        Self {
            memory: segments * segment_size,
            segment_size,
            listen: "127.0.0.1:0".to_owned(),
            secret: [7; 32],
            exchange: [1; 16],
            run: 1,
            epoch: 1,
            process: None,
            max_record_size: 1 << 20,
            buffers: BufferOptions::default(),
            spill_threshold: 1 << 20,
            temp_directories: Vec::new(),
            partition_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(10),
            same_host_link: false,
            tls: None,
            buffer_debloat: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Leaves out the secret.
        f.debug_struct("Config")
            .field("memory", &self.memory)
            .field("segment_size", &self.segment_size)
            .field("listen", &self.listen)
            .field("run", &self.run)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
