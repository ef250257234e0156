//! One fault in each schedule, until so many have struck: rows are never wrong, and nothing hangs or is
//! left behind.
//!
//! `HEADGATE_FAULTS` is the number of faults and `HEADGATE_FAULT` the seed of the first schedule. A seed
//! alone runs one schedule.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::error::ExchangeError;
use crate::random::seeded;
use crate::simulator::harm::{Armed, FrameKind, Harm};
use crate::simulator::plan::{Plan, rng_of};
use crate::simulator::world::World;
use crate::simulator::{end, is_honest, number_of};

/// Number of faults, unless the environment variable sets another.
const FAULTS: u64 = 700;
/// Most steps of a schedule; without faults, most are over by then.
const STEPS: u32 = 500;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fault {
    ConsumerKilled,
    Cut,
    Delayed,
    Frame(Harm),
    ProducerKilled,
}

const ALL: [Fault; 9] = [
    Fault::ConsumerKilled,
    Fault::Cut,
    Fault::Delayed,
    Fault::Frame(Harm::CutShort),
    Fault::Frame(Harm::Damaged),
    Fault::Frame(Harm::Doubled),
    Fault::Frame(Harm::Lost),
    Fault::Frame(Harm::Overtaken),
    Fault::ProducerKilled,
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ConsumerKilled => "consumer killed",
            Self::Cut => "connection cut",
            Self::Delayed => "bytes delayed",
            Self::Frame(Harm::CutShort) => "frame cut short",
            Self::Frame(Harm::Damaged) => "frame damaged",
            Self::Frame(Harm::Doubled) => "frame doubled",
            Self::Frame(Harm::Lost) => "frame lost",
            Self::Frame(Harm::Overtaken) => "frame overtaken",
            Self::ProducerKilled => "producer killed",
        })
    }
}

/// The end of a schedule, from best to worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Outcome {
    /// All rows arrived at all gates that are left.
    Rows,
    /// A gate or a partition has an honest error.
    Error,
    /// The same, once the time for handshakes and requests was over.
    Late,
    /// The same, once the connections were cut: the missing frame was the last one of its connection, and
    /// no link loses whole frames.
    Waits,
}

const OUTCOMES: [Outcome; 4] = [Outcome::Rows, Outcome::Error, Outcome::Late, Outcome::Waits];

/// Does a fault, or arms it; returns true unless nothing is there that it could strike.
fn strike(world: &mut World, fault: Fault, rng: &mut TestRng) -> bool {
    match fault {
        Fault::ConsumerKilled | Fault::ProducerKilled => {
            let gates = world.gates.iter().filter(|gate| gate.outcome.is_none());
            let writing = world.partitions.iter().filter(|one| !one.inner.is_released());
            let alive: Vec<_> = match fault {
                Fault::ConsumerKilled => gates.map(|gate| gate.process).collect(),
                _ => writing.map(|one| one.process).collect(),
            };
            if alive.is_empty() {
                return false;
            }
            world.kill(alive[rng.random_range(0..alive.len())]);
        }
        Fault::Cut => {
            let wires = world.net.borrow().in_use();
            if wires.is_empty() {
                return false;
            }
            world.net.borrow_mut().cut(wires[rng.random_range(0..wires.len())]);
        }
        Fault::Delayed => {
            let pipes = world.net.borrow().under_way();
            if pipes.is_empty() {
                return false;
            }
            let (wire, side) = pipes[rng.random_range(0..pipes.len())];
            world.net.borrow_mut().delay(wire, side);
        }
        Fault::Frame(harm) => {
            // Half of the harms wait for a kind of frame, so that rare ones are harmed too.
            let wanted = [0, 0, 1, 2, 4, 5, 6, 7, 9, 10][rng.random_range(0..10)];
            let kind = rng.random::<bool>().then_some(FrameKind::Frame(wanted));
            world.net.borrow_mut().armed = Some(Armed { harm, kind, dice: rng.random() });
        }
    }
    true
}

