//! The values of the metrics under Flink's names (spec 12.2).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, config, drain, nothing, writer};
use headgate_exchange::{
    BufferOptions, BytesWriter, Config, DataInput, InputGate, Metric, Metrics, PartitionKind,
    RecordReader, ResultPartition, Stats, UnionInputGate,
};
use headgate_record::Selector;
use link::{KINDS, Link, consumed, write_rows};

fn get(metrics: &Metrics, name: &str) -> Metric {
    metrics.iter().find(|(other, _)| *other == name).expect(name).1
}

fn count(metrics: &Metrics, name: &str) -> u64 {
    match get(metrics, name) {
        Metric::Count(count) => count,
        Metric::Share(share) => panic!("{name} is a share, {share}"),
    }
}

fn share(metrics: &Metrics, name: &str) -> f64 {
    match get(metrics, name) {
        Metric::Share(share) => share,
        Metric::Count(count) => panic!("{name} is a count, {count}"),
    }
}

fn task(env: &Env) -> Metrics {
    env.0.stats().task_metrics()
}

/// Takes snapshots until the condition holds.
fn until(env: &Env, is_so: impl Fn(&Stats) -> bool) {
    while !is_so(&env.0.stats()) {
        nothing().unwrap();
        thread::yield_now();
    }
}

fn bytes_writer(partition: &Arc<ResultPartition>) -> BytesWriter {
    let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
    BytesWriter::new(Arc::clone(partition), selector, RECORD_LIMIT).unwrap()
}

fn read_bytes(env: &Env, gate: Arc<InputGate>) -> usize {
    let copies = Arc::clone(env.0.copies());
    let mut reader = RecordReader::new(gate, None, env.0.spanning_options(), copies);
    std::iter::from_fn(|| reader.next(&nothing).unwrap()).count()
}

#[test]
fn spec_12_08_one_broadcast_buffer_counts_once_for_each_subpartition() {
    for flushes in [0, 1, 3] {
        let env = Env::new(16, 4096);
        let partitions = [env.partition(4), env.partition(4)];
        let mut pages = writer(&partitions[0]);
        let mut bytes = bytes_writer(&partitions[1]);
        pages.broadcast_emit(&batch(0, 3, 8), &nothing).unwrap();
        bytes.broadcast_emit(&Bytes::from_static(b"to all"), &nothing).unwrap();
        for _ in 0..flushes {
            pages.flush().unwrap();
            bytes.flush().unwrap();
        }
        // A flushed page is finished; a buffer of bytes may still grow.
        let of_bytes = |stats: &Stats| {
            let id = partitions[1].id();
            stats.partitions.iter().find(|one| one.id == id).unwrap().metrics()
        };
        assert_eq!(count(&of_bytes(&env.0.stats()), "numBuffersOut"), 0);
        assert_eq!(count(&of_bytes(&env.0.stats()), "outputQueueSize"), 4 * 10);
        pages.finish().unwrap();
        bytes.finish().unwrap();
        let stats = env.0.stats();
        for partition in &stats.partitions {
            assert_eq!(count(&partition.metrics(), "numBuffersOut"), 4, "{flushes} flushes");
            let of_each = partition.subpartitions.iter().map(|one| one.metrics());
            let of_each: Vec<_> = of_each.map(|one| count(&one, "numBuffersOut")).collect();
            assert_eq!(of_each, [1; 4]);
        }
        // Its length prefix is part of the record.
        assert_eq!(count(&of_bytes(&stats), "numBytesOut"), 4 * 10);
        assert_eq!(count(&task(&env), "numBuffersOut"), 8);
    }
}

