//! Every failpoint in turn: the right rows or an error that names the place, no hang, no lost
//! segment.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::Env;
use headgate_exchange::failpoint::{VARIABLE, configure, hits};
use headgate_exchange::{BufferTimeout, ExchangeError, PartitionKind, PartitionOptions, Record};
use scenario::{Outcome, ROWS, Role, exchange, play};

/// Errors of a process whose peer is gone.
const TOLD: &str = "the other process is gone";

/// Runs one test at a time: rules apply to the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all names in the sources, and true for those that can raise an error.
fn names() -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let crates = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = ["exchange", "net"].map(|name| crates.join(name).join("src")).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(path).unwrap();
                for part in text.split("fail_point!(\"").skip(1) {
                    let (name, rest) = part.split_once('"').unwrap();
                    assert!(
                        found.insert(name.to_owned(), rest.starts_with(',')).is_none(),
                        "{name} twice"
                    );
                }
            }
        }
    }
    assert!(found.len() > 30, "only {found:?}");
    found
}

fn check(rule: &str, outcomes: &[Outcome]) -> bool {
    let mut failed = false;
    if outcomes.iter().any(|outcome| outcome.result.is_err()) {
        println!("{rule}: {outcomes:?}");
    }
    for outcome in outcomes {
        if let Err(text) = &outcome.result {
            failed = true;
            let says_where = ["failpoint", "channel", "127.0.0.1:", "partition", "producer"];
            assert!(!text.contains("interrupted"), "{rule}: {} hangs", outcome.who);
            assert!(
                says_where.iter().any(|word| text.contains(word)),
                "{rule}: the error of {} says not where: {text}",
                outcome.who
            );
        }
    }
    failed
}

#[test]
fn an_exchange_passes_every_point() {
    let _alone = alone();
    configure("").unwrap();
    let all: BTreeSet<_> = names().into_keys().collect();
    let mut passed = BTreeSet::new();
    // A pool runs empty only if its writer is faster than its readers, so several exchanges may be
    // needed.
    for _ in 0..20 {
        assert!(!check("no rule", &exchange()));
        passed = hits().into_iter().map(|(name, _)| name.to_owned()).collect();
        if passed == all {
            break;
        }
    }
    assert_eq!(passed, all);
}

#[test]
fn an_error_at_any_point_names_its_place() {
    let _alone = alone();
    let mut failed = 0;
    for (name, can_fail) in names() {
        for first in [1, 3] {
            let rule = format!("{name}=error@{first}*1");
            configure(&rule).unwrap();
            let started = Instant::now();
            let has_failed = check(&rule, &exchange());
            assert!(can_fail || !has_failed, "{rule} has nothing to fail");
            failed += usize::from(has_failed);
            println!("{rule}: failed {has_failed}, {:?}", started.elapsed());
        }
    }
    assert!(failed > 20, "only {failed} errors were seen");
    configure("").unwrap();
}

#[test]
fn a_delay_at_any_point_changes_nothing() {
    let _alone = alone();
    for name in names().into_keys() {
        let rule = format!("{name}=sleep(20)*3");
        configure(&rule).unwrap();
        assert!(!check(&rule, &exchange()), "{rule} failed");
    }
    configure("").unwrap();
}

/// Runs the rule in `HEADGATE_TEST_RULE` many times.
#[test]
#[ignore = "to look for a fault that comes seldom"]
fn one_rule_many_times() {
    let _alone = alone();
    let rule = std::env::var("HEADGATE_TEST_RULE").unwrap_or_default();
    for _ in 0..200 {
        configure(&rule).unwrap();
        check(&rule, &exchange());
    }
    configure("").unwrap();
}

