//! Snapshots of an environment: plain numbers, taken without stopping anything, and the same numbers
//! under the names of Flink's metrics, which docs/metrics.md explains.

use std::time::Duration;

use headgate_memory::PoolStats;
use headgate_net::{Connections, LentStats};
use headgate_protocol::PartitionId;

use crate::metrics::{Passed, TaskTimes, Times};

use Metric::{Count, Share};

/// Buffers that wait in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queued {
    /// Number of buffers, including events and the buffer that is still written.
    pub buffers: usize,
    /// Bytes of their data.
    pub bytes: u64,
}

/// The use of a number of segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Segments in use.
    pub used: usize,
    /// Segments available in total. Less than `used` if segments are overdrawn, or are lent and
    /// requested back.
    pub size: usize,
}

/// A snapshot of one subpartition.
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
    /// Buffers that wait for the consumer, or for the disk.
    pub queue: Queued,
    /// Data buffers that the writer finished.
    pub finished: Passed,
}

/// A snapshot of one partition.
#[derive(Debug, Clone)]
pub struct PartitionStats {
    /// Its name.
    pub id: PartitionId,
    /// Use of its pool.
    pub pool: Usage,
    /// Time that its writer waited for output.
    pub times: TaskTimes,
    /// Its subpartitions, in order.
    pub subpartitions: Vec<SubpartitionStats>,
}

/// The producer of a channel's data.
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

/// A snapshot of one channel.
#[derive(Debug, Clone, Default)]
pub struct ChannelStats {
    /// Its name in errors.
    pub name: String,
    /// The producer of its data.
    pub origin: Origin,
    /// Segments the producer may still fill; `None` for a local channel, which needs none.
    pub credit: Option<u32>,
    /// Buffers that wait for the reader; for a local channel, those in the subpartition.
    pub queue: Queued,
    /// Data buffers that the reader took.
    pub taken: Passed,
    /// Its exclusive segments; none for a local channel, or one that was read to its end.
    pub exclusive: Usage,
    /// Its free segments of either kind.
    pub free: usize,
}

/// A snapshot of one gate.
#[derive(Debug, Clone, Default)]
pub struct GateStats {
    /// Exclusive segments of all its channels.
    pub exclusive: Usage,
    /// Floating segments of the gate.
    pub floating: Usage,
    /// Time that its reader found nothing to read.
    pub times: TaskTimes,
    /// The debloated buffer size; `None` without debloating.
    pub debloating: Option<DebloatStats>,
    /// Its channels, in order.
    pub channels: Vec<ChannelStats>,
}

/// A snapshot of a gate's buffer debloating.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebloatStats {
    /// The last announced buffer size, in bytes.
    pub buffer_size: u32,
    /// Time that the reader would need for all buffers in use, if they were full.
    pub time_to_consume: Duration,
}

/// Waits of an environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time in ns in which threads slept while they wrote a file of pages or read a kept one.
    pub disk_ns: u64,
    /// Time in ns in which writers waited for memory while all consumers were connected and none lacked
    /// credit.
    pub memory_ns: u64,
    /// Time in ns in which the network limited a connection that had more to send, for the one where it
    /// was longest.
    pub link_ns: u64,
    /// Processor time in ns of the I/O thread.
    pub io_ns: u64,
}

/// Data spilled to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes written to files, of all partitions so far.
    pub bytes_written: u64,
    /// Bytes read back. Bytes that are read twice count twice.
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
    /// Open and authenticated connections.
    pub connections: Connections,
    /// Buffers that other processes of this host read in the environment's segments.
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
    /// Payload bytes of slices that were copied so that the batches they belong to can be freed.
    pub copied_compacted: u64,
    /// Payload bytes of buffers in pieces that were joined for a reader.
    pub copied_joined: u64,
    /// Bytes of large records written to files until they were complete.
    pub copied_spilled: u64,
    /// Bytes of buffers before compression.
    pub compressed_in: u64,
    /// Bytes of the same buffers after compression.
    pub compressed_out: u64,
    /// Data spilled to disk.
    pub spilled: SpillStats,
    /// Data buffers that readers took from channels of this process, so far.
    pub in_local: Passed,
    /// Data buffers that readers took from channels of other processes, so far.
    pub in_remote: Passed,
    /// Data buffers that writers finished so far, once for each subpartition that gets them.
    pub out: Passed,
    /// Times of the environment, counted as one task.
    pub times: TaskTimes,
    /// Open partitions.
    pub partitions: Vec<PartitionStats>,
    /// Open gates.
    pub gates: Vec<GateStats>,
}

