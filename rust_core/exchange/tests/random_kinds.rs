//! Random emits, flushes, reads and attach times over all kinds and links, compared with a model.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, nothing};
use headgate_exchange::{
    BytesWriter, Codec, PartitionKind, PartitionOptions, Record, RecordReader, ResultPartition,
};
use headgate_record::{Event, Selector};
use proptest::prelude::*;

/// One step of a writer.
#[derive(Debug, Clone)]
enum Step {
    /// A record of this many bytes to one subpartition, taken modulo their number.
    Emit(u32, usize),
    Broadcast(usize),
    Event,
    Flush,
    /// A pause for the readers.
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u32>(), 4_usize..3_000).prop_map(|(to, len)| Step::Emit(to, len)),
        // Larger than a segment.
        1 => (any::<u32>(), 4_000_usize..20_000).prop_map(|(to, len)| Step::Emit(to, len)),
        2 => (4_usize..3_000).prop_map(Step::Broadcast),
        1 => Just(Step::Event),
        2 => Just(Step::Flush),
        1 => Just(Step::Pause),
    ]
}

fn kind() -> impl Strategy<Value = PartitionKind> {
    prop_oneof![
        1 => Just(PartitionKind::Pipelined),
        1 => Just(PartitionKind::PipelinedBounded),
        2 => Just(PartitionKind::Blocking),
        3 => Just(PartitionKind::Hybrid),
    ]
}

/// The records of a subpartition in the model: number and length of each. An event has no length.
type Seen = Vec<(u32, Option<usize>)>;

/// Returns the records that each subpartition must get.
fn model(steps: &[Step], count: u32) -> Vec<Seen> {
    let mut lanes = vec![Seen::new(); count as usize];
    for (number, step) in (0..).zip(steps) {
        match step {
            Step::Emit(to, len) => lanes[(to % count) as usize].push((number, Some(*len))),
            Step::Broadcast(len) => {
                lanes.iter_mut().for_each(|lane| lane.push((number, Some(*len))))
            }
            Step::Event => lanes.iter_mut().for_each(|lane| lane.push((number, None))),
            Step::Flush | Step::Pause => {}
        }
    }
    lanes
}

fn record(number: u32, len: usize) -> Bytes {
    let fill = number.to_le_bytes();
    fill.iter().copied().cycle().take(len).collect()
}

fn write(partition: &Arc<ResultPartition>, steps: &[Step], count: u32) {
    let selector = Selector::Broadcast;
    let mut writer = BytesWriter::new(Arc::clone(partition), selector, RECORD_LIMIT).unwrap();
    for (number, step) in (0..).zip(steps) {
        match step {
            Step::Emit(to, len) => {
                writer.emit_to(to % count, record(number, *len), &nothing).unwrap();
            }
            Step::Broadcast(len) => writer.broadcast_emit(&record(number, *len), &nothing).unwrap(),
            Step::Event => {
                let body = Bytes::from(number.to_le_bytes().to_vec());
                writer.broadcast_event(&Event::Custom { name: "e".to_owned(), body }).unwrap();
            }
            Step::Flush => writer.flush().unwrap(),
            Step::Pause => thread::sleep(Duration::from_millis(2)),
        }
    }
    writer.finish().unwrap();
}

fn read(mut reader: RecordReader, slow: bool) -> Seen {
    let mut seen = Seen::new();
    while let Some(got) = reader.next(&nothing).unwrap() {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        match got {
            Record::Bytes(bytes) => {
                assert_eq!(bytes, record(number(&bytes), bytes.len()));
                seen.push((number(&bytes), Some(bytes.len())));
            }
            Record::Event { event: Event::Custom { body, .. }, .. } => {
                seen.push((number(&body), None))
            }
            other => panic!("{other:?}"),
        }
        if slow && seen.len().is_multiple_of(8) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    seen
}

/// Opens a channel and its reader after a delay in milliseconds.
fn open(
    env: &Env,
    from: &Env,
    partition: &ResultPartition,
    index: u32,
    after: u64,
) -> RecordReader {
    thread::sleep(Duration::from_millis(after));
    let gate = env.0.create_input_gate().unwrap();
    env.0.add_channel(&gate, &from.address(partition, index), [0; 32]).unwrap();
    gate.seal();
    RecordReader::new(gate, None, env.0.spanning_options(), Arc::clone(env.0.copies()))
}

proptest! {
    #[test]
    fn every_kind_delivers_the_records_of_the_model(
        kind in kind(),
        compression in prop::option::of(prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)]),
        local in any::<bool>(),
        count in 1_u32..4,
        steps in prop::collection::vec(step(), 0..120),
        attach in prop::collection::vec(0_u64..12, 3),
        slow in any::<bool>(),
        times in 1_usize..4,
        spare in 0_usize..6,
    ) {
        let size = 4096;
        let producer = Env::new(2 + 2 * count as usize + spare, size);
        let other = Env::new(count as usize * 3 + spare, size);
        let consumer = if local { &producer } else { &other };
        let options = PartitionOptions { kind, compression, ..PartitionOptions::all(count as usize) };
        let partition = producer.0.create_result_partition(&options).unwrap();
        let expected = model(&steps, count);
        let is_blocking = kind == PartitionKind::Blocking;
        let times = if is_blocking { times } else { 1 };
        thread::scope(|scope| {
            let writing = scope.spawn(|| write(&partition, &steps, count));
            if is_blocking {
                writing.join().unwrap();
            }
            let mut readers = Vec::new();
            for index in 0..count {
                for _ in 0..times {
                    let after = attach[index as usize];
                    let (partition, producer) = (&partition, &producer);
                    readers.push((index, scope.spawn(move || {
                        read(open(consumer, producer, partition, index, after), slow)
                    })));
                }
            }
            for (index, reader) in readers {
                assert_eq!(reader.join().unwrap(), expected[index as usize], "{kind:?} {index}");
            }
        });
        prop_assert!(partition.wait_consumed(Some(Duration::from_secs(30)), &nothing).unwrap());
        producer.0.release_partition(partition.id());
    }
}