/// Returns true if a fault may end a gate or a partition with this error.
fn may_end(fault: Fault, error: &ExchangeError) -> bool {
    use ExchangeError::{Integrity, Protocol, Version};
    let is_of_bytes = matches!(error, Integrity { .. } | Protocol { .. } | Version { .. });
    is_honest(error) || (is_of_bytes && matches!(fault, Fault::Frame(_)))
}

/// Takes all steps, and releases the subpartitions of gates that have ended: a writer that waits for their
/// readers may hold up others.
fn supervise(world: &mut World, rng: &mut TestRng) {
    world.settle(rng);
    world.release_lost();
    world.settle(rng);
}

fn gates_have_ended(world: &World) -> bool {
    world.gates.iter().all(|gate| gate.outcome.is_some())
}

/// Runs a schedule with one fault; returns its outcome and the kind of the frame that was harmed, or
/// `None` if the schedule was over before.
fn run(seed: u64) -> Option<(Fault, Option<FrameKind>, Outcome)> {
    seeded::set(Some(rng_of(seed, 1)));
    let rng = &mut rng_of(seed, 0);
    let fault = ALL[(seed % ALL.len() as u64) as usize];
    let mut plan = Plan::new(rng);
    let is_frame = matches!(fault, Fault::Frame(_));
    // Descriptors travel beside the bytes, which a kernel neither loses nor swaps.
    plan.same_host &= !is_frame;
    let mut world = World::new(plan);
    world.net.borrow_mut().harms = is_frame;

    let steps = rng.random_range(1..STEPS);
    let at = rng.random_range(0..steps);
    let end_of_delay = rng.random_range(at..=steps);
    let mut done = false;
    for step in 0..=steps {
        if step >= at && !done {
            done = strike(&mut world, fault, rng);
        }
        if step == end_of_delay {
            world.net.borrow_mut().release();
        }
        world.step(rng);
    }
    world.settle(rng);
    let released = world.net.borrow_mut().release();
    if released {
        world.settle(rng);
    }
    supervise(&mut world, rng);
    let harmed = world.net.borrow().struck;
    let mut outcome = Outcome::Rows;
    if !gates_have_ended(&world) {
        outcome = Outcome::Late;
        world.now += Duration::from_secs(13);
        // Deadlines expire in one round of the I/O threads, and readers see it in the next one.
        world.settle(rng);
        supervise(&mut world, rng);
    }
    if !gates_have_ended(&world) {
        outcome = Outcome::Waits;
        let alive = world.net.borrow().alive();
        for wire in alive {
            world.net.borrow_mut().cut(wire);
        }
        supervise(&mut world, rng);
    }
    assert!(gates_have_ended(&world), "{fault}: a gate hangs\n{}", world.describe());
    let gates = world.gates.iter().filter_map(|gate| gate.outcome.as_ref()?.as_ref().err());
    let checks: Vec<_> = world.partitions.iter().map(|one| one.inner.check()).collect();
    let errors: Vec<_> =
        gates.chain(checks.iter().filter_map(|check| check.as_ref().err())).collect();
    for error in &errors {
        assert!(may_end(fault, error), "{fault}: {error:?}");
    }
    if outcome == Outcome::Rows && !errors.is_empty() {
        outcome = Outcome::Error;
    }
    for (number, gate) in world.gates.iter().enumerate() {
        if matches!(gate.outcome, Some(Ok(()))) && !world.net.borrow().is_closed(gate.process) {
            let ended = gate.reading.iter().filter(|reading| reading.ended).count();
            assert_eq!(ended, world.plan.gates[number].channels.len(), "{fault}: rows are missing");
        }
    }
    for (partition, check) in world.partitions.iter().zip(&checks) {
        assert!(
            check.is_err() || partition.inner.is_released(),
            "{fault}: a partition is not taken\n{}",
            world.describe()
        );
    }
    end(&mut world, rng);
    seeded::set(None);
    let struck = if is_frame { harmed.is_some() } else { done };
    struck.then_some((fault, harmed, outcome))
}

#[derive(Default)]
struct Table {
    faults: BTreeMap<(Fault, Outcome), u64>,
    frames: BTreeMap<(FrameKind, Fault, Outcome), u64>,
}

