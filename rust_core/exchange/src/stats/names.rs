//! The metrics of a snapshot under Flink's names, which docs/metrics.md explains.

use super::{
    ChannelStats, GateStats, Origin, PartitionStats, Queued, Stats, SubpartitionStats, Usage,
};
use crate::metrics::{Passed, Times};

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

use Metric::{Count, Share};

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