/// The value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// A number of things, bytes or milliseconds.
    Count(u64),
    /// A fraction, 1 for all of it, or a mean. 0 if the whole is 0.
    Share(f64),
}

/// Metrics by their names.
pub type Metrics = Vec<(&'static str, Metric)>;

impl Usage {
    /// The fraction in use: above 1 with overdraft, 0 if the size is 0.
    fn share(self) -> Metric {
        let share = if self.size == 0 { 0.0 } else { self.used as f64 / self.size as f64 };
        Share(share)
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |one, other| Self {
            used: one.used + other.used,
            size: one.size + other.size,
        })
    }
}

impl std::iter::Sum for Queued {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |one, other| Self {
            buffers: one.buffers + other.buffers,
            bytes: one.bytes + other.bytes,
        })
    }
}

impl Stats {
    /// Metrics of the environment's memory, in segments and in bytes.
    pub fn shuffle_metrics(&self) -> Metrics {
        let pool = &self.pool;
        let used = pool.held + pool.pinned;
        let available = pool.total.saturating_sub(used);
        let bytes = |segments: usize| Count((segments * pool.segment_size) as u64);
        vec![
            ("TotalMemorySegments", Count(pool.total as u64)),
            ("AvailableMemorySegments", Count(available as u64)),
            ("UsedMemorySegments", Count(used as u64)),
            ("TotalMemory", bytes(pool.total)),
            ("AvailableMemory", bytes(available)),
            ("UsedMemory", bytes(used)),
            ("RequestedMemoryUsage", Count(pool.requested_percent as u64)),
        ]
    }

    /// Metrics of all open gates and partitions, and totals that include closed ones.
    pub fn task_metrics(&self) -> Metrics {
        let exclusive = self.gates.iter().map(|gate| gate.exclusive).sum();
        let floating = self.gates.iter().map(|gate| gate.floating).sum();
        let channels = self.gates.iter().flat_map(|gate| &gate.channels);
        let subpartitions = self.partitions.iter().flat_map(|partition| &partition.subpartitions);
        let mut metrics = input_buffers(exclusive, floating);
        metrics.extend(input_queue(channels.map(|channel| channel.queue).sum()));
        metrics.extend(input(self.in_local, self.in_remote));
        let pools: Usage = self.partitions.iter().map(|partition| partition.pool).sum();
        metrics.push(("outPoolUsage", pools.share()));
        metrics.extend(output_queue(subpartitions.map(|one| one.queue).sum()));
        metrics.extend(output(self.out));
        let Times { busy, idle, .. } = self.times.per_second;
        metrics.push(("busyTimeMsPerSecond", Count(busy)));
        metrics.push(("idleTimeMsPerSecond", Count(idle)));
        metrics.extend(back_pressure(&self.times.per_second));
        let total = &self.times.accumulated;
        metrics.push(("accumulateBusyTimeMs", Count(total.busy)));
        metrics.push(("accumulateIdleTimeMs", Count(total.idle)));
        metrics.push(("accumulateBackPressuredTimeMs", Count(total.back_pressured())));
        metrics
    }
}

