//! Back-pressure: when a writer waits, and how many segments it may hold by then (spec 1.5, 1.7).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{
    Env, RECORD_LIMIT, batch, config, drain, keys, nothing, page_schema, wait_until, writer,
};
use headgate_exchange::{
    ArrowWriter, AvailabilityListener, BufferOptions, BytesWriter, DataInput, DataType,
    ExchangeError, Record, ResultPartition,
};
use headgate_record::{Event, Selector};

fn env(segments: usize, buffers: BufferOptions) -> Env {
    Env::with(headgate_exchange::Config { buffers, ..config(segments, 4096) })
}

/// An interrupt that ends the first wait.
fn stop() -> Result<(), ExchangeError> {
    Err(ExchangeError::Interrupted("the test".to_owned()))
}

/// A partition without room, and its writer.
fn full() -> (Env, Arc<ResultPartition>, ArrowWriter) {
    let buffers = BufferOptions { max_buffers_per_channel: 1, ..BufferOptions::default() };
    let env = env(32, buffers);
    let partition = env.partition(1);
    let mut writer = writer(&partition);
    for _ in 0..2 {
        writer.emit(&batch(0, 10, 8), &nothing).unwrap();
        writer.flush().unwrap();
    }
    (env, partition, writer)
}

#[test]
fn a_batch_that_was_begun_may_overdraw() {
    for max_overdraft_buffers in [0, 3] {
        let buffers = BufferOptions {
            buffers_per_channel: 1,
            floating_buffers_per_gate: 1,
            max_overdraft_buffers,
            ..BufferOptions::default()
        };
        let env = env(32, buffers);
        let partition = env.partition(1);
        let mut writer = writer(&partition);
        let waits = writer.emit(&batch(0, 5_000, 20), &stop).unwrap_err();
        assert!(matches!(waits, ExchangeError::Interrupted(_)));
        // Two segments beside the open one, and the overdraft.
        assert_eq!(env.0.stats().pool.held, 3 + max_overdraft_buffers);
        assert!(!partition.is_available());
    }
}

#[test]
fn spec_section_4_5_a_buffer_that_was_cut_short_is_extended_before_a_record_waits() {
    let buffers = BufferOptions {
        buffers_per_channel: 1,
        floating_buffers_per_gate: 1,
        max_overdraft_buffers: 0,
        ..BufferOptions::default()
    };
    let env = env(32, buffers);
    let partition = env.partition(1);
    let gate = env.0.create_input_gate().unwrap();
    env.0.add_channel(&gate, &env.address(&partition, 0), [0; 32]).unwrap();
    gate.announce_buffer_size(NonZeroU32::new(100).unwrap());
    let selector = Selector::Broadcast;
    let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
    // A record and its length take 64 bytes: the fifth begins in the last of three segments.
    let record = Bytes::from(vec![1; 60]);
    for _ in 0..5 {
        writer.emit_to(0, record.clone(), &stop).unwrap();
    }
    let sixth = writer.emit_to(0, record, &stop).unwrap_err();
    assert!(matches!(sixth, ExchangeError::Interrupted(_)), "{sixth}");
    let sizes = [(); 3].map(|()| gate.next(&nothing).unwrap().unwrap().buffer.len());
    assert_eq!(sizes, [100, 100, 120]);
    gate.close();
}