impl Table {
    fn add(&mut self, fault: Fault, harmed: Option<FrameKind>, outcome: Outcome) {
        *self.faults.entry((fault, outcome)).or_default() += 1;
        if let Some(kind) = harmed {
            *self.frames.entry((kind, fault, outcome)).or_default() += 1;
        }
    }

    fn of(&self, fault: Fault, outcome: Outcome) -> u64 {
        self.faults.get(&(fault, outcome)).copied().unwrap_or(0)
    }

    fn print(&self, schedules: u64) {
        let total: u64 = self.faults.values().sum();
        println!("{total} faults in {schedules} schedules");
        println!("  {:<18}{:>8}{:>8}{:>8}{:>8}", "fault", "rows", "error", "late", "waits");
        for fault in ALL {
            let [rows, error, late, waits] = OUTCOMES.map(|outcome| self.of(fault, outcome));
            println!("  {fault:<18}{rows:>8}{error:>8}{late:>8}{waits:>8}");
        }
        println!("  {:<18}{:<18}{:>8}{:>8}", "harm", "frame", "outcome", "");
        for ((kind, fault, outcome), count) in &self.frames {
            println!("  {fault:<18}{kind:<18}{:>8}{count:>8}", format!("{outcome:?}"));
        }
    }

    /// Checks that all faults struck, and that none had an outcome that it must not have.
    fn check(&self, total: u64) {
        for fault in ALL {
            let struck: u64 = OUTCOMES.map(|outcome| self.of(fault, outcome)).iter().sum();
            assert!(struck >= total / 30, "{fault} struck {struck} times only");
            let errors = struck - self.of(fault, Outcome::Rows);
            match fault {
                Fault::Delayed => assert_eq!(errors, 0, "{fault} costs no rows"),
                // Most connections are cut before the proof, and dialed again.
                Fault::Cut | Fault::Frame(Harm::Overtaken) => {
                    assert!(errors > 0, "{fault} was never seen");
                }
                _ => assert!(errors >= struck / 5, "{fault} had {errors} errors only"),
            }
            if !matches!(fault, Fault::Frame(_)) {
                let slow = self.of(fault, Outcome::Late) + self.of(fault, Outcome::Waits);
                assert_eq!(slow, 0, "{fault} is seen at once");
            }
        }
        for fault in [Harm::Damaged, Harm::Doubled, Harm::Lost, Harm::CutShort].map(Fault::Frame) {
            let buffer = (FrameKind::BUFFER, fault, Outcome::Rows);
            assert!(
                !self.frames.contains_key(&buffer),
                "{fault}: all rows, and a buffer was harmed"
            );
        }
        for fault in [Harm::Damaged, Harm::Doubled, Harm::CutShort].map(Fault::Frame) {
            let of = |outcome| self.frames.get(&(FrameKind::HELLO, fault, outcome));
            assert!(of(Outcome::Rows).is_some(), "{fault}: no HELLO was harmed");
            assert_eq!(of(Outcome::Error), None, "{fault}: a consumer did not dial again");
        }
    }
}

#[test]
fn each_fault_ends_in_all_rows_or_an_error() {
    let first = number_of("HEADGATE_FAULT");
    let total =
        number_of("HEADGATE_FAULTS").unwrap_or_else(|| if first.is_some() { 1 } else { FAULTS });
    let (first, mut seed) = (first.unwrap_or(0), first.unwrap_or(0));
    let mut table = Table::default();
    let mut struck = 0;
    while struck < total {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(Some((fault, harmed, outcome))) => {
                table.add(fault, harmed, outcome);
                struck += 1;
            }
            Ok(None) => {}
            Err(panic) => {
                eprintln!("run this schedule again with HEADGATE_FAULT={seed}");
                resume_unwind(panic);
            }
        }
        seed += 1;
        assert!(seed - first < 10 * total.max(100), "few of the schedules have a fault");
    }
    table.print(seed - first);
    if total >= 100 {
        table.check(total);
    }
}
