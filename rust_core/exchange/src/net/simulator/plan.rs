//! What a schedule's processes are to do, made from its seed.

use headgate_record::{Codec, Event};
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

pub(super) const SEGMENT: usize = 256;

/// What a producer adds to a subpartition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A complete buffer.
    Page,
    /// Bytes behind those of the last one, in a buffer that still grows.
    Stream,
    Event,
    Priority,
    /// Nothing is sent behind it before the reader resumes the channel.
    Barrier,
    /// The same, announced to a reader in another process.
    TimeoutableBarrier,
}

fn encoded(body: Vec<u8>) -> Vec<u8> {
    let event = Event::Custom { name: "barrier".to_owned(), body: body.into() };
    event.encode().expect("is short").to_vec()
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct PartitionPlan {
    pub(super) process: usize,
    pub(super) compression: Option<Codec>,
    pub(super) scripts: Vec<Vec<Item>>,
}

#[derive(Debug)]
pub(super) struct GatePlan {
    pub(super) process: usize,
    /// Partition and subpartition of each channel.
    pub(super) channels: Vec<(usize, usize)>,
}

/// Processes, what each produces and who reads it.
#[derive(Debug)]
pub(super) struct Plan {
    /// Segments of each process.
    pub(super) memory: Vec<usize>,
    /// Exclusive segments of a channel, and floating ones of a gate, in each process.
    pub(super) buffers: Vec<(usize, usize)>,
    pub(super) partitions: Vec<PartitionPlan>,
    pub(super) gates: Vec<GatePlan>,
    /// All of them are on one host.
    pub(super) same_host: bool,
    /// Something goes wrong on the way.
    pub(super) faulty: bool,
}

impl Plan {
    pub(super) fn new(rng: &mut TestRng) -> Self {
        let processes = rng.random_range(2..=8);
        let partitions: Vec<_> = (0..rng.random_range(1..=4))
            .map(|_| {
                let scripts = (0..rng.random_range(1..=3)).map(|_| script(rng)).collect();
                let process = rng.random_range(0..processes);
                let codecs = [None, Some(Codec::Lz4), Some(Codec::Zstd)];
                let compression = codecs[rng.random_range(0..codecs.len())];
                PartitionPlan { process, compression, scripts }
            })
            .collect();
        let mut gates: Vec<_> = (0..rng.random_range(1..=3))
            .map(|_| GatePlan { process: rng.random_range(0..processes), channels: Vec::new() })
            .collect();
        for (number, partition) in partitions.iter().enumerate() {
            for subpartition in 0..partition.scripts.len() {
                let gate = rng.random_range(0..gates.len());
                gates[gate].channels.push((number, subpartition));
            }
        }
        let buffers: Vec<_> =
            (0..processes).map(|_| (rng.random_range(0..=2), rng.random_range(1..=8))).collect();
        let memory = (0..processes)
            .map(|process| {
                let own = partitions.iter().filter(|partition| partition.process == process);
                let written: usize = own.map(|partition| partition.scripts.len() + 1).sum();
                let read = gates.iter().filter(|gate| gate.process == process);
                let (exclusive, floating) = buffers[process];
                let all: usize = read.clone().map(|gate| gate.channels.len()).sum();
                let least = |gate: &GatePlan| if exclusive > 0 { gate.channels.len() } else { 1 };
                let least: usize = read.map(least).sum();
                // While the floating ones are left a channel is promised all: the last must still get one.
                let promised = (exclusive * all).saturating_sub(floating);
                written + promised.max(least + 1 + rng.random_range(0..8))
            })
            .collect();
        let (same_host, faulty) = (rng.random(), rng.random_bool(0.3));
        Self { memory, buffers, partitions, gates, same_host, faulty }
    }
}

fn script(rng: &mut TestRng) -> Vec<Item> {
    let count = rng.random_range(0..=8);
    let mut script = Vec::new();
    for _ in 0..count {
        let kind = match rng.random_range(0..20) {
            0..7 => Kind::Page,
            7..14 => Kind::Stream,
            14..16 => Kind::Event,
            16..18 => Kind::Priority,
            18 => Kind::Barrier,
            _ => Kind::TimeoutableBarrier,
        };
        let longest = if matches!(kind, Kind::Page | Kind::Stream) { SEGMENT } else { 40 };
        let len = rng.random_range(1..=longest);
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        // Some of it can be compressed.
        bytes.truncate(rng.random_range(1..=len));
        let bytes = bytes.into_iter().cycle().take(len).collect();
        // Whoever announces it looks into it.
        let bytes = if kind == Kind::TimeoutableBarrier { encoded(bytes) } else { bytes };
        script.push(Item { kind, bytes });
    }
    script
}
