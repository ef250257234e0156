//! Every kind of partition over every link: the same rows and events in the same order, once.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, drain, nothing, writer};
use headgate_exchange::{
    BytesWriter, DataType, ExchangeError, InputGate, PartitionKind, PartitionOptions, Record,
    RecordReader, ResultPartition,
};
use headgate_record::{Event, Selector};

const KINDS: [PartitionKind; 4] = [
    PartitionKind::Pipelined,
    PartitionKind::PipelinedBounded,
    PartitionKind::Blocking,
    PartitionKind::Hybrid,
];

/// A producer's and a consumer's environment: one, or two with a connection between them.
struct Link {
    producer: Env,
    consumer: Option<Env>,
}

impl Link {
    fn all(segments: usize) -> [Self; 2] {
        let env = || Env::new(segments, 4096);
        [Self { producer: env(), consumer: None }, Self { producer: env(), consumer: Some(env()) }]
    }

    fn consumer(&self) -> &Env {
        self.consumer.as_ref().unwrap_or(&self.producer)
    }

    fn partition(&self, kind: PartitionKind, count: usize) -> Arc<ResultPartition> {
        let options = PartitionOptions::all(count).of_kind(kind);
        self.producer.0.create_result_partition(&options).unwrap()
    }

    fn gate(&self, partition: &ResultPartition, index: u32) -> Arc<InputGate> {
        self.consumer().gate(&[self.producer.address(partition, index)])
    }

    fn bytes_reader(&self, partition: &ResultPartition, index: u32) -> RecordReader {
        let gate = self.consumer().0.create_input_gate().unwrap();
        let address = self.producer.address(partition, index);
        self.consumer().0.add_channel(&gate, &address, [0; 32], &nothing).unwrap();
        gate.seal();
        let copies = Arc::clone(self.consumer().0.copies());
        RecordReader::new(gate, None, RECORD_LIMIT, copies)
    }
}

fn write_rows(partition: &Arc<ResultPartition>, rows: i64) {
    let mut writer = writer(partition);
    for from in (0..rows).step_by(500) {
        writer.emit(&batch(from, (from + 500).min(rows), 40), &nothing).unwrap();
    }
    writer.finish().unwrap();
}

fn consumed(partition: &ResultPartition) {
    assert!(partition.wait_consumed(Some(Duration::from_secs(30)), &nothing).unwrap());
}

#[test]
fn every_kind_over_every_link_delivers_every_row_once_and_in_order() {
    for kind in KINDS {
        for link in Link::all(24) {
            let partition = link.partition(kind, 2);
            let read = |index| {
                let gate = link.gate(&partition, index);
                let keys = drain(&mut link.consumer().reader(&gate)).unwrap();
                assert!(keys.is_sorted(), "{kind:?}");
                keys
            };
            let mut keys = thread::scope(|scope| {
                let writing = scope.spawn(|| write_rows(&partition, 20_000));
                if kind == PartitionKind::Blocking {
                    writing.join().unwrap();
                }
                let readers = [0, 1].map(|index| scope.spawn(move || read(index)));
                readers.map(|reader| reader.join().unwrap()).concat()
            });
            keys.sort_unstable();
            assert_eq!(keys, Vec::from_iter(0..20_000), "{kind:?}");
            consumed(&partition);
        }
    }
}

#[test]
fn spec_4_13_a_blocking_partition_is_read_when_it_is_finished_and_as_often_as_one_likes() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 2);
        let selector = Selector::RoundRobin { next: 0 };
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
        for (number, index) in [0, 0, 1, 0, 1, 0].into_iter().enumerate() {
            let record = Bytes::from(vec![u8::try_from(number).unwrap(); 10]);
            writer.emit_to(index, record, &nothing).unwrap();
            writer.flush();
        }
        let early = link.bytes_reader_error(&partition);
        assert!(early.to_string().contains("before its writer has finished"), "{early}");
        assert!(matches!(early, ExchangeError::PartitionNotFound { .. }), "{early}");
        writer.finish().unwrap();
        for _ in 0..2 {
            for (index, expected) in [(0, 4), (1, 2)] {
                let mut types = Vec::new();
                let gate = link.gate_of_bytes(&partition, index);
                while let Some(received) = gate.next(&nothing).unwrap() {
                    types.push(received.data_type);
                }
                let data = types.iter().filter(|one| one.is_buffer()).count();
                assert_eq!((data, types.len()), (expected, expected + 1));
                assert_eq!(types.last(), Some(&DataType::EndOfPartition));
            }
        }
        consumed(&partition);
        assert!(!partition.is_released());
    }
}

