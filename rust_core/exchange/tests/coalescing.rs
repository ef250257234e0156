//! A coalescing reader returns the same rows in the same order as a plain reader.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::task::Poll;
use std::thread;

use bytes::Bytes;
use common::{Env, batch, config, drain, keys, nothing, writer};
use headgate_exchange::{ArrowWriter, ExchangeError, Record, RecordReader};
use headgate_record::Event;
use proptest::prelude::*;

const SEGMENT: usize = 4096;
/// Upper limits for the bytes of a row of `batch(.., .., 8)`, and for the bytes of a batch beside
/// its rows.
const ROW_BYTES: usize = 8 + 4 + 8 + 1;
const BESIDE: usize = 640;

/// In each thousand keys, those from here on belong to rows that span segments.
const WIDE: i64 = 500;

/// An environment with enough segments for all that a test writes before it reads.
fn roomy() -> Env {
    let mut config = config(2_000, SEGMENT);
    config.buffers.max_buffers_per_channel = 1_000;
    config.buffers.floating_buffers_per_gate = 1_000;
    Env::with(config)
}

/// A record that was read: the keys of a batch, or the name of an event.
#[derive(Clone, Debug, PartialEq)]
enum Read {
    Keys(Vec<i64>),
    Event(String),
}

/// Reads all that can be read without a wait.
fn read_available(reader: &mut RecordReader) -> Vec<Read> {
    let mut read = Vec::new();
    while let Poll::Ready(Some(record)) = reader.poll_next().unwrap() {
        read.push(match record {
            Record::Batch(batch) => Read::Keys(keys(&batch)),
            Record::Event { event: Event::Custom { name, .. }, .. } => Read::Event(name),
            other => panic!("{other:?} was not written"),
        });
    }
    read
}

/// Merges batches that have no event between them.
fn merged(read: &[Read]) -> Vec<Read> {
    let mut all: Vec<Read> = Vec::new();
    for next in read {
        match (all.last_mut(), next) {
            (Some(Read::Keys(before)), Read::Keys(keys)) => before.extend(keys),
            _ => all.push(next.clone()),
        }
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    Emit(i64),
    Flush,
    Event { priority: bool },
    Read,
    Wide,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_i64..60).prop_map(Step::Emit),
        3 => Just(Step::Flush),
        1 => any::<bool>().prop_map(|priority| Step::Event { priority }),
        2 => Just(Step::Read),
        1 => Just(Step::Wide),
    ];
    prop::collection::vec(step, 0..60)
}

