//! The plan of a schedule: its processes, partitions and gates, made from its seed.

use headgate_record::{Codec, Event};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};

pub(super) const SEGMENT: usize = 256;

/// Returns the random numbers of a schedule; each stream is independent of the others.
pub(super) fn rng_of(seed: u64, stream: u8) -> TestRng {
    let mut bytes = [stream; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// A kind of item that a producer adds to a subpartition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A complete buffer.
    Page,
    /// Bytes appended to the buffer that still grows.
    Stream,
    Event,
    Priority,
    /// Blocks the channel until the reader resumes it.
    Barrier,
    /// A barrier that is announced to a reader in another process.
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
    /// Partition and subpartition that each channel reads.
    pub(super) channels: Vec<(usize, usize)>,
}

/// The processes, their partitions, and the gates that read them.
#[derive(Debug)]
pub(super) struct Plan {
    /// Segments in the pool of each process.
    pub(super) memory: Vec<usize>,
    /// Exclusive segments of a channel, and floating ones of a gate, in each process.
    pub(super) buffers: Vec<(usize, usize)>,
    pub(super) partitions: Vec<PartitionPlan>,
    pub(super) gates: Vec<GatePlan>,
    /// True if all processes are on one host.
    pub(super) same_host: bool,
    /// True if faults are injected.
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
                // A channel is promised all of its exclusive segments while floating ones are left, and
                // the last channel must still get one segment.
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
        // Repeated bytes make some items compressible.
        bytes.truncate(rng.random_range(1..=len));
        let bytes = bytes.into_iter().cycle().take(len).collect();
        // The announcement decodes the barrier, so it must be a real event.
        let bytes = if kind == Kind::TimeoutableBarrier { encoded(bytes) } else { bytes };
        script.push(Item { kind, bytes });
    }
    script
}
