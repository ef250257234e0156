//! What an environment is made with; immutable afterwards.

use std::path::PathBuf;
use std::time::Duration;

/// Sizes, names and secrets of one environment.
#[derive(Clone)]
pub struct Config {
    /// Budget of exchange data in bytes.
    pub memory: usize,
    /// Bytes of one segment: a multiple of 64.
    pub segment_size: usize,
    /// `host:port` to listen on, once somebody asks for an address; port 0 is any free one.
    pub listen: String,
    /// Shared by all processes of the exchange.
    pub secret: [u8; 32],
    /// Which exchange.
    pub exchange: [u8; 16],
    /// Which evaluation of it.
    pub run: u32,
    /// Which attempt at that.
    pub epoch: u32,
    /// Largest record in bytes.
    pub max_record_size: usize,
    /// How the pool is shared out.
    pub buffers: BufferOptions,
    /// Larger records than this are put together in files if they span buffers, in bytes.
    pub spill_threshold: usize,
    /// Where files for what does not fit memory are made; none for the system's directory.
    pub temp_directories: Vec<PathBuf>,
    /// How long a request waits for a partition that does not exist yet; zero refuses it at once.
    pub partition_request_timeout: Duration,
    /// Silence after which a peer to which channels are open is taken for lost.
    pub idle_timeout: Duration,
    /// Whether processes of this host and user are reached without TCP, and share memory.
    pub same_host_link: bool,
    /// How buffers follow the speed of their readers; none for buffers as large as they can be.
    pub buffer_debloat: Option<BufferDebloatOptions>,
}

/// How large the buffers of a gate are to be, under Flink's names; never more than a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferDebloatOptions {
    /// In what time a reader should be done with all buffers that wait for it.
    pub target: Duration,
    /// Between two samples.
    pub period: Duration,
    /// Over how many samples the size is smoothed. At least 1.
    pub samples: u32,
    /// Changes by less than this share of the size, in percent, are kept back.
    pub threshold_percentages: u32,
    /// The least that buffers are to hold, in bytes.
    pub min_segment_size: usize,
    /// What they are to hold at first, in bytes.
    pub starting_segment_size: usize,
}

/// How many segments partitions and gates are promised and may have, under Flink's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferOptions {
    /// Exclusive ones of a remote channel, and those that a subpartition may queue beside the one
    /// being written. With 0 a channel has floating ones only, for the backlog that is announced.
    pub buffers_per_channel: usize,
    /// Those of a gate or partition that go where they are wanted. At least 1.
    pub floating_buffers_per_gate: usize,
    /// A writer waits before its next batch while a subpartition has queued as many. At least 1.
    pub max_buffers_per_channel: usize,
    /// What a partition may take beyond its size to complete a batch, of what nobody else may.
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
    /// What tests are made with that ask for nothing in particular.
    pub(crate) fn of_segments(segments: usize, segment_size: usize) -> Self {
        Self {
            memory: segments * segment_size,
            segment_size,
            listen: "127.0.0.1:0".to_owned(),
            secret: [7; 32],
            exchange: [1; 16],
            run: 1,
            epoch: 1,
            max_record_size: 1 << 20,
            buffers: BufferOptions::default(),
            spill_threshold: 1 << 20,
            temp_directories: Vec::new(),
            partition_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(10),
            same_host_link: false,
            buffer_debloat: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secret.
        f.debug_struct("Config")
            .field("memory", &self.memory)
            .field("segment_size", &self.segment_size)
            .field("listen", &self.listen)
            .field("run", &self.run)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
