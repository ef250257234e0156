//! Compressed partitions of every kind over every link: the same data in fewer bytes.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use common::{RECORD_LIMIT, batch, drain, nothing, page_schema, writer};
use headgate_exchange::{
    ArrowWriter, BytesWriter, Codec, InputGate, PartitionKind, PartitionOptions, Record,
    RecordReader, ResultPartition,
};
use headgate_record::{Event, Selector};
use link::{KINDS, Link, write_rows};

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

fn partition(link: &Link, kind: PartitionKind, count: usize, codec: Codec) -> Arc<ResultPartition> {
    let options = PartitionOptions::all(count).of_kind(kind).compressed(codec);
    link.producer.0.create_result_partition(&options).unwrap()
}

/// Returns the bytes before and after compression.
fn compressed(link: &Link) -> (u64, u64) {
    let stats = link.producer.0.stats();
    (stats.compressed_in, stats.compressed_out)
}

fn bytes_writer(partition: &Arc<ResultPartition>) -> BytesWriter {
    BytesWriter::new(Arc::clone(partition), Selector::Broadcast, RECORD_LIMIT).unwrap()
}

fn reader_of_bytes(link: &Link, gate: Arc<InputGate>) -> RecordReader {
    let env = &link.consumer().0;
    RecordReader::new(gate, None, env.spanning_options(), Arc::clone(env.copies()))
}

#[test]
fn every_row_arrives_once_and_in_order_whatever_the_codec() {
    for codec in CODECS {
        for kind in KINDS {
            for link in Link::all(24) {
                let partition = partition(&link, kind, 2, codec);
                link.delivers(&partition, 10_000);
                link.producer.0.release_partition(partition.id());
            }
        }
    }
}

#[test]
fn disk_and_wire_carry_compressed_buffers() {
    for codec in CODECS {
        for kind in KINDS {
            let [local, remote, ..] = Link::all(24);
            let stored = matches!(kind, PartitionKind::Blocking | PartitionKind::Hybrid);
            for link in [remote].into_iter().chain(stored.then_some(local)) {
                let partition = partition(&link, kind, 1, codec);
                thread::scope(|scope| {
                    let writing = scope.spawn(|| write_rows(&partition, 5_000));
                    if stored {
                        writing.join().unwrap();
                    }
                    let gate = link.gate(&partition, 0);
                    let keys = drain(&mut link.consumer().reader(&gate)).unwrap();
                    assert_eq!(keys.len(), 5_000);
                });
                let (bytes_in, bytes_out) = compressed(&link);
                assert!(bytes_in > 5_000 * 40, "{bytes_in}");
                assert!(bytes_out < bytes_in / 2, "{bytes_out} of {bytes_in}");
                let stats = link.producer.0.stats();
                if stored {
                    assert!(stats.spilled.bytes_written <= bytes_out + 28);
                }
                if link.consumer.is_some() {
                    assert!(stats.bytes_sent < bytes_in / 2, "{}", stats.bytes_sent);
                }
                assert_eq!(
                    stats.partitions[0].subpartitions[0].bytes, bytes_in,
                    "counted as what they stand for"
                );
                link.producer.0.release_partition(partition.id());
            }
        }
    }
}

#[test]
fn nothing_is_compressed_for_a_reader_of_the_same_process() {
    for kind in [PartitionKind::Pipelined, PartitionKind::PipelinedBounded] {
        let [link, ..] = Link::all(24);
        let partition = partition(&link, kind, 1, Codec::Lz4);
        let gate = link.gate(&partition, 0);
        thread::scope(|scope| {
            scope.spawn(|| write_rows(&partition, 5_000));
            assert_eq!(drain(&mut link.consumer().reader(&gate)).unwrap().len(), 5_000);
        });
        assert_eq!(compressed(&link), (0, 0));
    }
}