#[test]
fn spec_12_07_a_writer_blocked_in_a_request_is_hard_back_pressured_and_not_idle() {
    let env = Env::new(8, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = writer(&partition);
            // One record that is larger than all segments together.
            writer.emit(&batch(0, 10_000, 12), &nothing).unwrap();
            writer.finish().unwrap();
        });
        let hard = |stats: &Stats| stats.times.accumulated.hard_back_pressured;
        until(&env, |stats| hard(stats) >= 200);
        let stats = env.0.stats();
        assert_eq!(stats.times.accumulated.idle, 0);
        assert_eq!(stats.times.accumulated.soft_back_pressured, 0);
        let metrics = stats.task_metrics();
        assert!(count(&metrics, "hardBackPressuredTimeMsPerSecond") > 0);
        assert_eq!(count(&metrics, "softBackPressuredTimeMsPerSecond"), 0);
        assert!(count(&stats.partitions[0].metrics(), "accumulateBackPressuredTimeMs") >= 200);
        assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 10_000);
        writing.join().unwrap();
    });
    assert!(partition.back_pressured_ns() >= 200_000_000);
}

#[test]
fn spec_section_12_2_waiting_for_output_before_a_record_is_soft_back_pressure() {
    let buffers = BufferOptions { max_buffers_per_channel: 1, ..BufferOptions::default() };
    let env = Env::with(Config { buffers, ..config(32, 4096) });
    let partition = env.partition(1);
    let mut writer = writer(&partition);
    for _ in 0..2 {
        writer.emit(&batch(0, 10, 8), &nothing).unwrap();
        writer.flush().unwrap();
    }
    thread::scope(|scope| {
        let writing = scope.spawn(move || {
            writer.emit(&batch(10, 20, 8), &nothing).unwrap();
            writer.finish().unwrap();
        });
        until(&env, |stats| stats.times.accumulated.soft_back_pressured >= 20);
        // A reader that waits at the same time does not make the task idle.
        let other = env.0.create_input_gate().unwrap();
        assert!(other.poll_next().unwrap().is_pending());
        until(&env, |stats| stats.gates[0].times.accumulated.idle >= 20);
        let times = env.0.stats().times.accumulated;
        assert_eq!((times.idle, times.hard_back_pressured), (0, 0));
        let gate = env.gate(&[env.address(&partition, 0)]);
        assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 30);
        writing.join().unwrap();
    });
}

#[test]
fn spec_section_12_2_a_reader_is_idle_from_a_poll_that_finds_nothing_to_the_next_buffer() {
    for link in Link::all(32) {
        let partition = link.partition(PartitionKind::PipelinedBounded, 1);
        let (gate, env) = (link.gate(&partition, 0), link.consumer());
        assert_eq!(env.0.stats().gates[0].times.accumulated.idle, 0, "nobody reads it");
        assert!(gate.poll_next().unwrap().is_pending());
        until(env, |stats| stats.gates[0].times.accumulated.idle >= 10);
        write_rows(&partition, 10);
        until(env, |_| gate.is_available());
        let idle =
            |stats: &Stats| [stats.gates[0].times, stats.times].map(|it| it.accumulated.idle);
        let before = idle(&env.0.stats());
        assert!(before.iter().all(|idle| *idle >= 10), "{before:?}");
        let busy = env.0.stats().times.accumulated.busy;
        until(env, |stats| stats.times.accumulated.busy >= busy + 20);
        assert_eq!(idle(&env.0.stats()), before, "a buffer arrived: not idle any more");
        assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 10);
        consumed(&partition);
    }
}

#[test]
fn a_blocked_reader_is_idle_until_it_gives_up() {
    let env = Env::new(8, 4096);
    let gate = env.0.create_input_gate().unwrap();
    let patience = || {
        let idle = env.0.stats().times.accumulated.idle;
        if idle >= 100 {
            Err(headgate_exchange::ExchangeError::Interrupted("the test's patience".to_owned()))
        } else {
            nothing()
        }
    };
    assert!(gate.next(&patience).is_err());
    let idle = env.0.stats().times.accumulated.idle;
    let busy = env.0.stats().times.accumulated.busy;
    until(&env, |stats| stats.times.accumulated.busy >= busy + 10);
    assert_eq!(env.0.stats().times.accumulated.idle, idle);
}