impl Link {
    fn gate_of_bytes(&self, partition: &ResultPartition, index: u32) -> Arc<InputGate> {
        Arc::clone(self.bytes_reader(partition, index).gate())
    }

    /// What a reader hears that comes too early.
    fn bytes_reader_error(&self, partition: &ResultPartition) -> ExchangeError {
        let gate = self.consumer().0.create_input_gate().unwrap();
        let address = self.producer.address(partition, 0);
        let added = self.consumer().0.add_channel(&gate, &address, [0; 32], &nothing);
        gate.seal();
        let error = added.and_then(|()| gate.next(&nothing)).unwrap_err();
        gate.close();
        error
    }
}

#[test]
fn spec_4_06_several_readers_at_once_each_get_everything() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 1);
        write_rows(&partition, 10_000);
        thread::scope(|scope| {
            let read = || drain(&mut link.consumer().reader(&link.gate(&partition, 0))).unwrap();
            let readers = [(); 5].map(|()| scope.spawn(read));
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Vec::from_iter(0..10_000));
            }
        });
        assert_eq!(link.producer.0.stats().pool.held, 0, "what is written holds no segment");
    }
}

#[test]
fn spec_4_07_a_paused_reader_keeps_no_segment_from_another_one() {
    // Three segments in all: two for the writer and one to read with.
    let env = Env::new(3, 4096);
    let options = PartitionOptions::all(1).of_kind(PartitionKind::Blocking);
    let partition = env.0.create_result_partition(&options).unwrap();
    write_rows(&partition, 5_000);
    let others = env.0.create_result_partition(&PartitionOptions::all(1)).unwrap();
    let address = env.address(&partition, 0);
    let gates = [(); 4].map(|()| env.gate(std::slice::from_ref(&address)));
    let mut readers = gates.each_ref().map(|gate| env.reader(gate));
    // Each of them is in the middle while the others read on, in one thread.
    for _ in 0..3 {
        for reader in &mut readers {
            assert!(reader.next(&nothing).unwrap().is_some());
        }
    }
    for mut reader in readers {
        let rest = drain(&mut reader).unwrap();
        assert_eq!(rest.last(), Some(&4_999));
    }
    env.0.release_partition(others.id());
}

#[test]
fn spec_4_06_what_is_being_read_outlives_the_partition() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 1);
        write_rows(&partition, 10_000);
        let gate = link.gate(&partition, 0);
        let mut reader = link.consumer().reader(&gate);
        let Some(Record::Batch(first)) = reader.next(&nothing).unwrap() else { panic!("rows") };
        assert_eq!(link.producer.0.stats().spilled.files, 1);
        link.producer.0.release_partition(partition.id());
        let refused = link.bytes_reader_error(&partition);
        assert!(matches!(refused, ExchangeError::PartitionNotFound { .. }), "{refused}");
        assert_eq!(first.num_rows() + drain(&mut reader).unwrap().len(), 10_000);
        gate.close();
        while link.producer.0.stats().spilled.files > 0 {
            nothing().unwrap();
            thread::yield_now();
        }
    }
}

#[test]
fn a_hybrid_writer_never_waits_for_a_reader_who_gets_all_in_order() {
    for link in Link::all(16) {
        let partition = link.partition(PartitionKind::Hybrid, 2);
        write_rows(&partition, 20_000);
        assert_eq!(partition.back_pressured_ns(), 0);
        let stats = link.producer.0.stats();
        assert!(stats.spilled.bytes_written > 20_000 * 40, "{:?}", stats.spilled);
        assert_eq!(stats.pool.held, 0, "without a reader, nothing stays in memory");
        let mut keys: Vec<_> = [0, 1]
            .iter()
            .flat_map(|index| {
                drain(&mut link.consumer().reader(&link.gate(&partition, *index))).unwrap()
            })
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, Vec::from_iter(0..20_000));
        consumed(&partition);
        let twice = link.bytes_reader_error(&partition);
        assert!(matches!(twice, ExchangeError::PartitionNotFound { .. }), "{twice}");
    }
}

