//! The buffers that writers put into subpartitions, and the segments they take (spec 4.5, 5).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, drain, nothing, writer};
use headgate_exchange::{
    BufferTimeout, BytesWriter, ExchangeError, Record, RecordReader, ResultPartition,
};
use headgate_record::{Event, Selector};

const SEGMENT: usize = 64;

fn bytes_writer(partition: &Arc<ResultPartition>, selector: Selector) -> BytesWriter {
    BytesWriter::new(Arc::clone(partition), selector, RECORD_LIMIT).unwrap()
}

fn readers(env: &Env, partition: &ResultPartition) -> Vec<RecordReader> {
    let read = |index| {
        let gate = env.0.create_input_gate().unwrap();
        env.0.add_channel(&gate, &env.address(partition, index), [0; 32]).unwrap();
        gate.seal();
        RecordReader::new(gate, None, env.0.spanning_options(), Arc::clone(env.0.copies()))
    };
    (0..u32::try_from(partition.num_subpartitions()).unwrap()).map(read).collect()
}

/// Returns the rest of a subpartition: the bytes of records, and the names of events.
fn rest(reader: &mut RecordReader) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(record) = reader.next(&nothing).unwrap() {
        found.push(match record {
            Record::Bytes(bytes) => bytes.to_vec(),
            Record::Event { event: Event::Custom { name, .. }, .. } => name.into_bytes(),
            other => panic!("{other:?} was not emitted"),
        });
    }
    found
}