#[test]
fn the_gates_of_a_union_are_idle_together() {
    let env = Env::new(32, 4096);
    let partitions = [env.partition(1), env.partition(1)];
    let gates = [0, 1].map(|at| env.gate(&[env.address(&partitions[at], 0)]));
    let union = UnionInputGate::new(gates.to_vec()).unwrap();
    write_rows(&partitions[0], 10);
    assert!(matches!(union.poll_next().unwrap(), Poll::Ready(Some(_))));
    assert!(matches!(union.poll_next().unwrap(), Poll::Ready(Some(_))), "EndOfPartition");
    assert!(union.poll_next().unwrap().is_pending());
    let idle_of =
        |stats: &Stats| [0, 1].map(|gate: usize| stats.gates[gate].times.accumulated.idle);
    until(&env, |stats| idle_of(stats).iter().all(|idle| *idle >= 5));
    write_rows(&partitions[1], 10);
    let idle = idle_of(&env.0.stats());
    let busy = env.0.stats().times.accumulated.busy;
    until(&env, |stats| stats.times.accumulated.busy >= busy + 10);
    assert_eq!(idle_of(&env.0.stats()), idle);
    while let Poll::Ready(Some(_)) = union.poll_next().unwrap() {}
}

#[test]
fn input_and_output_counts_agree_for_every_kind_of_partition() {
    for kind in KINDS {
        for link in Link::all(64) {
            let partition = link.partition(kind, 2);
            if kind == PartitionKind::Blocking {
                write_rows(&partition, 2_000);
            }
            let gates = [0, 1].map(|index| link.gate(&partition, index));
            thread::scope(|scope| {
                if kind != PartitionKind::Blocking {
                    scope.spawn(|| write_rows(&partition, 2_000));
                }
                for gate in &gates {
                    let mut reader = link.consumer().reader(gate);
                    scope.spawn(move || drain(&mut reader).unwrap());
                }
            });
            let (out, into) = (task(&link.producer), task(link.consumer()));
            let (here, there) =
                if link.consumer.is_none() { ("Local", "Remote") } else { ("Remote", "Local") };
            for what in ["Bytes", "Buffers"] {
                let sent = count(&out, &format!("num{what}Out"));
                assert!(sent > 1, "{kind:?}");
                assert_eq!(count(&into, &format!("num{what}In{here}")), sent, "{kind:?} {what}");
                assert_eq!(count(&into, &format!("num{what}In{there}")), 0);
                let gates = link.consumer().0.stats().gates;
                let of_gates = gates.iter().map(|gate| gate.metrics());
                let of_gates: u64 =
                    of_gates.map(|one| count(&one, &format!("num{what}In{here}"))).sum();
                assert_eq!(of_gates, sent);
            }
            for name in
                ["inputQueueLength", "inputQueueSize", "outputQueueLength", "outputQueueSize"]
            {
                assert_eq!(count(&into, name), 0, "{kind:?} {name}: all was read");
            }
            drop(gates);
            let after = task(link.consumer());
            assert_eq!(
                get(&after, &format!("numBytesIn{here}")),
                get(&into, &format!("numBytesIn{here}")),
                "the task's counters outlive its gates"
            );
        }
    }
}

#[test]
fn queue_lengths_count_the_waiting_buffers_over_both_kinds_of_channel() {
    for link in Link::all(64) {
        let partition = link.partition(PartitionKind::PipelinedBounded, 1);
        let gate = link.gate_of_bytes(&partition, 0);
        let mut writer = bytes_writer(&partition);
        // Two full buffers and a part of one, with the lengths of the records.
        for _ in 0..10 {
            writer.emit(&Bytes::from(vec![1; 1000]), &nothing).unwrap();
        }
        let written = 10 * 1004;
        let size = |stats: &Stats, at: &str| {
            let (input, output) = (stats.task_metrics(), stats.partitions.first());
            match at {
                "input" => count(&input, "inputQueueSize"),
                _ => output.map_or(0, |one| count(&one.metrics(), "outputQueueSize")),
            }
        };
        if link.consumer.is_none() {
            let stats = link.producer.0.stats();
            assert_eq!((size(&stats, "input"), size(&stats, "output")), (written, written));
            assert_eq!(count(&stats.task_metrics(), "inputQueueLength"), 3);
            assert_eq!(count(&stats.gates[0].channels[0].metrics(), "inputQueueLength"), 3);
            assert_eq!(count(&stats.partitions[0].metrics(), "maxQueueLen"), 3);
        } else {
            until(link.consumer(), |stats| size(stats, "input") == 2 * 4096);
            let stats = link.producer.0.stats();
            assert_eq!(size(&stats, "output"), written - 2 * 4096, "the rest is not full yet");
        }
        let first = gate.next(&nothing).unwrap().unwrap().buffer.len() as u64;
        assert_eq!(size(&link.consumer().0.stats(), "input") + first, {
            if link.consumer.is_none() { written } else { 2 * 4096 }
        });
        writer.finish().unwrap();
        while gate.next(&nothing).unwrap().is_some() {}
        assert_eq!(size(&link.consumer().0.stats(), "input"), 0);
        consumed(&partition);
    }
}