#[test]
fn a_batch_is_not_begun_while_one_subpartition_has_too_many_queued() {
    let buffers = BufferOptions {
        max_buffers_per_channel: 2,
        max_overdraft_buffers: 0,
        ..BufferOptions::default()
    };
    let env = env(32, buffers);
    let partition = env.partition(2);
    let mut writer = writer(&partition);
    let mut emit_to = |subpartition: u32, interrupt| {
        writer
            .emit_to(&batch(0, 10, 8), &[subpartition; 10], interrupt)
            .and_then(|()| writer.flush())
    };
    for _ in 0..3 {
        assert!(partition.is_available());
        emit_to(0, &stop).unwrap();
    }
    assert!(!partition.is_available(), "two segments are queued beside the open one");
    assert!(!partition.wait_available(Some(Duration::from_millis(1)), &nothing).unwrap());
    let waits = emit_to(1, &stop).unwrap_err();
    assert!(matches!(waits, ExchangeError::Interrupted(_)));
    assert!(partition.back_pressured_ns() > 0);
    let gates = [0, 1].map(|index| env.gate(&[env.address(&partition, index)]));
    let mut reader = env.reader(&gates[0]);
    assert!(reader.next(&nothing).unwrap().is_some());
    assert!(partition.wait_available(None, &nothing).unwrap());
    emit_to(1, &stop).unwrap();
    writer.finish().unwrap();
    assert_eq!(drain(&mut reader).unwrap().len(), 20);
    // The interrupted batch was not begun, so none of it was emitted.
    assert_eq!(drain(&mut env.reader(&gates[1])).unwrap().len(), 10);
}

/// Buffers of which a channel may have one, and queue one beside the open one.
const TIGHT: BufferOptions = BufferOptions {
    buffers_per_channel: 1,
    floating_buffers_per_gate: 1,
    max_buffers_per_channel: 1,
    max_overdraft_buffers: 0,
};

fn writer_by_load(partition: &Arc<ResultPartition>) -> ArrowWriter {
    let selector = Selector::LeastLoaded { next: 0 };
    ArrowWriter::new(Arc::clone(partition), page_schema(), selector, RECORD_LIMIT).unwrap()
}

#[test]
fn a_writer_by_load_passes_over_a_consumer_that_does_not_read() {
    // In another process a floating buffer takes the place of one that is not read, and its credit
    // comes back at once.
    for (is_remote, hidden) in [(false, 0_usize), (true, 1)] {
        let (producer, other) = (env(32, TIGHT), env(32, TIGHT));
        let consumer = if is_remote { &other } else { &producer };
        let partition = producer.partition(3);
        let mut writer = writer_by_load(&partition);
        let gates = [0, 1, 2].map(|index| consumer.gate(&[producer.address(&partition, index)]));
        let mut readers = gates.each_ref().map(|gate| consumer.reader(gate));
        let (mut unread, mut turn) = (0_usize, 0);
        for number in 0..30 {
            let index = if turn == 0 && unread > hidden { 1 } else { turn };
            turn = (index + 1) % 3;
            writer.emit(&batch(10 * number, 10 * number + 10, 8), &nothing).unwrap();
            writer.flush().unwrap();
            if index == 0 {
                unread += 1;
            } else {
                let Some(Record::Batch(rows)) = readers[index].next(&nothing).unwrap() else {
                    panic!("a batch was written")
                };
                assert_eq!(keys(&rows)[0], 10 * number);
            }
            let loads = [unread.saturating_sub(hidden), 0, 0];
            wait_until("the credit is back", || partition.loads() == loads);
        }
        assert_eq!(unread, hidden + 1);
        writer.finish().unwrap();
        let left = readers.map(|mut reader| drain(&mut reader).unwrap().len());
        assert_eq!(left, [10 * unread, 0, 0]);
    }
}

