//! Messages from consumers to producers, over both kinds of channel.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, config, nothing, page_schema, writer};
use headgate_exchange::{
    Address, ArrowWriter, BufferOptions, BytesWriter, CheckpointedInput, Config, DataInput,
    DataType, ExchangeError, InputGate, PartitionId, PartitionOptions, ResultPartition,
};
use headgate_record::Selector;

const CLEAR_END: DataType = DataType::DataBufferWithClearEnd;

fn next_size(gate: &InputGate) -> Option<(DataType, usize)> {
    let received = gate.next(&nothing).unwrap()?;
    Some((received.data_type, received.buffer.len()))
}

/// Reads the remaining data buffers and returns their sizes.
fn sizes(gate: &InputGate) -> Vec<usize> {
    let all = std::iter::from_fn(|| next_size(gate));
    all.filter(|(data_type, _)| data_type.is_buffer()).map(|(_, size)| size).collect()
}

/// Waits for an event from each gate: messages that were sent before it have arrived then.
fn come(partition: &ResultPartition, gates: &[Arc<InputGate>]) {
    for gate in gates {
        gate.send_task_event("said", Bytes::new()).unwrap();
    }
    for _ in gates {
        while partition.task_events().take().is_none() {
            nothing().unwrap();
            std::thread::yield_now();
        }
    }
}

/// An environment whose partitions hold many small pages without a reader.
fn roomy() -> Env {
    let buffers = BufferOptions {
        floating_buffers_per_gate: 64,
        max_buffers_per_channel: 100,
        ..BufferOptions::default()
    };
    Env::with(Config { buffers, ..config(128, 4096) })
}

fn writer_to_all(partition: &Arc<ResultPartition>) -> ArrowWriter {
    let partition = Arc::clone(partition);
    ArrowWriter::new(partition, page_schema(), Selector::Broadcast, RECORD_LIMIT).unwrap()
}