#[test]
fn a_buffer_for_this_process_and_another_is_compressed_once() {
    for codec in CODECS {
        let [_, link, ..] = Link::all(48);
        let partition = partition(&link, PartitionKind::PipelinedBounded, 2, codec);
        let here = link.producer.gate(&[link.producer.address(&partition, 0)]);
        let there = link.gate(&partition, 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let parts = (Arc::clone(&partition), page_schema(), Selector::Broadcast);
                let mut writer = ArrowWriter::new(parts.0, parts.1, parts.2, RECORD_LIMIT).unwrap();
                for from in (0..5_000).step_by(500) {
                    writer.emit(&batch(from, from + 500, 40), &nothing).unwrap();
                }
                writer.finish().unwrap();
            });
            let reading = scope.spawn(|| drain(&mut link.producer.reader(&here)).unwrap());
            let there = drain(&mut link.consumer().reader(&there)).unwrap();
            assert_eq!(there, Vec::from_iter(0..5_000));
            assert_eq!(reading.join().unwrap(), there);
        });
        let (bytes_in, bytes_out) = compressed(&link);
        let sent = link.producer.0.stats().partitions[0].subpartitions[0].bytes;
        assert_eq!(bytes_in, sent, "compressed once for both readers");
        assert!(bytes_out < bytes_in / 2);
    }
}

#[test]
fn incompressible_buffers_are_sent_uncompressed() {
    for codec in CODECS {
        for kind in KINDS {
            for link in Link::all(24) {
                let partition = partition(&link, kind, 1, codec);
                let mut random = fastrand::Rng::with_seed(7);
                let mut noise = || (0..2_000).map(|_| random.u8(..)).collect::<Bytes>();
                let records: Vec<_> = (0..20).map(|_| noise()).collect();
                thread::scope(|scope| {
                    let writing = scope.spawn(|| {
                        let mut writer = bytes_writer(&partition);
                        for record in &records {
                            writer.emit(record, &nothing).unwrap();
                        }
                        writer.finish().unwrap();
                    });
                    if kind == PartitionKind::Blocking {
                        writing.join().unwrap();
                    }
                    let mut reader = reader_of_bytes(&link, link.gate_of_bytes(&partition, 0));
                    for record in &records {
                        match reader.next(&nothing).unwrap() {
                            Some(Record::Bytes(bytes)) => assert_eq!(bytes, record),
                            other => panic!("{other:?}"),
                        }
                    }
                    assert!(reader.next(&nothing).unwrap().is_none());
                });
                let (bytes_in, bytes_out) = compressed(&link);
                assert_eq!(bytes_in, bytes_out);
                link.producer.0.release_partition(partition.id());
            }
        }
    }
}

#[test]
fn a_stream_is_compressed_in_whole_buffers_between_its_events() {
    for codec in CODECS {
        for kind in KINDS {
            for link in Link::all(32) {
                let partition = partition(&link, kind, 2, codec);
                let write = || {
                    let mut writer = bytes_writer(&partition);
                    for number in 0..300_u16 {
                        // Some records span buffers.
                        let len = if number % 50 == 7 { 10_000 } else { 100 };
                        let record = Bytes::from(number.to_le_bytes().repeat(len));
                        writer.broadcast_emit(&record, &nothing).unwrap();
                        if number % 5 == 0 {
                            writer.flush().unwrap();
                        }
                        if number % 7 == 0 {
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
                                let number = last.map_or(0, |last: u16| last + 1);
                                let len = if number % 50 == 7 { 10_000 } else { 100 };
                                assert_eq!(bytes, number.to_le_bytes().repeat(len));
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
                if kind == PartitionKind::Blocking {
                    let (bytes_in, bytes_out) = compressed(&link);
                    assert!(bytes_in > 0 && bytes_out < bytes_in / 2, "{bytes_out} of {bytes_in}");
                }
                link.producer.0.release_partition(partition.id());
            }
        }
    }
}

#[test]
fn a_late_reader_of_the_same_process_decompresses_queued_buffers() {
    for codec in CODECS {
        let [link, ..] = Link::all(24);
        let partition = partition(&link, PartitionKind::PipelinedBounded, 1, codec);
        let mut writing = writer(&partition);
        writing.emit(&batch(0, 500, 40), &nothing).unwrap();
        writing.flush().unwrap();
        let (before, _) = compressed(&link);
        assert!(before > 0);
        let gate = link.gate(&partition, 0);
        writing.emit(&batch(500, 600, 40), &nothing).unwrap();
        writing.finish().unwrap();
        assert_eq!(compressed(&link).0, before, "later buffers are not compressed");
        let keys = drain(&mut link.consumer().reader(&gate)).unwrap();
        assert_eq!(keys, Vec::from_iter(0..600));
    }
}
