//! The processes of a schedule, and the steps and faults that can happen to them.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread::panicking;
use std::time::{Duration, Instant};

use headgate_memory::Buffer;
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::address::Address;
use crate::error::{ExchangeError, Result};
use crate::gate::{CheckpointedInput, DataInput, InputGate};
use crate::partition::{PartitionOptions, ResultPartition};
use crate::simulator::plan::{Plan, SEGMENT};
use crate::simulator::process::Process;
use crate::simulator::reading::{Reading, Then};
use crate::simulator::wire::{Net, address_of};
use crate::simulator::writing::Writing;

/// Bytes that a pipe takes; fewer than most processes send.
const CAPACITY: usize = 6_000;

pub(super) struct Partition {
    pub(super) process: usize,
    pub(super) inner: Arc<ResultPartition>,
    writing: Vec<Writing>,
}

pub(super) struct Gate {
    pub(super) process: usize,
    pub(super) inner: Arc<InputGate>,
    pub(super) reading: Vec<Reading>,
    pub(super) outcome: Option<Result<()>>,
    /// Buffers that the reader keeps.
    held: Vec<Held>,
    /// Channels blocked by a barrier that was read.
    to_resume: Vec<usize>,
}

/// A buffer that the reader keeps, and a copy of its bytes.
struct Held {
    buffer: Buffer,
    bytes: Vec<u8>,
}