impl GateStats {
    /// Metrics of all channels of the gate.
    pub fn metrics(&self) -> Metrics {
        let taken = |origin| {
            let from_there = self.channels.iter().filter(move |channel| channel.origin == origin);
            from_there.map(|channel| channel.taken).sum()
        };
        let mut metrics = input_buffers(self.exclusive, self.floating);
        metrics.extend(input_queue(self.channels.iter().map(|channel| channel.queue).sum()));
        metrics.extend(queue_lengths(self.channels.iter().map(|channel| channel.queue.buffers)));
        metrics.extend(input(taken(Origin::Local), taken(Origin::Remote)));
        metrics.push(("idleTimeMsPerSecond", Count(self.times.per_second.idle)));
        metrics.push(("accumulateIdleTimeMs", Count(self.times.accumulated.idle)));
        let debloating = self.debloating.unwrap_or_default();
        metrics.push(("debloatedBufferSize", Count(debloating.buffer_size.into())));
        let ms = u64::try_from(debloating.time_to_consume.as_millis()).unwrap_or(u64::MAX);
        metrics.push(("estimatedTimeToConsumeBuffersMs", Count(ms)));
        metrics
    }
}

impl ChannelStats {
    /// Metrics of this channel.
    pub fn metrics(&self) -> Metrics {
        let of = |origin| if self.origin == origin { self.taken } else { Passed::default() };
        let mut metrics = input_queue(self.queue);
        metrics.extend(input(of(Origin::Local), of(Origin::Remote)));
        metrics
    }
}

impl PartitionStats {
    /// Metrics of all subpartitions.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = vec![("outPoolUsage", self.pool.share())];
        metrics.extend(output_queue(self.subpartitions.iter().map(|one| one.queue).sum()));
        metrics.extend(queue_lengths(self.subpartitions.iter().map(|one| one.queue.buffers)));
        metrics.extend(output(self.subpartitions.iter().map(|one| one.finished).sum()));
        metrics.extend(back_pressure(&self.times.per_second));
        let total = self.times.accumulated.back_pressured();
        metrics.push(("accumulateBackPressuredTimeMs", Count(total)));
        metrics
    }
}

impl SubpartitionStats {
    /// Metrics of this subpartition.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = output_queue(self.queue);
        metrics.extend(output(self.finished));
        metrics
    }
}

fn input_buffers(exclusive: Usage, floating: Usage) -> Metrics {
    vec![
        ("inPoolUsage", [exclusive, floating].into_iter().sum::<Usage>().share()),
        ("inputExclusiveBuffersUsage", exclusive.share()),
        ("inputFloatingBuffersUsage", floating.share()),
    ]
}

fn input_queue(queue: Queued) -> Metrics {
    vec![("inputQueueLength", Count(queue.buffers as u64)), ("inputQueueSize", Count(queue.bytes))]
}

fn input(local: Passed, remote: Passed) -> Metrics {
    vec![
        ("numBytesInLocal", Count(local.bytes)),
        ("numBytesInRemote", Count(remote.bytes)),
        ("numBuffersInLocal", Count(local.buffers)),
        ("numBuffersInRemote", Count(remote.buffers)),
    ]
}

fn output_queue(queue: Queued) -> Metrics {
    vec![
        ("outputQueueLength", Count(queue.buffers as u64)),
        ("outputQueueSize", Count(queue.bytes)),
    ]
}

fn output(finished: Passed) -> Metrics {
    vec![("numBytesOut", Count(finished.bytes)), ("numBuffersOut", Count(finished.buffers))]
}

fn back_pressure(per_second: &Times) -> Metrics {
    vec![
        ("backPressuredTimeMsPerSecond", Count(per_second.back_pressured())),
        ("softBackPressuredTimeMsPerSecond", Count(per_second.soft_back_pressured)),
        ("hardBackPressuredTimeMsPerSecond", Count(per_second.hard_back_pressured)),
    ]
}

fn queue_lengths(lengths: impl Iterator<Item = usize> + Clone) -> Metrics {
    let (count, sum) = (lengths.clone().count(), lengths.clone().sum());
    vec![
        ("minQueueLen", Count(lengths.clone().min().unwrap_or(0) as u64)),
        ("maxQueueLen", Count(lengths.max().unwrap_or(0) as u64)),
        ("avgQueueLen", Usage { used: sum, size: count }.share()),
    ]
}
