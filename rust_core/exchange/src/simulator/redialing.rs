//! Connections that end before the producer has proved itself, after any number of bytes: the consumer dials
//! again at the right times, and all rows arrive unless the deadline comes first.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use headgate_net::simulation::HANDSHAKE_TIMEOUT;
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::error::ExchangeError;
use crate::random::seeded;
use crate::simulator::end;
use crate::simulator::plan::{GatePlan, Item, Kind, PartitionPlan, Plan, rng_of};
use crate::simulator::world::World;

const CONSUMER: usize = 0;
const PRODUCER: usize = 1;
/// Bytes of the producer's messages, CHALLENGE and ACCEPT.
const CHALLENGE: usize = 91;
const ACCEPT: usize = 5;
const SCHEDULES: u64 = 300;
/// A size of buffers that holds all of the script's.
const SIZE: NonZeroU32 = NonZeroU32::new(200).expect("not 0");
/// Milliseconds before each further attempt; the last ones are all alike.
const PAUSES: [u64; 7] = [0, 50, 100, 200, 400, 800, 1000];

/// The attempts as they should be.
struct Model {
    is_near: bool,
    failures: usize,
    deadline: Instant,
    /// True once an attempt over TCP was cut.
    was_cut: bool,
}

impl Model {
    /// Returns the time of the attempt after one that has failed.
    fn failed(&mut self, now: Instant) -> Option<Instant> {
        if std::mem::take(&mut self.is_near) {
            self.deadline = now + HANDSHAKE_TIMEOUT;
            return Some(now);
        }
        let pause = PAUSES[self.failures.min(PAUSES.len() - 1)];
        self.failures += 1;
        Some(now + Duration::from_millis(pause)).filter(|at| *at < self.deadline)
    }
}

fn plan(same_host: bool) -> Plan {
    let script = (1..=5).map(|byte| Item { kind: Kind::Page, bytes: vec![byte; 200] }).collect();
    Plan {
        memory: vec![16; 2],
        buffers: vec![(2, 4); 2],
        partitions: vec![PartitionPlan {
            process: PRODUCER,
            compression: None,
            scripts: vec![script],
        }],
        gates: vec![GatePlan { process: CONSUMER, channels: vec![(0, 0)] }],
        same_host,
        faulty: true,
    }
}

/// Lets so many bytes of the producer's arrive, and then cuts the connection.
fn cut_after(world: &mut World, bytes: usize, rng: &mut TestRng) {
    let wire = *world.net.borrow().alive().last().expect("just dialed");
    for arrives in [bytes.min(CHALLENGE), bytes.saturating_sub(CHALLENGE)] {
        world.net.borrow_mut().deliver(wire, PRODUCER, usize::MAX);
        world.processes[PRODUCER].wake(world.now, rng);
        world.net.borrow_mut().deliver(wire, CONSUMER, arrives);
        world.processes[CONSUMER].wake(world.now, rng);
    }
    world.net.borrow_mut().cut(wire);
    world.processes[CONSUMER].wake(world.now, rng);
}

/// Runs one schedule; returns true if the rows arrived.
fn run(seed: u64) -> bool {
    seeded::set(Some(rng_of(seed, 1)));
    let rng = &mut rng_of(seed, 0);
    let same_host = rng.random();
    let mut world = World::new(plan(same_host));
    let deadline = world.now + HANDSHAKE_TIMEOUT;
    let mut model = Model { is_near: same_host, failures: 0, deadline, was_cut: false };
    world.add_channel(0);
    world.processes[CONSUMER].wake(world.now, rng);
    let mut is_late = false;
    for _ in 0..rng.random_range(0..30) {
        if rng.random_bool(0.05) {
            // Nobody says a word.
            world.now = model.deadline;
            world.processes[CONSUMER].wake(world.now, rng);
        } else {
            // Past the deadline the connection has ended already.
            model.was_cut |= !model.is_near && world.now < model.deadline;
            cut_after(&mut world, rng.random_range(0..CHALLENGE + ACCEPT), rng);
        }
        // A message while there is no connection waits with the request.
        world.gates[0].inner.announce_buffer_size(SIZE);
        let next = model.failed(world.now);
        // An attempt that is due at once is made in the same round.
        let waits = next.filter(|at| *at > world.now);
        assert_eq!(world.processes[CONSUMER].next_redial(), waits);
        let Some(at) = next else {
            is_late = true;
            break;
        };
        world.now = at;
        world.processes[CONSUMER].wake(world.now, rng);
        world.now += Duration::from_millis(rng.random_range(0..300));
    }
    if !is_late && world.now >= model.deadline {
        is_late = model.failed(world.now).is_none();
    }
    world.settle(rng);
    match &world.gates[0].outcome {
        Some(Ok(())) => {
            assert!(!is_late && world.gates[0].reading[0].ended, "{}", world.describe())
        }
        Some(Err(ExchangeError::Handshake { detail, .. })) => {
            assert!(is_late, "{}", world.describe());
            assert_eq!(detail.contains("closed the connection"), model.was_cut, "{detail}");
            assert_eq!(detail.contains("no proof"), !model.was_cut, "{detail}");
        }
        other => panic!("{other:?}\n{}", world.describe()),
    }
    world.release_lost();
    end(&mut world, rng);
    seeded::set(None);
    !is_late
}

#[test]
fn rows_arrive_if_an_attempt_passes_before_the_deadline() {
    let arrived = (0..SCHEDULES).filter(|seed| run(*seed)).count() as u64;
    assert!((SCHEDULES / 4..SCHEDULES).contains(&arrived), "in {arrived} of {SCHEDULES} schedules");
}
