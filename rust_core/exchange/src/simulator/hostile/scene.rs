//! The process that a hostile peer talks to, and an honest one beside it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::address::Address;
use crate::gate::{DataInput, InputGate};
use crate::partition::{PartitionOptions, ResultPartition};
use crate::simulator::plan::{Item, Kind};
use crate::simulator::process::Process;
use crate::simulator::wire::{Net, SimLink, address_of};
use crate::simulator::writing::Writing;

pub(super) const SEGMENT: usize = 1024;
const SEGMENTS: usize = 40;
const CAPACITY: usize = 1 << 20;
/// Items of each honest subpartition.
pub(super) const ITEMS: usize = 12;

pub(super) const VICTIM: usize = 0;
pub(super) const HONEST: usize = 1;
pub(super) const HOSTILE: usize = 2;

/// Counts of the events, so that a run that exercised nothing fails.
#[derive(Default)]
pub(super) struct Tally(pub(super) BTreeMap<&'static str, u64>);

impl Tally {
    pub(super) fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

pub(super) fn items(number: u8) -> Vec<Item> {
    let bytes = |at: usize| vec![number; 1 + (at * 97) % (SEGMENT - 1)];
    (0..ITEMS).map(|at| Item { kind: Kind::Page, bytes: bytes(at) }).collect()
}

pub(super) fn share_of_lies(rng: &mut TestRng) -> f64 {
    [0.0, 0.02, 0.1, 0.5][rng.random_range(0..4)]
}

/// The victim, and the honest process that it reads from or writes to.
pub(super) struct Scene {
    net: Rc<RefCell<Net>>,
    pub(super) processes: [Process; 2],
    pub(super) link: SimLink,
    now: Instant,
}

impl Scene {
    pub(super) fn new() -> Self {
        let net = Rc::new(RefCell::new(Net::new(3, CAPACITY, true)));
        let processes =
            [VICTIM, HONEST].map(|number| Process::new(&net, number, (SEGMENTS, SEGMENT), (2, 8)));
        let link = SimLink { net: Rc::clone(&net), process: HOSTILE };
        Self { net, processes, link, now: Instant::now() }
    }

    /// Lets everything arrive and all I/O threads work, until nothing is left to do.
    pub(super) fn settle(&mut self, rng: &mut TestRng) {
        loop {
            let under_way = self.net.borrow().under_way();
            let mut worked = !under_way.is_empty();
            for (wire, side) in under_way {
                self.net.borrow_mut().deliver(wire, side, usize::MAX);
            }
            for process in &mut self.processes {
                worked |= process.wake(self.now, rng);
            }
            if !worked {
                return;
            }
        }
    }

    pub(super) fn partition(&self, process: usize) -> Arc<ResultPartition> {
        let options = PartitionOptions::all(1);
        self.processes[process].env.create_result_partition(&options).expect("fits")
    }

    pub(super) fn gate(&self, process: usize, address: &Address) -> Arc<InputGate> {
        let env = &self.processes[process].env;
        let gate = env.create_input_gate().expect("is open");
        env.add_channel(&gate, address, [0; 32]).expect("fits");
        gate.seal();
        gate
    }

    pub(super) fn address(&self, process: usize, partition: &ResultPartition) -> Address {
        let peer = address_of(process);
        Address {
            host: peer.ip().to_string(),
            port: peer.port(),
            process: self.processes[process].env.process(),
            partition: partition.id(),
            subpartition: 0,
        }
    }

    pub(super) fn end(mut self, rng: &mut TestRng) {
        for process in &self.processes {
            process.env.close();
        }
        self.settle(rng);
        for process in &mut self.processes {
            process.forget_peers();
            let stats = process.env.stats();
            assert_eq!(stats.lent.now, 0, "a loan is left");
            assert_eq!((stats.pool.held, stats.pool.pinned), (0, 0), "{:?}", stats.pool);
        }
    }
}

/// An honest channel, whose rows must all arrive.
pub(super) struct Beside {
    partition: Arc<ResultPartition>,
    gate: Arc<InputGate>,
    writing: Writing,
    items: Vec<Item>,
    received: usize,
    ended: bool,
}

impl Beside {
    pub(super) fn new(partition: Arc<ResultPartition>, gate: Arc<InputGate>) -> Self {
        let (writing, items) = (Writing::default(), items(2));
        Self { partition, gate, writing, items, received: 0, ended: false }
    }

    pub(super) fn turn(&mut self) {
        self.writing.produce(&self.partition, &self.items, 0, true);
        while let Poll::Ready(next) = self.gate.poll_next().expect("an honest channel") {
            let Some(next) = next else {
                self.ended = true;
                return;
            };
            if next.data_type.is_buffer() && !next.buffer.is_empty() {
                assert_eq!(next.buffer.as_slice(), self.items[self.received].bytes);
                self.received += 1;
            }
        }
    }

    pub(super) fn finish(&mut self, scene: &mut Scene, rng: &mut TestRng) {
        for _ in 0..20 * ITEMS {
            if self.ended {
                break;
            }
            self.turn();
            scene.settle(rng);
        }
        assert_eq!((self.received, self.ended), (ITEMS, true), "honest rows are missing");
        self.gate.close();
    }
}