#[test]
fn random_delays_everywhere_change_nothing() {
    let _alone = alone();
    let seed = std::env::var("HEADGATE_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("HEADGATE_TEST_SEED={seed}");
    let rules: Vec<_> = names().into_keys().map(|name| format!("{name}=sleep(5)?0.1")).collect();
    configure(&format!("seed={seed};{}", rules.join(";"))).unwrap();
    assert!(!check("random delays", &exchange()));
    configure("").unwrap();
}

#[test]
fn a_panic_at_any_point_ends_all_parts() {
    let _alone = alone();
    for name in names().into_keys() {
        let rule = format!("{name}=panic*1");
        configure(&rule).unwrap();
        check(&rule, &exchange());
    }
    configure("").unwrap();
}

#[test]
fn an_environment_without_its_io_thread_refuses_every_call_at_once() {
    let _alone = alone();
    configure("connection.reads=panic*1").unwrap();
    let (producer, consumer) = (Env::new(24, 4096), Env::new(24, 4096));
    let partition = producer.partition(1);
    let address = producer.address(&partition, 0);
    let gate = consumer.gate(std::slice::from_ref(&address));
    // The I/O thread that reads first panics. The gate of the other environment loses its peer.
    common::drain(&mut consumer.reader(&gate)).unwrap_err();
    let deadline = Instant::now() + Duration::from_secs(20);
    let broken = loop {
        let broken = [&producer, &consumer].into_iter().find(|env| env.0.check().is_err());
        assert!(Instant::now() < deadline, "no I/O thread has panicked");
        let Some(broken) = broken else { continue };
        break broken;
    };
    let refused = [
        broken.0.create_input_gate().err(),
        broken.0.create_result_partition(&PartitionOptions::all(1)).err(),
        broken.0.add_channel(&gate, &address, [0; 32]).err(),
        broken.0.address().err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert!(matches!(error, ExchangeError::Internal(_)), "{error}");
        assert!(error.to_string().contains("failpoint connection.reads"), "{error}");
    }
    gate.close();
    configure("").unwrap();
}

#[test]
fn a_slow_disk_is_waited_for() {
    let _alone = alone();
    configure("spill.writes=sleep(5)").unwrap();
    let env = Env::new(24, 4096);
    let options = PartitionOptions::all(1).of_kind(PartitionKind::Blocking);
    let partition = env.0.create_result_partition(&options).unwrap();
    let mut writer = common::writer(&partition);
    for part in 0..20 {
        writer.emit(&common::batch(part * 500, (part + 1) * 500, 40), &common::nothing).unwrap();
    }
    writer.finish().unwrap();
    let writes = hits().into_iter().find(|(name, _)| *name == "spill.writes").unwrap().1;
    let waits = env.0.waits();
    assert!(writes > 1 && waits.disk_ns >= writes * 5_000_000, "{writes} writes, {waits:?}");
    assert_eq!((waits.memory_ns, waits.link_ns, waits.io_ns), (0, 0, 0));
    configure("").unwrap();
}

#[test]
fn spec_5_07_a_flushers_failure_is_raised_by_the_next_call_of_its_writer() {
    let _alone = alone();
    let timeout = BufferTimeout::After(Duration::from_millis(1));
    for (rule, said) in [
        ("flusher.flush=error*1", "flushing by time failed: failpoint flusher.flush"),
        ("subpartition.added=panic*1", "flusher panicked: failpoint subpartition.added"),
    ] {
        for next in 0..3 {
            configure("").unwrap();
            let env = Env::new(24, 4096);
            let check = |result: Result<(), ExchangeError>| {
                let error = result.unwrap_err();
                assert!(matches!(error, ExchangeError::Flush(_)), "{error:?}");
                assert!(error.to_string().contains(said), "{error}");
            };
            let make = |partition| common::writer(partition).with_buffer_timeout(timeout, &env.0);
            let partition = env.partition(1);
            let gate = env.gate(&[env.address(&partition, 0)]);
            let mut writer = make(&partition).unwrap();
            configure(rule).unwrap();
            match writer.emit(&common::batch(0, 3, 5), &common::nothing) {
                Ok(()) => {}
                early => check(early),
            }
            // The consumer gets the failure although the writer makes no further call.
            check(env.reader(&gate).next(&common::nothing).map(drop));
            check(match next {
                0 => writer.emit(&common::batch(3, 4, 5), &common::nothing),
                1 => writer.flush(),
                _ => writer.finish(),
            });
            // Other writers are still flushed.
            let other = env.partition(1);
            let gate = env.gate(&[env.address(&other, 0)]);
            let mut writer = make(&other).unwrap();
            writer.emit(&common::batch(0, 2, 5), &common::nothing).unwrap();
            let Some(Record::Batch(batch)) = env.reader(&gate).next(&common::nothing).unwrap()
            else {
                panic!("a batch was emitted")
            };
            assert_eq!(batch.num_rows(), 2);
            writer.finish().unwrap();
        }
    }
    configure("").unwrap();
}

/// Plays the role of another process in the test below, with rules from the environment.
#[test]
#[ignore = "started by another test"]
fn the_other_process() {
    let role = if std::env::var("HEADGATE_TEST_ROLE").unwrap() == "producer" {
        Role::Producer
    } else {
        Role::Consumer
    };
    let mut lines = std::io::stdin().lock().lines();
    let result = play(
        &Env::new(24, 4096),
        role,
        |address| {
            println!("address {address}");
            std::io::stdout().flush().unwrap();
        },
        || lines.next().unwrap().unwrap(),
    );
    println!("result {result:?}");
}

fn other_process(role: &str, rule: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["the_other_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("HEADGATE_TEST_ROLE", role)
        .env(VARIABLE, rule)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The outcome of a run in which the other process is killed at one point, if it gets there.
struct Killing {
    at: String,
    has_died: bool,
    result: Result<usize, String>,
}

/// Plays `role` with another process that is killed at the failpoint, if it gets there.
fn with_a_killed_peer(name: &str, role: Role, other: &str) -> Killing {
    let started = Instant::now();
    let mut child = other_process(other, &format!("{name}=kill"));
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let env = Env::new(24, 4096);
    let (result, has_died) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let has_died = !child.wait().unwrap().success();
            if has_died {
                // A part that was not connected to the process gets the error from others.
                thread::sleep(Duration::from_millis(500));
                env.0.abort(&ExchangeError::Aborted(TOLD.to_owned()));
            }
            has_died
        });
        let result = play(
            &env,
            role,
            |address| writeln!(input, "{address}").unwrap_or_default(),
            || {
                let lines = said.by_ref().map_while(Result::ok);
                let mut found =
                    lines.filter_map(|line| line.split_once("address ").map(|x| x.1.to_owned()));
                found.next().unwrap_or_default()
            },
        );
        drop(input);
        (result, waiting.join().unwrap())
    });
    assert!(started.elapsed() < Duration::from_secs(40), "{name} took long");
    Killing { at: format!("{name} in the {other}"), has_died, result }
}

