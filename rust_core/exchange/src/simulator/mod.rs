//! Whole processes over pipes, in an order that a seed chooses: real gates, partitions, pools and
//! connections, but no thread, no socket and no clock.
//!
//! `HEADGATE_SCHEDULE` is the seed of the first schedule and `HEADGATE_SCHEDULES` their number. A seed
//! alone runs one schedule.

mod faults;
mod harm;
mod hostile;
mod instructions;
mod plan;
mod process;
mod reading;
mod redialing;
mod stream_contract;
mod wire;
mod world;
mod writing;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::error::ExchangeError;
use crate::random::seeded;

use plan::{Plan, rng_of};
use world::World;

/// Number of schedules, unless the environment variable sets another.
const SCHEDULES: u64 = 5_000;

/// Returns true if a fault elsewhere may end a gate or a partition with this error.
fn is_honest(error: &ExchangeError) -> bool {
    use ExchangeError::{
        Aborted, Closed, Connect, Handshake, PartitionNotFound, PeerLost, ProducerFailed,
    };
    matches!(
        error,
        Aborted(_)
            | Closed(_)
            | Connect { .. }
            | Handshake { .. }
            | PartitionNotFound { .. }
            | PeerLost { .. }
            | ProducerFailed(_)
    )
}

/// Runs one schedule; returns the number of buffers that were lent.
fn run(seed: u64) -> u64 {
    seeded::set(Some(rng_of(seed, 1)));
    let rng = &mut rng_of(seed, 0);
    let mut world = World::new(Plan::new(rng));
    let steps = rng.random_range(0..600);
    let faults: Vec<usize> = match world.plan.faulty {
        true => (0..rng.random_range(1..=2)).map(|_| rng.random_range(0..=steps)).collect(),
        false => Vec::new(),
    };
    for step in 0..=steps {
        for _ in faults.iter().filter(|at| **at == step) {
            world.fault(rng);
        }
        world.step(rng);
    }
    world.settle(rng);
    if world.plan.faulty {
        world.release_lost();
        world.settle(rng);
    }
    let faulty = world.plan.faulty;
    for (number, gate) in world.gates.iter().enumerate() {
        match &gate.outcome {
            None => panic!("gate {number} hangs\n{}", world.describe()),
            Some(Err(error)) => assert!(faulty && is_honest(error), "gate {number}: {error:?}"),
            Some(Ok(())) if faulty => {}
            Some(Ok(())) => {
                let ended = gate.reading.iter().filter(|reading| reading.ended).count();
                assert_eq!(ended, world.plan.gates[number].channels.len());
            }
        }
    }
    for (number, partition) in world.partitions.iter().enumerate() {
        match partition.inner.check() {
            Err(error) => assert!(faulty && is_honest(&error), "partition {number}: {error:?}"),
            Ok(()) => assert!(partition.inner.is_released(), "partition {number} is not taken"),
        }
    }
    let lent = end(&mut world, rng);
    seeded::set(None);
    lent
}

/// Ends all processes, which must hold nothing; returns the number of buffers that were lent.
fn end(world: &mut World, rng: &mut TestRng) -> u64 {
    world.end(rng);
    let mut lent = 0;
    for process in &world.processes {
        let stats = process.env.stats();
        let pool = stats.pool;
        lent += stats.lent.buffers;
        assert_eq!(stats.lent.now, 0);
        assert_eq!((pool.held, pool.pinned, pool.local_pools), (0, 0, 0), "{pool:?}");
    }
    lent
}

fn number_of(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Runs the schedules with even or odd seeds. Each half is a test of its own, so that two cores share
/// the work.
fn run_half(half: u64) {
    let first = number_of("HEADGATE_SCHEDULE");
    let unasked = if first.is_some() { 1 } else { SCHEDULES };
    let count = number_of("HEADGATE_SCHEDULES").unwrap_or(unasked);
    let first = first.unwrap_or(0);
    let mut lent = 0;
    for seed in (first..first + count).filter(|seed| seed % 2 == half) {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(buffers) => lent += buffers,
            Err(panic) => {
                eprintln!("run this schedule again with HEADGATE_SCHEDULE={seed}");
                resume_unwind(panic);
            }
        }
    }
    assert!(lent > 0 || count < 100, "half of the schedules lend buffers");
}

#[test]
fn even_schedules_of_processes_and_connections() {
    run_half(0);
}

#[test]
fn odd_schedules_of_processes_and_connections() {
    run_half(1);
}