/// Takes the step of this number. Its keys begin at a thousand times the number.
fn take_step(writer: &mut ArrowWriter, step: &Step, number: usize) {
    let from = number as i64 * 1000;
    match step {
        Step::Emit(rows) => writer.emit(&batch(from, from + rows, 8), &nothing).unwrap(),
        Step::Flush => writer.flush().unwrap(),
        Step::Event { priority } => {
            let name = format!("event {number}");
            let event = Event::Custom { name, body: Bytes::new() };
            let data_type = headgate_exchange::data_type_of(&event, *priority);
            writer.broadcast_event_as(&event, data_type).unwrap();
        }
        Step::Wide => {
            let row = from + WIDE;
            writer.emit(&batch(row, row + 1, 3 * SEGMENT), &nothing).unwrap();
        }
        Step::Read => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_writes_are_read_the_same(
        steps in steps(),
        subpartitions in 1_usize..4,
        batch_bytes in prop_oneof![0_usize..200, 1000_usize..30_000],
    ) {
        let env = roomy();
        let partitions = [env.partition(subpartitions), env.partition(subpartitions)];
        let mut writers = partitions.each_ref().map(writer);
        let [mut one_by_one, mut coalescing] = partitions.each_ref().map(|partition| {
            let addresses: Vec<_> =
                (0..subpartitions).map(|i| env.address(partition, i as u32)).collect();
            env.reader(&env.gate(&addresses))
        });
        coalescing = coalescing.with_batch_bytes(batch_bytes);
        for (number, step) in steps.iter().chain([&Step::Read]).enumerate() {
            let is_last = number == steps.len();
            for writer in &mut writers {
                take_step(writer, step, number);
                if is_last {
                    writer.finish().unwrap();
                }
            }
            if !matches!(step, Step::Read) {
                continue;
            }
            let (small, large) = (read_available(&mut one_by_one), read_available(&mut coalescing));
            prop_assert_eq!(merged(&small), merged(&large));
            prop_assert!(large.len() <= small.len());
            for pair in large.windows(2) {
                let [Read::Keys(a), Read::Keys(b)] = pair else { continue };
                // Neither is large, and still they were not merged: the second did not fit.
                let rows = a.len() + b.len();
                let wide = a.iter().chain(b).any(|key| key % 1000 >= WIDE);
                let bytes = rows * ROW_BYTES + BESIDE;
                prop_assert!(wide || bytes * 2 > batch_bytes, "{rows} rows of {batch_bytes} bytes");
            }
            prop_assert_eq!(coalescing.is_finished(), is_last);
            prop_assert_eq!(coalescing.is_available(), is_last);
        }
        prop_assert_eq!(one_by_one.counters().rows(), coalescing.counters().rows());
        prop_assert!(coalescing.next(&nothing).unwrap().is_none());
    }
}

#[test]
fn rows_read_before_an_error_come_before_it() {
    let env = roomy();
    let partition = env.partition(1);
    let mut reader = env.reader(&env.gate(&[env.address(&partition, 0)])).with_batch_bytes(1 << 20);
    let mut writer = writer(&partition);
    for part in 0..3 {
        writer.emit(&batch(part * 10, (part + 1) * 10, 8), &nothing).unwrap();
        writer.flush().unwrap();
    }
    let refused = Event::Custom { name: "EndOfData".to_owned(), body: Bytes::new() };
    writer.broadcast_event(&refused).unwrap();
    writer.emit(&batch(30, 40, 8), &nothing).unwrap();
    writer.finish().unwrap();
    let Some(Record::Batch(first)) = reader.next(&nothing).unwrap() else { panic!("a batch") };
    assert_eq!(keys(&first), Vec::from_iter(0..30));
    assert!(!reader.is_finished() && reader.is_available());
    let error = reader.next(&nothing).unwrap_err();
    assert!(matches!(error, ExchangeError::Event(_)), "{error}");
    let Some(Record::Batch(rest)) = reader.next(&nothing).unwrap() else { panic!("a batch") };
    assert_eq!(keys(&rest), Vec::from_iter(30..40));
}

#[test]
fn segments_are_free_while_rows_are_kept() {
    let env = roomy();
    let partition = env.partition(1);
    let mut reader = env.reader(&env.gate(&[env.address(&partition, 0)])).with_batch_bytes(1 << 20);
    let mut writer = writer(&partition);
    for part in 0..3 {
        writer.emit(&batch(part * 10, (part + 1) * 10, 8), &nothing).unwrap();
        writer.flush().unwrap();
    }
    let kept = reader.next(&nothing).unwrap();
    let stats = env.0.stats();
    assert_eq!((stats.pool.held, stats.pool.pinned), (0, 0));
    assert!(stats.copied_coalesced > 0 && stats.copied_pool_low == 0);
    assert!(matches!(kept, Some(Record::Batch(batch)) if keys(&batch).len() == 30));
    writer.finish().unwrap();
    assert!(reader.next(&nothing).unwrap().is_none());
}

#[test]
fn a_batch_may_be_larger_than_the_credit_of_the_channel() {
    let (producer, consumer) = (Env::new(8, SEGMENT), Env::new(4, SEGMENT));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = writer(&partition);
            writer.emit(&batch(0, 20_000, 8), &nothing).unwrap();
            writer.finish().unwrap();
        });
        drain(&mut consumer.reader(&gate).with_batch_bytes(100 * SEGMENT)).unwrap()
    });
    assert_eq!(seen, Vec::from_iter(0..20_000));
}

#[test]
fn a_single_or_large_page_is_not_copied() {
    let env = roomy();
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    let mut reader = env.reader(&gate).with_batch_bytes(SEGMENT);
    let mut writer = writer(&partition);
    let mut kept = Vec::new();
    for part in 0..3 {
        writer.emit(&batch(part, part + 1, 8), &nothing).unwrap();
        writer.flush().unwrap();
        kept.extend(reader.next(&nothing).unwrap());
    }
    writer.emit(&batch(0, 1000, 8), &nothing).unwrap();
    writer.finish().unwrap();
    let pinned = env.0.stats().pool.pinned;
    assert_eq!(pinned, 3, "each batch lies in its segment");
    while let Some(record) = reader.next(&nothing).unwrap() {
        kept.push(record);
    }
    // Only the last page may be small.
    assert!(env.0.stats().copied_coalesced < SEGMENT as u64 / 2);
    assert!(kept.len() > 5);
}
