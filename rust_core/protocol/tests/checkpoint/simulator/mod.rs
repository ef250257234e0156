//! A job with checkpoints of all kinds, in an order that a seed chooses: tasks, queues and channels
//! around the state machines that ship, with losses and restarts in other numbers of tasks. Each record
//! is counted once.
//!
//! `HEADGATE_CHECKPOINT_SCHEDULE` is the seed of the first schedule and
//! `HEADGATE_CHECKPOINT_SCHEDULES` their number. A seed alone runs one schedule.

mod coordinator;
mod edge;
mod layout;
mod plan;
mod restore;
mod state;
mod task;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

use plan::{Plan, Seen};
use world::World;

/// Number of schedules, unless the environment variable sets another.
const SCHEDULES: u64 = 10_000;

/// Runs one schedule.
fn run(seed: u64, seen: &mut Seen) {
    let rng = &mut Rng::with_seed(seed);
    let mut world = World::new(Plan::new(rng), rng);
    // Few enough that every job ends.
    let (mut crashes, mut checkpoints) = (rng.u8(..6), rng.u8(..60));
    let mut patience = 100_000;
    while !world.is_finished() {
        match rng.u16(..4000) {
            0..100 if checkpoints > 0 => {
                checkpoints -= u8::from(world.start_checkpoint(rng, seen));
            }
            100..103 => world.expire(rng),
            103..120 if crashes > 0 && (world.has_channel_state() || rng.u8(..10) == 0) => {
                crashes -= 1;
                world.crash(rng, seen);
            }
            _ => world.step(rng, seen),
        }
        patience -= 1;
        assert!(patience > 0, "the job hangs: {world:#?}");
    }
    world.check_end();
}

fn number_of(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Runs the schedules with even or odd seeds. Each half is a test of its own, so that two cores share
/// the work.
fn run_half(half: u64) {
    let first = number_of("HEADGATE_CHECKPOINT_SCHEDULE");
    let unasked = if first.is_some() { 1 } else { SCHEDULES };
    let count = number_of("HEADGATE_CHECKPOINT_SCHEDULES").unwrap_or(unasked);
    let first = first.unwrap_or(0);
    let mut seen = Seen::default();
    for seed in (first..first + count).filter(|seed| seed % 2 == half) {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen)));
        if let Err(panic) = ran {
            eprintln!("run this schedule again with HEADGATE_CHECKPOINT_SCHEDULE={seed}");
            resume_unwind(panic);
        }
    }
    println!("half {half} of {count} schedules: {seen:#?}");
    assert!(count < 1000 || seen.has_seen_all(), "{seen:#?}");
}

#[test]
fn spec_10_16_each_record_is_counted_once_in_even_schedules() {
    run_half(0);
}

#[test]
fn spec_10_16_each_record_is_counted_once_in_odd_schedules() {
    run_half(1);
}