#[test]
fn a_process_killed_at_any_point_is_an_error_unless_it_was_done() {
    let _alone = alone();
    configure("").unwrap();
    let roles = [(Role::Consumer, "producer"), (Role::Producer, "consumer")];
    let points: Vec<_> =
        names().into_keys().flat_map(|name| roles.map(|r| (name.clone(), r))).collect();
    let next = AtomicUsize::new(0);
    // The rule is the other process's alone, and most of the time passes in waiting for it.
    let killings: Vec<_> = thread::scope(|scope| {
        let players = [(); 4].map(|()| {
            scope.spawn(|| {
                let mine = std::iter::from_fn(|| points.get(next.fetch_add(1, Ordering::Relaxed)));
                mine.map(|(name, (role, other))| with_a_killed_peer(name, *role, other))
                    .collect::<Vec<_>>()
            })
        });
        players.into_iter().flat_map(|player| player.join().unwrap()).collect()
    });
    assert_eq!(killings.len(), points.len());
    let (mut killed, mut noticed, mut told) = (0, 0, Vec::new());
    for Killing { at, has_died, result } in killings {
        killed += usize::from(has_died);
        match &result {
            Ok(rows) => assert_eq!(*rows, ROWS, "{at}: rows are missing"),
            Err(text) if text == TOLD => told.push(at),
            Err(text) => {
                assert!(has_died, "{at}, which lives: {text}");
                noticed += 1;
                let says_who = ["channel", "127.0.0.1:", "no address"];
                assert!(says_who.iter().any(|word| text.contains(word)), "{at}: {text}");
            }
        }
    }
    println!("{killed} killed, {noticed} noticed by their peers, who were told of {told:?}");
    assert!(killed > 30 && noticed > 12 && told.len() < 15);
}
