//! The work of both I/O threads for each buffer and each channel. Run as tests, these check that all
//! buffers arrive; `make bench NAME=instructions` counts the instructions inside `counted_wake`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use proptest::test_runner::TestRng;

use crate::address::Address;
use crate::gate::{DataInput, InputGate};
use crate::partition::{PartitionOptions, ResultPartition};
use crate::simulator::plan::{Item, Kind, rng_of};
use crate::simulator::process::Process;
use crate::simulator::wire::{Net, address_of};
use crate::simulator::writing::Writing;

const SEGMENT: usize = 32 << 10;
const SEGMENTS: usize = 400;
/// Bytes that a pipe takes; large enough that no writer waits for room.
const CAPACITY: usize = 2 * SEGMENTS * SEGMENT;

#[inline(never)]
fn counted_wake(process: &mut Process, now: Instant, rng: &mut TestRng) -> bool {
    process.wake(now, rng)
}

/// A producer, a consumer, and the connection between them.
struct Pair {
    net: Rc<RefCell<Net>>,
    processes: [Process; 2],
    now: Instant,
    rng: TestRng,
}

impl Pair {
    fn new() -> Self {
        let net = Rc::new(RefCell::new(Net::new(2, CAPACITY, false)));
        let processes =
            [0, 1].map(|number| Process::new(&net, number, (SEGMENTS, SEGMENT), (2, 8)));
        Self { net, processes, now: Instant::now(), rng: rng_of(0, 0) }
    }

    /// Wakes both I/O threads in turn and delivers their bytes; returns true if any had work.
    fn turn(&mut self, wake: impl Fn(&mut Process, Instant, &mut TestRng) -> bool) -> bool {
        let mut worked = false;
        for process in &mut self.processes {
            worked |= wake(process, self.now, &mut self.rng);
            let under_way = self.net.borrow().under_way();
            for (wire, side) in under_way {
                self.net.borrow_mut().deliver(wire, side, usize::MAX);
            }
        }
        worked
    }

    /// Creates a gate over all subpartitions and connects its channels.
    fn gate(&mut self, partition: &ResultPartition) -> Arc<InputGate> {
        let [producer, consumer] = &self.processes;
        let gate = consumer.env.create_input_gate().expect("is open");
        for subpartition in 0..partition.num_subpartitions() {
            let peer = address_of(0);
            let address = Address {
                host: peer.ip().to_string(),
                port: peer.port(),
                process: producer.env.process(),
                partition: partition.id(),
                subpartition: u32::try_from(subpartition).expect("a few"),
            };
            consumer.env.add_channel(&gate, &address, [0; 32]).expect("is open");
        }
        gate.seal();
        while self.turn(Process::wake) {}
        gate
    }

    fn end(mut self) {
        for process in &self.processes {
            process.env.close();
        }
        while self.turn(Process::wake) {}
        for process in &self.processes {
            let pool = process.env.stats().pool;
            assert_eq!((pool.held, pool.pinned), (0, 0), "every segment is free");
        }
    }
}

/// Sends `buffers` buffers of `bytes` bytes through each channel.
fn exchange(channels: usize, buffers: usize, bytes: usize) {
    let mut pair = Pair::new();
    let options = PartitionOptions::all(channels);
    let partition = pair.processes[0].env.create_result_partition(&options).expect("fits");
    let gate = pair.gate(&partition);
    let script = vec![Item { kind: Kind::Page, bytes: vec![7; bytes] }; buffers];
    let mut writing = Vec::from_iter((0..channels).map(|_| Writing::default()));
    let mut received = 0;
    loop {
        for (index, writing) in writing.iter_mut().enumerate() {
            while writing.produce(&partition, &script, index, true) {}
        }
        pair.turn(counted_wake);
        loop {
            match gate.poll_next().expect("nothing fails") {
                Poll::Ready(Some(next)) if next.data_type.is_event() => {}
                Poll::Ready(Some(next)) => received += next.buffer.as_slice().len(),
                Poll::Ready(None) => {
                    assert_eq!(received, channels * buffers * bytes);
                    return pair.end();
                }
                Poll::Pending => break,
            }
        }
    }
}

#[test]
fn counts_io_of_one_channel() {
    exchange(1, 200, SEGMENT);
}

#[test]
fn counts_io_of_a_hundred_channels() {
    exchange(100, 20, 256);
}
