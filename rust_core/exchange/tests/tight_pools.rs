//! Channels that are added while no segment is free (spec 1.7, 8.4, 8.7). All in one thread: a call
//! that waited for segments would wait for ever.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;

use common::{Env, batch, drain, nothing, page_schema, wait_until, writer};
use headgate_exchange::{
    Address, ArrowWriter, CheckpointedInput, ExchangeError, InputGate, PartitionOptions, Record,
    ResultPartition,
};
use headgate_protocol::DataType;
use headgate_record::Event;

/// Writes `rows` pages of one row each.
fn pages(writer: &mut ArrowWriter, rows: i64) {
    for row in 0..rows {
        writer.emit(&batch(row, row + 1, 10), &nothing).unwrap();
        writer.flush().unwrap();
    }
}

fn write(partition: &Arc<ResultPartition>, rows: i64) {
    let mut writer = writer(partition);
    pages(&mut writer, rows);
    writer.finish().unwrap();
}

/// Creates a partition of one subpartition with `rows` pages. Returns it and its address.
fn written(env: &Env, rows: i64) -> (Arc<ResultPartition>, Address) {
    let partition = env.partition(1);
    write(&partition, rows);
    let address = env.address(&partition, 0);
    (partition, address)
}

fn add(env: &Env, gate: &InputGate, address: &Address) -> Result<usize, ExchangeError> {
    env.0.add_channel(gate, address, page_schema().hash())
}

fn fill(consumer: &Env, gate: &InputGate, address: &Address, segments: usize) {
    add(consumer, gate, address).unwrap();
    wait_until("the gate has them", || {
        consumer.0.stats().gates[0].channels[0].queue.buffers == segments
    });
}

#[test]
fn a_channel_is_added_while_unread_data_of_its_gate_holds_all_segments() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(3, 4096));
    let (_one, first) = written(&producer, 9);
    let (_two, second) = written(&producer, 9);
    let gate = consumer.0.create_input_gate().unwrap();
    fill(&consumer, &gate, &first, 3);
    assert_eq!(add(&consumer, &gate, &second).unwrap(), 1);
    assert_eq!(
        consumer.0.stats().gates[0].channels[1].credit,
        Some(0),
        "there was nothing to give"
    );
    gate.seal();
    let mut keys = drain(&mut consumer.reader(&gate)).unwrap();
    keys.sort_unstable();
    assert_eq!(keys, (0..9).flat_map(|row| [row, row]).collect::<Vec<_>>());
}

#[test]
fn a_channel_is_added_while_a_partition_of_its_process_holds_all_segments() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(5, 4096));
    let (_own, here) = written(&consumer, 5);
    assert_eq!(consumer.0.stats().pool.held, 5);
    let (_other, there) = written(&producer, 9);
    let gate = consumer.0.create_input_gate().unwrap();
    add(&consumer, &gate, &there).unwrap();
    gate.seal();
    let local = consumer.gate(&[here]);
    assert_eq!(drain(&mut consumer.reader(&local)).unwrap(), (0..5).collect::<Vec<_>>());
    assert_eq!(drain(&mut consumer.reader(&gate)).unwrap(), (0..9).collect::<Vec<_>>());
}

#[test]
fn missing_exclusive_segments_come_before_the_backlog_of_others() {
    let (producer, consumer) = (Env::new(256, 4096), Env::new(4, 4096));
    let (_endless, first) = written(&producer, 9);
    let gate = consumer.0.create_input_gate().unwrap();
    fill(&consumer, &gate, &first, 4);
    let (_one, second) = written(&producer, 1);
    let (_two, third) = written(&producer, 1);
    for address in [&second, &third] {
        add(&consumer, &gate, address).unwrap();
    }
    gate.seal();
    let mut reader = consumer.reader(&gate);
    for _ in 0..3 {
        assert!(reader.next(&nothing).unwrap().is_some());
    }
    // Three segments became free. Each channel gets one, though the first has a backlog.
    wait_until("each channel has something", || {
        consumer.0.stats().gates[0].channels.iter().all(|channel| channel.queue.buffers > 0)
    });
    assert_eq!(drain(&mut reader).unwrap().len(), 9 + 2 - 3);
}

#[test]
fn a_promise_ends_with_its_channel_even_if_its_segments_are_missing() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(3, 4096));
    let (_one, first) = written(&producer, 9);
    let partitions: Vec<_> = (0..3).map(|_| written(&producer, 1)).collect();
    let gate = consumer.0.create_input_gate().unwrap();
    fill(&consumer, &gate, &first, 3);
    for (_, address) in &partitions[..2] {
        add(&consumer, &gate, address).unwrap();
    }
    let refused = add(&consumer, &gate, &partitions[2].1).unwrap_err();
    assert!(matches!(refused, ExchangeError::PoolTooSmall { .. }), "{refused}");
    let all = PartitionOptions::all(2);
    assert!(consumer.0.create_result_partition(&all).is_err(), "each channel has its promise");
    gate.close();
    assert_eq!(consumer.0.stats().pool.held, 0);
    consumer.0.create_result_partition(&all).unwrap();
}

/// The consumer aligns barriers: it resumes no channel before it has read the barriers of all. So a channel
/// that waits behind its barrier must hold no segment that another one is owed.
#[test]
fn a_channel_behind_a_barrier_holds_no_segment_that_another_one_is_owed() {
    let (producer, consumer) = (Env::new(64, 4096), Env::new(4, 4096));
    let partitions = [producer.partition(1), producer.partition(1)];
    for (partition, before) in partitions.iter().zip([0, 4]) {
        let mut writer = writer(partition);
        pages(&mut writer, before);
        // The header of an event says how much data follows it.
        writer.broadcast_event(&event("event")).unwrap();
        let barrier = DataType::AlignedCheckpointBarrier;
        writer.broadcast_event_as(&event("barrier"), barrier).unwrap();
        pages(&mut writer, 5);
        writer.finish().unwrap();
    }
    let gate = consumer.0.create_input_gate().unwrap();
    let mut reader = consumer.reader(&gate);
    let mut names = || match reader.next(&nothing).unwrap() {
        Some(Record::Event { event: Event::Custom { name, .. }, .. }) => name,
        Some(Record::Batch(_)) => "batch".to_owned(),
        other => panic!("{other:?}"),
    };
    add(&consumer, &gate, &producer.address(&partitions[0], 0)).unwrap();
    assert_eq!([names(), names()], ["event", "barrier"]);
    add(&consumer, &gate, &producer.address(&partitions[1], 0)).unwrap();
    gate.seal();
    let read: Vec<_> = (0..6).map(|_| names()).collect();
    assert_eq!(read, ["batch", "batch", "batch", "batch", "event", "barrier"]);
    (0..2).for_each(|channel| gate.resume_consumption(channel).unwrap());
    assert_eq!(drain(&mut reader).unwrap().len(), 10);
}

fn event(name: &str) -> Event {
    Event::Custom { name: name.to_owned(), body: "".into() }
}