impl Held {
    fn new(buffer: Buffer) -> Self {
        Self { bytes: buffer.as_slice().to_vec(), buffer }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !panicking() {
            assert_eq!(
                self.buffer.as_slice(),
                self.bytes,
                "a buffer changed while its reader kept it"
            );
        }
    }
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) processes: Vec<Process>,
    pub(super) partitions: Vec<Partition>,
    pub(super) gates: Vec<Gate>,
    pub(super) now: Instant,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let net = Rc::new(RefCell::new(Net::new(plan.memory.len(), CAPACITY, plan.same_host)));
        let memory = plan.memory.iter().zip(&plan.buffers).enumerate();
        let processes: Vec<_> = memory
            .map(|(at, (segments, buffers))| Process::new(&net, at, (*segments, SEGMENT), *buffers))
            .collect();
        let partitions = plan.partitions.iter().map(|planned| {
            let compression = planned.compression;
            let count = planned.scripts.len();
            let options = PartitionOptions { compression, ..PartitionOptions::all(count) };
            let inner = processes[planned.process].env.create_result_partition(&options);
            let writing = planned.scripts.iter().map(|_| Writing::default()).collect();
            Partition { process: planned.process, inner: inner.expect("planned for"), writing }
        });
        let partitions = partitions.collect();
        let gates = plan.gates.iter().map(|planned| Gate {
            process: planned.process,
            inner: processes[planned.process].env.create_input_gate().expect("is open"),
            reading: Vec::new(),
            outcome: None,
            held: Vec::new(),
            to_resume: Vec::new(),
        });
        let gates: Vec<_> = gates.collect();
        for (gate, planned) in gates.iter().zip(&plan.gates) {
            if planned.channels.is_empty() {
                gate.inner.seal();
            }
        }
        Self { plan, net, processes, partitions, gates, now: Instant::now() }
    }

    /// Takes one random step.
    pub(super) fn step(&mut self, rng: &mut TestRng) {
        match rng.random_range(0..100) {
            0..20 => {
                self.produce(rng);
            }
            20..45 => {
                let under_way = self.net.borrow().under_way();
                if !under_way.is_empty() {
                    let (wire, side) = under_way[rng.random_range(0..under_way.len())];
                    let most = [1, 10, 100, 10_000][rng.random_range(0..4)];
                    let count = rng.random_range(1..=most);
                    self.net.borrow_mut().deliver(wire, side, count);
                }
            }
            45..70 => {
                let process = rng.random_range(0..self.processes.len());
                self.processes[process].wake(self.now, rng);
            }
            70..88 => {
                let gate = rng.random_range(0..self.gates.len());
                self.read(gate, rng);
            }
            88..93 => {
                let gate = rng.random_range(0..self.gates.len());
                let held = &mut self.gates[gate].held;
                if !held.is_empty() {
                    let dropped = held.swap_remove(rng.random_range(0..held.len()));
                    drop(dropped);
                } else {
                    self.resume(gate, rng);
                }
            }
            93..97 => {
                let gate = rng.random_range(0..self.gates.len());
                self.add_channel(gate);
            }
            97 => {
                let gate = rng.random_range(0..self.gates.len());
                let size = rng.random_range(1..=SEGMENT as u32 + 1);
                self.gates[gate].inner.announce_buffer_size(NonZeroU32::new(size).expect("not 0"));
            }
            _ => self.now += Duration::from_millis(rng.random_range(0..200)),
        }
    }

    /// Injects a random fault.
    pub(super) fn fault(&mut self, rng: &mut TestRng) {
        let partition = rng.random_range(0..self.partitions.len());
        let gate = rng.random_range(0..self.gates.len());
        match rng.random_range(0..6) {
            0 | 1 => {
                let alive = self.net.borrow().alive();
                if !alive.is_empty() {
                    let wire = alive[rng.random_range(0..alive.len())];
                    self.net.borrow_mut().cut(wire);
                }
            }
            2 => {
                let process = rng.random_range(0..self.processes.len());
                self.close(process);
            }
            3 => {
                let cause = ExchangeError::Aborted("the user's function failed".to_owned());
                self.partitions[partition].inner.fail(&cause);
            }
            4 => {
                self.gates[gate].inner.close();
                self.gates[gate].outcome.get_or_insert(Ok(()));
            }
            _ => self.now += Duration::from_secs(13),
        }
    }

    /// Ends a process without a word to others, as a signal does.
    pub(super) fn kill(&mut self, process: usize) {
        self.net.borrow_mut().kill(process);
        self.close(process);
    }

    fn close(&mut self, process: usize) {
        self.processes[process].env.close();
        self.net.borrow_mut().close_process(process);
        for gate in self.gates.iter_mut().filter(|gate| gate.process == process) {
            gate.outcome.get_or_insert(Ok(()));
        }
    }

    /// Lets the producer of a random subpartition add its next item.
    fn produce(&mut self, rng: &mut TestRng) {
        let number = rng.random_range(0..self.partitions.len());
        let index = rng.random_range(0..self.partitions[number].writing.len());
        self.produce_at(number, index, rng.random_bool(0.3));
    }

    fn produce_at(&mut self, number: usize, index: usize, flush: bool) -> bool {
        let Partition { inner, writing, .. } = &mut self.partitions[number];
        let script = &self.plan.partitions[number].scripts[index];
        writing[index].produce(inner, script, index, flush)
    }

    /// Resumes a random channel that is blocked by a barrier.
    fn resume(&mut self, number: usize, rng: &mut TestRng) -> bool {
        let gate = &mut self.gates[number];
        if gate.to_resume.is_empty() || gate.outcome.is_some() {
            return false;
        }
        let channel = gate.to_resume.swap_remove(rng.random_range(0..gate.to_resume.len()));
        gate.inner.resume_consumption(channel).expect("its barrier was read");
        true
    }

    /// Lets the reader of a gate take the next buffer, if there is one.
    fn read(&mut self, number: usize, rng: &mut TestRng) -> bool {
        let gate = &mut self.gates[number];
        if gate.outcome.is_some() || !gate.inner.is_available() {
            return false;
        }
        match gate.inner.poll_next() {
            Ok(Poll::Ready(Some(received))) => {
                let channel = received.channel;
                match gate.reading[channel].take(&received) {
                    Then::Continue => {}
                    Then::Resume => gate.to_resume.push(channel),
                    Then::Convert(sequence) => {
                        if rng.random() {
                            let converted = gate.inner.convert_to_priority(channel, sequence);
                            assert!(converted.expect("is a channel"), "it was just announced");
                            gate.reading[channel].converted();
                        }
                    }
                }
                if rng.random_bool(0.3) {
                    gate.held.push(Held::new(received.buffer));
                }
            }
            Ok(Poll::Ready(None)) => gate.outcome = Some(Ok(())),
            // A channel was announced as available and turned out to be empty.
            Ok(Poll::Pending) => {}
            Err(error) => gate.outcome = Some(Err(error)),
        }
        true
    }

    /// Adds the next channel of a gate; seals the gate after the last one.
    pub(super) fn add_channel(&mut self, number: usize) -> bool {
        let gate = &mut self.gates[number];
        let planned = &self.plan.gates[number];
        if gate.outcome.is_some() {
            return false;
        }
        let Some((partition, subpartition)) = planned.channels.get(gate.reading.len()) else {
            return false;
        };
        let env = &self.processes[gate.process].env;
        let producer = &self.processes[self.partitions[*partition].process];
        let peer = address_of(self.partitions[*partition].process);
        let address = Address {
            host: peer.ip().to_string(),
            port: peer.port(),
            process: producer.env.process(),
            partition: self.partitions[*partition].inner.id(),
            subpartition: u32::try_from(*subpartition).expect("a handful"),
        };
        let script = &self.plan.partitions[*partition].scripts[*subpartition];
        match env.add_channel(&gate.inner, &address, [0; 32]) {
            // Its user tries again when the pages that readers keep have returned to the pool.
            Err(ExchangeError::PoolTooSmall { source, .. }) if source.pinned > 0 => return false,
            Err(error) => gate.outcome = Some(Err(error)),
            Ok(_) => {}
        }
        let is_remote = self.partitions[*partition].process != gate.process;
        gate.reading.push(Reading::new(script, is_remote));
        if gate.reading.len() == planned.channels.len() {
            gate.inner.seal();
        }
        true
    }

    /// Takes all possible steps in turn, until none is left. Time passes only up to the next attempt to dial.
    pub(super) fn settle(&mut self, rng: &mut TestRng) {
        loop {
            let mut worked = false;
            for number in 0..self.partitions.len() {
                for index in 0..self.partitions[number].writing.len() {
                    worked |= self.produce_at(number, index, true);
                }
            }
            for number in 0..self.gates.len() {
                worked |= !self.gates[number].held.is_empty();
                self.gates[number].held.clear();
                worked |= self.add_channel(number);
                while self.read(number, rng) {
                    self.gates[number].held.clear();
                    worked = true;
                }
                while self.resume(number, rng) {
                    worked = true;
                }
            }
            let under_way = self.net.borrow().under_way();
            for (wire, side) in under_way {
                self.net.borrow_mut().deliver(wire, side, usize::MAX);
                worked = true;
            }
            for process in &mut self.processes {
                worked |= process.wake(self.now, rng);
            }
            if !worked {
                let redials = self.processes.iter().filter_map(Process::next_redial);
                let Some(next) = redials.min() else { return };
                self.now = self.now.max(next);
            }
        }
    }

    /// Describes the state of everything, for the report of a failed schedule.
    pub(super) fn describe(&self) -> String {
        let mut lines = vec![format!("segments {:?}, {:?}", self.plan.memory, self.plan.same_host)];
        for (gate, planned) in self.gates.iter().zip(&self.plan.gates) {
            let (process, known, outcome) = (gate.process, gate.reading.len(), &gate.outcome);
            let channels = &planned.channels;
            lines.push(format!("gate of {process}: {known} known of {channels:?}, {outcome:?}"));
        }
        for (partition, planned) in self.partitions.iter().zip(&self.plan.partitions) {
            let (process, state) = (partition.process, partition.inner.check());
            lines.push(format!("partition of {process}: {state:?}"));
            for (index, writing) in partition.writing.iter().enumerate() {
                let kinds: Vec<_> = planned.scripts[index].iter().map(|item| item.kind).collect();
                let queued = partition.inner.subpartitions()[index].queued();
                let (next, finished) = (writing.next, writing.finished);
                lines.push(format!("  {next} of {kinds:?}, {queued} queued, finished {finished}"));
            }
        }
        for (number, process) in self.processes.iter().enumerate() {
            lines.push(format!("process {number}: {:?}", process.env.stats().pool));
        }
        lines.join("\n")
    }

    /// Does the supervisor's part: releases the subpartitions of ended gates, since a producer cannot
    /// learn of a consumer whose request never arrived.
    pub(super) fn release_lost(&self) {
        for (gate, planned) in self.gates.iter().zip(&self.plan.gates) {
            if gate.outcome.is_some() {
                gate.inner.close();
                for (partition, subpartition) in &planned.channels {
                    self.partitions[*partition].inner.release_subpartition(*subpartition);
                }
            }
        }
    }

    /// Ends every process; only the pools are left to check.
    pub(super) fn end(&mut self, rng: &mut TestRng) {
        for number in 0..self.processes.len() {
            self.close(number);
        }
        self.settle(rng);
        self.processes.iter_mut().for_each(Process::forget_peers);
        for partition in &mut self.partitions {
            partition.writing.clear();
        }
    }
}
