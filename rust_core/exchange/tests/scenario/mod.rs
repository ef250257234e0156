//! An exchange that passes every failpoint, and handles failures as a caller would.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headgate_exchange::{
    Address, BufferTimeout, Config, ExchangeError, InputGate, PartitionId, PartitionKind,
    PartitionOptions, RecordReader, ResultPartition,
};

use crate::common::{Env, batch, config, page_schema, writer};

/// Rows of one partition in [`play`].
pub(crate) const ROWS: usize = 2_000;
/// Time after which an exchange counts as hanging.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time after which a failure aborts all parts: one may be waiting for a part that never started.
const ABORT_AFTER: Duration = Duration::from_millis(20);

type Rows = Result<usize, String>;

/// The result of one part of an exchange.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) who: &'static str,
    pub(crate) result: Rows,
}

/// The end of a channel that a process plays.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Role {
    Producer,
    Consumer,
}

/// Returns an interrupt that ends waits after a while.
fn patience() -> impl Fn() -> Result<(), ExchangeError> + Sync {
    let started = Instant::now();
    move || {
        if started.elapsed() > PATIENCE {
            Err(ExchangeError::Interrupted("the test's patience".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// Calls, and turns a panic into an error.
fn guarded(call: impl FnOnce() -> Result<usize, ExchangeError>) -> Result<usize, ExchangeError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err(ExchangeError::Aborted(format!("it panicked: {text}")))
    })
}

/// Writes a partition to its end.
fn write(env: &Env, partition: &Arc<ResultPartition>, rows: usize) -> Result<usize, ExchangeError> {
    let patience = patience();
    let timeout = BufferTimeout::After(Duration::from_millis(1));
    let mut writer = writer(partition).with_buffer_timeout(timeout, &env.0)?;
    let step = rows / 10;
    for part in 0..10 {
        let (from, to) = (part * step, (part + 1) * step);
        let (from, to) = (i64::try_from(from).unwrap(), i64::try_from(to).unwrap());
        writer.emit(&batch(from, to - 1, 40), &patience)?;
        // Larger than a segment, and than the spill threshold.
        writer.emit(&batch(to - 1, to, 6_000), &patience)?;
    }
    writer.finish()?;
    Ok(rows)
}

/// Writes a partition and waits until it is consumed. An error fails its readers.
fn produce(
    env: &Env,
    partition: &Arc<ResultPartition>,
    rows: usize,
) -> Result<usize, ExchangeError> {
    let patience = patience();
    let written = guarded(|| {
        write(env, partition, rows)?;
        let taken = partition.wait_consumed(Some(PATIENCE), &patience)?;
        if taken {
            Ok(rows)
        } else {
            Err(ExchangeError::Interrupted("the test's patience".to_owned()))
        }
    });
    if let Err(error) = &written {
        partition.fail(error);
    }
    written
}

/// Reads a gate to its end. Closes the gate on an error.
fn consume(
    env: &Env,
    addresses: &[Address],
    reader: impl FnOnce(&Arc<InputGate>) -> RecordReader,
) -> Result<usize, ExchangeError> {
    let patience = patience();
    let gate = env.0.create_input_gate()?;
    let add = || {
        for address in addresses {
            env.0.add_channel(&gate, address, page_schema().hash())?;
        }
        gate.seal();
        Ok(0)
    };
    let read = || {
        let mut reader = reader(&gate);
        let mut rows = 0;
        while let Some(record) = reader.next(&patience)? {
            let headgate_exchange::Record::Batch(batch) = record else {
                panic!("only batches were written")
            };
            rows += batch.num_rows();
        }
        Ok(rows)
    };
    // As on Spark: one thread adds producers, another one reads.
    let read = thread::scope(|scope| {
        scope.spawn(|| guarded(add).inspect_err(|error| gate.fail(error.clone())));
        guarded(read)
    });
    let closed = guarded(|| {
        gate.close();
        Ok(0)
    });
    read.and_then(|rows| closed.map(|_| rows))
}

/// Stores a partition on disk, and reads it over a connection and then locally.
fn store_and_read(producer: &Env, consumer: &Env) -> Result<usize, ExchangeError> {
    guarded(|| {
        let options = PartitionOptions::all(1).of_kind(PartitionKind::Blocking);
        let partition = producer.0.create_result_partition(&options)?;
        let read = |env: &Env| {
            let address = producer.address(&partition, 0);
            consume(env, &[address], |gate| env.reader(gate))
        };
        let written = guarded(|| write(producer, &partition, ROWS));
        let rows = written.and_then(|_| Ok(read(consumer)? + read(producer)?));
        producer.0.release_partition(partition.id());
        rows
    })
}

/// Runs two producers and two consumers: remote channels, a local one, one for a missing partition.
pub(crate) fn exchange() -> Vec<Outcome> {
    // The last two environments lend each other pages. The first one sends and receives copies.
    let envs = [false, true, true].map(|same_host_link| {
        // One channel requests a partition that does not exist, with a short timeout.
        let partition_request_timeout = Duration::from_millis(20);
        Env::with(Config { same_host_link, partition_request_timeout, ..config(24, 4096) })
    });
    let all = &envs;
    let [first, second, third] = all;
    let made = catch_unwind(AssertUnwindSafe(|| {
        let envs = [first, second].into_iter();
        envs.map(|env| env.0.create_result_partition(&PartitionOptions::all(2))).collect()
    }));
    let partitions: Vec<_> = match made {
        Ok(Ok(partitions)) => partitions,
        Ok(Err(error)) => return vec![outcome("a partition", Err(error))],
        Err(_) => return vec![],
    };
    let addresses = |index| {
        let both = [first, second].into_iter().zip(&partitions);
        both.map(|(env, partition)| env.address(partition, index)).collect::<Vec<_>>()
    };
    let unknown = Address { partition: PartitionId([9; 16]), ..addresses(0).remove(0) };
    let outcomes = thread::scope(|scope| {
        let threads = [
            ("the first producer", scope.spawn(|| produce(first, &partitions[0], ROWS))),
            ("the second producer", scope.spawn(|| produce(second, &partitions[1], ROWS))),
            // A consumer reads its own partition over a local channel.
            ("the first consumer", {
                let addresses = addresses(0);
                scope.spawn(move || consume(first, &addresses, |gate| first.reader(gate)))
            }),
            ("the second consumer", {
                let addresses = addresses(1);
                scope.spawn(move || consume(third, &addresses, |gate| third.reader(gate)))
            }),
        ];
        let handles = threads.map(|(who, thread)| {
            (
                who,
                scope.spawn(move || {
                    let result = thread.join().unwrap();
                    if let Err(error) = &result {
                        thread::sleep(ABORT_AFTER);
                        for env in all {
                            env.0.abort(error);
                        }
                    }
                    result
                }),
            )
        });
        handles.map(|(who, thread)| outcome(who, thread.join().unwrap()))
    });
    let mut outcomes = Vec::from(outcomes);
    let all_well = outcomes.iter().all(|outcome| outcome.result.is_ok());
    if all_well {
        let rows: usize = outcomes[2..].iter().flat_map(|outcome| &outcome.result).sum();
        assert_eq!(rows, 2 * ROWS, "rows are missing or doubled");
        let refused = consume(third, &[unknown], |gate| third.reader(gate)).unwrap_err();
        assert!(
            !matches!(refused, ExchangeError::Interrupted(_)),
            "the missing partition was not refused"
        );
        let stored = store_and_read(first, third);
        assert!(
            stored.as_ref().map_or(true, |rows| *rows == 2 * ROWS),
            "stored rows are missing or doubled"
        );
        outcomes.push(outcome("who reads what is stored", stored));
    }
    for partition in &partitions {
        drop(guarded(|| {
            first.0.release_partition(partition.id());
            second.0.release_partition(partition.id());
            Ok(0)
        }));
    }
    for env in &envs {
        // A rule that acts once may have interrupted the release: the second call, or the drop,
        // completes it.
        drop(guarded(|| {
            env.0.close();
            Ok(0)
        }));
    }
    outcomes
}

fn outcome(who: &'static str, result: Result<usize, ExchangeError>) -> Outcome {
    Outcome { who, result: result.map_err(|error| error.to_string()) }
}

/// Plays one end of a channel against another process.
pub(crate) fn play(
    env: &Env,
    role: Role,
    tell: impl FnOnce(&str),
    ask: impl FnOnce() -> String,
) -> Result<usize, String> {
    let result = match role {
        Role::Producer => {
            let partition = env.partition(1);
            tell(&write_address(&env.address(&partition, 0)));
            let result = produce(env, &partition, ROWS);
            env.0.release_partition(partition.id());
            result
        }
        Role::Consumer => match read_address(&ask()) {
            Some(address) => consume(env, &[address], |gate| env.reader(gate)),
            None => return Err("no address came: it was killed before".to_owned()),
        },
    };
    env.0.close();
    result.map_err(|error| error.to_string())
}

fn write_address(address: &Address) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (process, partition) = (hex(&address.process), hex(&address.partition.0));
    format!("{} {} {process} {partition}", address.host, address.port)
}

fn read_address(text: &str) -> Option<Address> {
    let mut words = text.split_whitespace();
    let (host, port) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let mut bytes = || {
        let number = u128::from_str_radix(words.next()?, 16).ok()?;
        Some(number.to_be_bytes())
    };
    let (process, partition) = (bytes()?, PartitionId(bytes()?));
    Some(Address { host, port, process, partition, subpartition: 0 })
}