#[test]
fn an_overdrawn_pool_has_a_usage_above_1() {
    let buffers = BufferOptions {
        buffers_per_channel: 1,
        floating_buffers_per_gate: 1,
        max_overdraft_buffers: 3,
        ..BufferOptions::default()
    };
    let env = Env::with(Config { buffers, ..config(32, 4096) });
    let partition = env.partition(1);
    let stop = || Err(headgate_exchange::ExchangeError::Interrupted("the test".to_owned()));
    let mut writer = writer(&partition);
    assert!(writer.emit(&batch(0, 5_000, 20), &stop).is_err());
    let used = share(&env.0.stats().partitions[0].metrics(), "outPoolUsage");
    assert!((used - 2.0).abs() < 1e-9, "six of three segments, not {used}");
    assert!((share(&task(&env), "outPoolUsage") - used).abs() < 1e-9);
    env.0.release_partition(partition.id());
    assert_eq!(get(&task(&env), "outPoolUsage"), Metric::Share(0.0), "a pool without segments");
}

#[test]
fn spec_section_12_2_exclusive_and_floating_buffers_have_usages_of_their_own() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(64, 4096));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let usage = |stats: &Stats| {
        let metrics = stats.gates[0].metrics();
        ["inPoolUsage", "inputExclusiveBuffersUsage", "inputFloatingBuffersUsage"]
            .map(|name| share(&metrics, name))
    };
    assert_eq!(usage(&consumer.0.stats()), [0.0; 3]);
    thread::scope(|scope| {
        let writing = scope.spawn(|| write_rows(&partition, 5_000));
        // Without a reader all segments of the gate fill up: two exclusive and eight floating ones.
        until(&consumer, |stats| usage(stats) == [1.0; 3]);
        let stats = consumer.0.stats();
        assert_eq!((stats.gates[0].exclusive.size, stats.gates[0].floating.size), (2, 8));
        assert_eq!(share(&stats.task_metrics(), "inPoolUsage"), 1.0);
        assert_eq!(count(&stats.shuffle_metrics(), "UsedMemorySegments"), 10);
        assert_eq!(count(&stats.shuffle_metrics(), "AvailableMemory"), 54 * 4096);
        assert_eq!(drain(&mut consumer.reader(&gate)).unwrap().len(), 5_000);
        writing.join().unwrap();
    });
    assert_eq!(usage(&consumer.0.stats()), [0.0; 3], "the channel has ended");
    gate.close();
    assert_eq!(usage(&consumer.0.stats()), [0.0; 3], "the pool is closed");
}

#[test]
fn spec_12_05_a_buffer_size_may_be_announced_before_and_after_all_channels() {
    let env = Env::new(16, 4096);
    let partition = env.partition(1);
    let gate = env.0.create_input_gate().unwrap();
    gate.add_unknown_channel().unwrap();
    let size = NonZeroU32::new(64).unwrap();
    gate.announce_buffer_size(size);
    let address = env.address(&partition, 0);
    assert!(env.0.update_channel(&gate, 0, &address, [0; 32]).unwrap());
    gate.seal();
    let mut writer = bytes_writer(&partition);
    writer.emit(&Bytes::from(vec![1; 1000]), &nothing).unwrap();
    writer.finish().unwrap();
    assert_eq!(read_bytes(&env, Arc::clone(&gate)), 1);
    gate.announce_buffer_size(size);
    gate.close();
    gate.announce_buffer_size(size);
}