#[test]
fn a_hybrid_reader_that_keeps_up_gets_pages_from_memory() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Hybrid, 1);
        let gate = link.gate(&partition, 0);
        let mut reader = link.consumer().reader(&gate);
        let mut writer = writer(&partition);
        for from in 0..200 {
            writer.emit(&batch(from * 10, (from + 1) * 10, 40), &nothing).unwrap();
            writer.flush();
            assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Batch(_))));
        }
        writer.finish().unwrap();
        assert!(reader.next(&nothing).unwrap().is_none());
        assert_eq!(link.producer.0.stats().spilled.bytes_written, 0);
        consumed(&partition);
    }
}

#[test]
fn a_hybrid_partition_at_its_limit_waits_for_its_reader() {
    for link in Link::all(24) {
        let mut options = PartitionOptions::all(1).of_kind(PartitionKind::Hybrid);
        options.max_spill_size = 200_000;
        let partition = link.producer.0.create_result_partition(&options).unwrap();
        thread::scope(|scope| {
            let writing = scope.spawn(|| write_rows(&partition, 20_000));
            while partition.back_pressured_ns() == 0 {
                nothing().unwrap();
                thread::yield_now();
            }
            assert!(link.producer.0.stats().spilled.bytes_written <= 200_000);
            assert!(!writing.is_finished());
            let keys = drain(&mut link.consumer().reader(&link.gate(&partition, 0))).unwrap();
            assert_eq!(keys, Vec::from_iter(0..20_000));
        });
        // What was read makes room for more.
        consumed(&partition);
    }
}

#[test]
fn a_blocking_partition_at_its_limit_fails_alone() {
    let env = Env::new(24, 4096);
    let other = env.partition(1);
    let mut options = PartitionOptions::all(1).of_kind(PartitionKind::Blocking);
    options.max_spill_size = 100_000;
    let partition = env.0.create_result_partition(&options).unwrap();
    let mut writer = writer(&partition);
    let error = loop {
        if let Err(error) = writer.emit(&batch(0, 100, 40), &nothing) {
            break error;
        }
    };
    assert!(matches!(error, ExchangeError::SpillLimit { limit: 100_000, .. }), "{error}");
    assert!(partition.check().is_err() && other.check().is_ok());
    assert!(env.0.stats().spilled.bytes_written <= 100_000);
}

#[test]
fn events_stay_between_the_records_they_were_written_between() {
    for kind in KINDS {
        for link in Link::all(24) {
            let partition = link.partition(kind, 2);
            let write = || {
                let selector = Selector::RoundRobin { next: 0 };
                let mut writer =
                    BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
                for number in 0..300_u16 {
                    let record = Bytes::from(vec![number.to_le_bytes(); 100].concat());
                    writer.broadcast_emit(&record, &nothing).unwrap();
                    if number % 3 == 0 {
                        let body = Bytes::from(number.to_le_bytes().to_vec());
                        let event = Event::Custom { name: "mark".to_owned(), body };
                        writer.broadcast_event(&event).unwrap();
                    }
                }
                writer.finish().unwrap();
            };
            let read = |index| {
                let mut reader = link.bytes_reader(&partition, index);
                let mut last = None;
                while let Some(record) = reader.next(&nothing).unwrap() {
                    match record {
                        Record::Bytes(bytes) => {
                            let number = u16::from_le_bytes([bytes[0], bytes[1]]);
                            assert_eq!(number, last.map_or(0, |last| last + 1));
                            last = Some(number);
                        }
                        Record::Event { event: Event::Custom { body, .. }, .. } => {
                            assert_eq!(Some(u16::from_le_bytes([body[0], body[1]])), last);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(last, Some(299), "{kind:?}");
            };
            thread::scope(|scope| {
                let writing = scope.spawn(write);
                if kind == PartitionKind::Blocking {
                    writing.join().unwrap();
                }
                for index in [0, 1] {
                    scope.spawn(move || read(index));
                }
            });
        }
    }
}