#[test]
fn spec_4_11_buffers_have_the_size_that_their_consumer_announced() {
    for local in [true, false] {
        let (producer, other) = (Env::new(16, 4096), Env::new(16, 4096));
        let consumer = if local { &producer } else { &other };
        let partition = producer.partition(2);
        partition.task_events().subscribe("said").unwrap();
        let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
        let gates = [0, 1].map(|index| {
            let gate = consumer.0.create_input_gate().unwrap();
            let address = producer.address(&partition, index);
            consumer.0.add_channel(&gate, &address, [0; 32]).unwrap();
            gate.seal();
            gate
        });
        for (gate, size) in gates.iter().zip([10, 6]) {
            gate.announce_buffer_size(NonZeroU32::new(size).unwrap());
        }
        come(&partition, &gates);
        // With its length prefix a record of 2 bytes takes 6, one of 10 takes 14, one of 20 takes 24.
        for size in [2, 2, 10, 10, 20, 20] {
            writer.emit(&Bytes::from(vec![1; size]), &nothing).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(sizes(&gates[0]), [10, 10, 24], "10 bytes are announced");
        assert_eq!(
            sizes(&gates[1]),
            [6, 14, 24],
            "6 bytes are announced: the first record fits whole"
        );
        assert!(partition.wait_consumed(None, &nothing).unwrap());
    }
}

#[test]
fn spec_4_11_pages_have_the_size_that_their_consumer_announced() {
    for local in [true, false] {
        let (producer, other) = (roomy(), roomy());
        let consumer = if local { &producer } else { &other };
        let partition = producer.partition(1);
        partition.task_events().subscribe("said").unwrap();
        let mut writer = writer(&partition);
        let gate = consumer.gate(&[producer.address(&partition, 0)]);
        let announce = |size| {
            gate.announce_buffer_size(NonZeroU32::new(size).unwrap());
            come(&partition, &[Arc::clone(&gate)]);
        };
        writer.emit(&batch(0, 1, 8), &nothing).unwrap();
        announce(1_000);
        // The open page is not cut; those behind it have the announced size.
        writer.emit(&batch(1, 400, 8), &nothing).unwrap();
        writer.flush().unwrap();
        // Rows that are wider than the announced size, and one that is wider than a segment.
        writer.emit(&batch(1, 3, 2_000), &nothing).unwrap();
        writer.emit(&batch(1, 2, 5_000), &nothing).unwrap();
        announce(u32::MAX);
        writer.emit(&batch(1, 200, 8), &nothing).unwrap();
        writer.finish().unwrap();
        let pages = std::iter::from_fn(|| next_size(&gate)).filter(|(kind, _)| kind.is_buffer());
        let pages: Vec<_> = pages.collect();
        let whole = |from: usize, to: usize| {
            assert!(pages[from..to].iter().all(|(kind, _)| *kind == CLEAR_END), "{pages:?}");
            pages[from..to].iter().map(|(_, size)| *size).collect::<Vec<_>>()
        };
        let spanning = pages.iter().position(|(kind, _)| *kind == DataType::DataBuffer).unwrap();
        let sizes = whole(0, spanning);
        let (small, wide) = sizes[1..].split_at(sizes.len() - 3);
        assert!(sizes[0] > 3_000, "{sizes:?}");
        assert!(small.len() > 3 && small.iter().all(|size| *size <= 1_000), "{sizes:?}");
        assert!(wide.iter().all(|size| (2_000..3_000).contains(size)), "{sizes:?}");
        assert_eq!(pages[spanning + 1].0, DataType::DataBuffer);
        assert!(whole(spanning + 2, pages.len())[0] > 3_000, "{pages:?}");
    }
}

#[test]
fn spec_12_05_a_buffer_size_is_announced_to_later_channels_and_not_to_ended_ones() {
    for local in [true, false] {
        for early in [true, false] {
            let (producer, other) = (roomy(), roomy());
            let consumer = if local { &producer } else { &other };
            let id = PartitionId([5; 16]);
            let options = PartitionOptions { id: Some(id), ..PartitionOptions::all(2) };
            let create = || {
                let partition = producer.0.create_result_partition(&options).unwrap();
                partition.task_events().subscribe("said").unwrap();
                partition
            };
            let place = producer.0.address().unwrap();
            let open = |subpartition| {
                let gate = consumer.0.create_input_gate().unwrap();
                gate.announce_buffer_size(NonZeroU32::new(500).unwrap());
                let address = Address {
                    host: place.ip().to_string(),
                    port: place.port(),
                    process: producer.0.process(),
                    partition: id,
                    subpartition,
                };
                consumer.0.add_channel(&gate, &address, [0; 32]).unwrap();
                gate
            };
            let (partition, gates) = if early {
                // The channels wait for their partition.
                let gates = [open(0), open(1)];
                (create(), gates)
            } else {
                (create(), [open(0), open(1)])
            };
            come(&partition, &gates);
            gates[1].close();
            gates[1].announce_buffer_size(NonZeroU32::MIN);
            let mut writer = writer_to_all(&partition);
            writer.emit(&batch(0, 80, 8), &nothing).unwrap();
            writer.finish().unwrap();
            gates[0].seal();
            let sizes = sizes(&gates[0]);
            assert!(sizes.len() > 5 && sizes.iter().all(|size| *size <= 500), "{sizes:?}");
            assert!(sizes[0] > 100, "the closed gate's buffer size has no effect: {sizes:?}");
        }
    }
}

#[test]
fn a_closed_gate_sends_no_messages() {
    let env = Env::new(16, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    gate.close();
    gate.announce_buffer_size(NonZeroU32::MIN);
    let sent = gate.send_task_event("late", Bytes::new());
    assert!(matches!(sent, Err(ExchangeError::Closed(_))), "{sent:?}");
    assert!(gate.resume_consumption(0).is_err());
}