fn int(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn held(env: &Env) -> usize {
    env.0.stats().pool.held
}

#[test]
fn spec_5_01_a_broadcast_takes_one_buffer_for_all() {
    let ints: Vec<_> = (0..16).map(int).collect();
    let expected: Vec<_> = ints.iter().map(|int| int.to_vec()).collect();
    // Each record takes 4 + 4 bytes: 128 bytes fill two segments.
    for (shared, segments) in [(true, 2), (false, 8)] {
        let env = Env::new(32, SEGMENT);
        let partition = env.partition(4);
        let mut readers = readers(&env, &partition);
        let mut writer = bytes_writer(&partition, Selector::Broadcast);
        for int in &ints {
            if shared {
                writer.broadcast_emit(int, &nothing).unwrap();
            } else {
                for index in 0..4 {
                    writer.emit_to(index, int.clone(), &nothing).unwrap();
                }
            }
        }
        assert_eq!(held(&env), segments);
        writer.finish().unwrap();
        assert_eq!(held(&env), segments);
        assert_eq!((writer.counters().rows(), writer.counters().buffers()), (64, 8));
        assert!(readers.iter_mut().all(|reader| rest(reader) == expected));
    }
}

#[test]
fn spec_5_02_an_event_takes_no_buffer() {
    let env = Env::new(32, SEGMENT);
    let partition = env.partition(4);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    let event = Event::Custom { name: "mark".to_owned(), body: Bytes::new() };
    writer.broadcast_event(&event).unwrap();
    assert_eq!(held(&env), 0);
    writer.finish().unwrap();
    assert!(readers.iter_mut().all(|reader| rest(reader) == [b"mark"]));
}

#[test]
fn spec_5_02_an_event_follows_the_open_buffers() {
    let env = Env::new(32, SEGMENT);
    let partition = env.partition(3);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    let event = |name: &str| Event::Custom { name: name.to_owned(), body: Bytes::new() };
    writer.emit_to(1, int(1), &nothing).unwrap();
    writer.broadcast_event(&event("first")).unwrap();
    writer.broadcast_emit(&int(2), &nothing).unwrap();
    writer.broadcast_event(&event("second")).unwrap();
    writer.emit_to(0, int(3), &nothing).unwrap();
    writer.finish().unwrap();
    let (one, two, three) = (int(1).to_vec(), int(2).to_vec(), int(3).to_vec());
    let event = |name: &str| name.as_bytes().to_vec();
    let rest: Vec<_> = readers.iter_mut().map(rest).collect();
    assert_eq!(rest[0], [event("first"), two.clone(), event("second"), three]);
    assert_eq!(rest[1], [one, event("first"), two.clone(), event("second")]);
    assert_eq!(rest[2], [event("first"), two, event("second")]);
}

#[test]
fn spec_5_04_rounds_of_one_and_all_take_two_buffers_each() {
    const ROUNDS: u32 = 4;
    let env = Env::new(32, SEGMENT);
    let partition = env.partition(ROUNDS as usize);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    for round in 0..ROUNDS {
        writer.emit_to(round, int(100 + round), &nothing).unwrap();
        writer.broadcast_emit(&int(round), &nothing).unwrap();
        assert_eq!(held(&env), 2 * (round as usize + 1));
    }
    writer.finish().unwrap();
    // One record of each broadcast, and its own record before the broadcast of its round.
    for (chosen, reader) in (0..).zip(&mut readers) {
        let mut expected: Vec<_> = (0..ROUNDS).map(|round| int(round).to_vec()).collect();
        expected.insert(chosen as usize, int(100 + chosen).to_vec());
        assert_eq!(rest(reader), expected);
    }
}

#[test]
fn spec_5_04_random_emits_keep_the_order_of_broadcasts() {
    const ROUNDS: u32 = 60;
    let env = Env::new(200, SEGMENT);
    let partition = env.partition(3);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    let reading = thread::scope(|scope| {
        let reading: Vec<_> =
            readers.iter_mut().map(|reader| scope.spawn(move || rest(reader))).collect();
        for round in 0..ROUNDS {
            writer.random_emit(&int(2 * round), &nothing).unwrap();
            writer.broadcast_emit(&int(2 * round + 1), &nothing).unwrap();
        }
        writer.finish().unwrap();
        reading.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    let mut singles = 0;
    for found in reading {
        assert!(found.is_sorted());
        let (broadcast, single): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|int| int[3] % 2 == 1);
        assert_eq!(broadcast.len(), ROUNDS as usize);
        assert!(!single.is_empty(), "a subpartition gets nothing with a chance of (2/3)^60");
        singles += single.len();
    }
    assert_eq!(singles, ROUNDS as usize);
}

#[test]
fn spec_5_05_readers_of_a_shared_buffer_are_independent() {
    let env = Env::new(32, SEGMENT);
    let partition = env.partition(3);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    for number in 0..5 {
        writer.broadcast_emit(&int(number), &nothing).unwrap();
        writer.flush().unwrap();
        // The first reader takes the record while the shared buffer is still being written.
        let Some(Record::Bytes(bytes)) = readers[0].next(&nothing).unwrap() else {
            panic!("a record was flushed")
        };
        assert_eq!(bytes, int(number));
    }
    assert_eq!(held(&env), 1);
    writer.finish().unwrap();
    assert!(rest(&mut readers[0]).is_empty());
    let expected: Vec<_> = (0..5).map(|number| int(number).to_vec()).collect();
    assert_eq!(rest(&mut readers[2]), expected);
    assert_eq!(held(&env), 1, "the second reader still has the buffer");
    assert_eq!(rest(&mut readers[1]), expected);
}

#[test]
fn a_broadcast_row_wider_than_a_segment_shares_its_segments() {
    let env = Env::new(64, 4096);
    let partition = env.partition(4);
    let gates: Vec<_> = (0..4).map(|index| env.gate(&[env.address(&partition, index)])).collect();
    let mut writer = writer(&partition);
    writer.broadcast_emit(&batch(1, 2, 10), &nothing).unwrap();
    writer.broadcast_emit(&batch(2, 3, 40_000), &nothing).unwrap();
    writer.broadcast_emit(&batch(3, 4, 10), &nothing).unwrap();
    writer.finish().unwrap();
    // 40,000 bytes take ten segments for all subpartitions, with a page before and after them.
    assert!((12..=13).contains(&held(&env)), "{} segments", held(&env));
    for gate in gates {
        assert_eq!(drain(&mut env.reader(&gate)).unwrap(), [1, 2, 3]);
    }
}

#[test]
fn spec_4_10_nothing_is_emitted_after_the_end() {
    let env = Env::new(32, 4096);
    let (pages, bytes) = (env.partition(1), env.partition(1));
    let (mut pages, mut bytes) = (writer(&pages), bytes_writer(&bytes, Selector::Broadcast));
    let event = Event::Custom { name: "late".to_owned(), body: Bytes::new() };
    for _ in 0..2 {
        pages.finish().unwrap();
        bytes.finish().unwrap();
        for refused in [
            pages.emit(&batch(0, 1, 1), &nothing),
            pages.broadcast_emit(&batch(0, 1, 1), &nothing),
            pages.random_emit(&batch(0, 1, 1), &nothing),
            pages.broadcast_event(&event),
            bytes.emit(&int(0), &nothing),
            bytes.broadcast_emit(&int(0), &nothing),
            bytes.random_emit(&int(0), &nothing),
            bytes.emit_to(0, int(0), &nothing),
            bytes.broadcast_event(&event),
        ] {
            assert!(matches!(refused, Err(ExchangeError::Closed(_))), "{refused:?}");
        }
    }
}

#[test]
fn spec_4_10_records_for_released_subpartitions_are_dropped() {
    let env = Env::new(32, SEGMENT);
    let partition = env.partition(3);
    let mut readers = readers(&env, &partition);
    let mut writer = bytes_writer(&partition, Selector::Broadcast);
    writer.broadcast_emit(&int(1), &nothing).unwrap();
    partition.release_subpartition(0);
    writer.broadcast_emit(&int(2), &nothing).unwrap();
    writer.emit_to(0, int(3), &nothing).unwrap();
    writer.emit_to(1, int(4), &nothing).unwrap();
    partition.release_subpartition(2);
    partition.release_subpartition(1);
    for number in 5..200 {
        writer.broadcast_emit(&int(number), &nothing).unwrap();
    }
    drop(readers.drain(..));
    drop(writer);
    assert_eq!(held(&env), 0);
}

#[test]
fn spec_4_14_a_partition_is_released_with_its_last_consumer_and_each_counts_once() {
    for own_end in [false, true] {
        let env = Env::new(32, 4096);
        let partition = env.partition(2);
        let gates = [0, 1].map(|index| env.gate(&[env.address(&partition, index)]));
        let mut writer = writer(&partition);
        writer.emit(&batch(0, 100, 8), &nothing).unwrap();
        gates[0].close();
        partition.release_subpartition(0);
        assert!(!partition.is_released(), "the other consumer still reads");
        if own_end {
            writer.finish().unwrap();
            assert!(!drain(&mut env.reader(&gates[1])).unwrap().is_empty());
        }
        gates[1].close();
        assert!(partition.wait_consumed(Some(Duration::ZERO), &nothing).unwrap());
        assert!(partition.is_released(), "also while its writer is open");
        drop(writer);
        assert_eq!(held(&env), 0);
    }
}

#[test]
fn an_emit_that_waits_for_one_consumer_does_not_hold_back_another() {
    let env = Env::new(3, 4096);
    let partition = env.partition(2);
    let gates = [0, 1].map(|index| env.gate(&[env.address(&partition, index)]));
    let timeout = BufferTimeout::After(Duration::from_millis(20));
    let mut writer = writer(&partition).with_buffer_timeout(timeout, &env.0).unwrap();
    let waits = AtomicBool::new(false);
    let rows = batch(0, 4_000, 10);
    thread::scope(|scope| {
        let (partition, waits, rows) = (&partition, &waits, &rows);
        let writing = scope.spawn(move || {
            writer.emit_to(&batch(7, 8, 10), &[1], &nothing).unwrap();
            writer.emit_to(rows, &vec![0; 4_000], &nothing).unwrap();
            waits.store(true, Ordering::Release);
            writer.finish().unwrap();
        });
        let started = Instant::now();
        while partition.back_pressured_ns() == 0 {
            assert!(started.elapsed() < Duration::from_secs(30), "the writer never waited");
            thread::sleep(Duration::from_millis(1));
        }
        let mut eager = env.reader(&gates[1]);
        let Some(Record::Batch(batch)) = eager.next(&nothing).unwrap() else {
            panic!("a row was emitted")
        };
        assert_eq!(common::keys(&batch), [7]);
        drop(batch);
        assert!(!waits.load(Ordering::Acquire), "the first consumer has read nothing yet");
        let read = drain(&mut env.reader(&gates[0])).unwrap();
        assert_eq!(read, Vec::from_iter(0..4_000));
        writing.join().unwrap();
    });
}