#[test]
fn a_writer_by_load_waits_only_while_no_consumer_reads() {
    let env = env(32, TIGHT);
    let partition = env.partition(2);
    let gates = [0, 1].map(|index| env.gate(&[env.address(&partition, index)]));
    let mut writer = writer_by_load(&partition);
    let mut emit = |number: i64| {
        let rows = batch(10 * number, 10 * number + 10, 8);
        writer.emit(&rows, &stop).and_then(|()| writer.flush())
    };
    for number in 0..4 {
        emit(number).unwrap();
    }
    assert!(!partition.is_available(), "each subpartition has two");
    assert!(matches!(emit(4).unwrap_err(), ExchangeError::Interrupted(_)));
    let mut reader = env.reader(&gates[1]);
    for number in 4..20 {
        assert!(reader.next(&nothing).unwrap().is_some());
        assert!(partition.is_available(), "the first subpartition has two, the second one");
        emit(number).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(drain(&mut env.reader(&gates[0])).unwrap().len(), 20);
    assert_eq!(drain(&mut reader).unwrap().len(), 20);
}

#[test]
fn a_writer_by_load_writes_to_those_that_read_once_a_consumer_is_gone() {
    let env = env(32, TIGHT);
    let partition = env.partition(2);
    let gates = [0, 1].map(|index| env.gate(&[env.address(&partition, index)]));
    gates[0].close();
    let mut writer = writer_by_load(&partition);
    let mut reader = env.reader(&gates[1]);
    for number in 0..5 {
        writer.emit(&batch(number, number + 1, 8), &stop).unwrap();
        writer.flush().unwrap();
        assert!(reader.next(&nothing).unwrap().is_some());
    }
    writer.finish().unwrap();
    assert!(drain(&mut reader).unwrap().is_empty());
}

#[test]
fn a_wake_up_and_a_priority_event_of_the_input_end_the_wait_and_no_emit() {
    let (env, partition, mut writer) = full();
    partition.wake_up();
    assert!(matches!(writer.emit(&batch(0, 10, 8), &stop), Err(ExchangeError::Interrupted(_))));
    assert!(!partition.wait_available(None, &nothing).unwrap(), "it was woken");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| partition.wait_available(None, &nothing));
        partition.wake_up();
        assert!(!waiting.join().unwrap().unwrap());
    });
    let source = env.partition(1);
    let gate = env.gate(&[env.address(&source, 0)]);
    let listener: Arc<dyn AvailabilityListener> = Arc::<ResultPartition>::clone(&partition);
    gate.add_listener(Arc::downgrade(&listener));
    let event = Event::Custom { name: "first".to_owned(), body: Bytes::new() };
    let mut source = common::writer(&source);
    source.broadcast_event_as(&event, DataType::PrioritizedEventBuffer).unwrap();
    assert!(!partition.wait_available(None, &nothing).unwrap(), "the event woke it");
}

#[test]
fn a_wait_ends_with_the_failure_of_the_partition() {
    let (_env, partition, _writer) = full();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| partition.wait_available(None, &nothing));
        partition.fail(&ExchangeError::Aborted("disk on fire".to_owned()));
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, ExchangeError::Aborted(text) if text == "disk on fire"));
    });
}

#[test]
fn a_soft_limit_of_one_lets_every_row_through() {
    let buffers = BufferOptions {
        buffers_per_channel: 1,
        floating_buffers_per_gate: 1,
        max_buffers_per_channel: 1,
        max_overdraft_buffers: 0,
    };
    let (producer, consumer) = (env(12, buffers), env(12, buffers));
    let partition = producer.partition(4);
    thread::scope(|scope| {
        let mut readings = Vec::new();
        for index in 0..4 {
            let reading = if index % 2 == 0 { &producer } else { &consumer };
            let gate = reading.gate(&[producer.address(&partition, index)]);
            readings.push(scope.spawn(move || drain(&mut reading.reader(&gate)).unwrap().len()));
        }
        let mut writer = writer(&partition);
        for number in 0..200 {
            writer.emit(&batch(number * 50, (number + 1) * 50, 30), &nothing).unwrap();
        }
        writer.finish().unwrap();
        let rows: usize = readings.into_iter().map(|reading| reading.join().unwrap()).sum();
        assert_eq!(rows, 10_000);
    });
}

#[test]
fn spec_1_13_a_channel_has_the_exclusive_segments_of_its_option_or_those_that_are_left() {
    let producer = Env::new(32, 4096);
    let partition = producer.partition(3);
    let buffers = BufferOptions { buffers_per_channel: 4, ..BufferOptions::default() };
    // Segments for four channels of four, and eight floating ones. The last channel gets the rest.
    let consumer = env(18, buffers);
    let gate = consumer.0.create_input_gate().unwrap();
    for index in 0..3 {
        let address = producer.address(&partition, index);
        consumer.0.add_channel(&gate, &address, page_schema().hash()).unwrap();
    }
    let stats = consumer.0.stats();
    let credits: Vec<_> = stats.gates[0].channels.iter().map(|channel| channel.credit).collect();
    assert_eq!(credits, [Some(4), Some(4), Some(2)]);
}
