//! Blocking partitions: read after the end, any number of times.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, batch, drain, nothing, wait_until, writer};
use headgate_exchange::{
    BytesWriter, DataInput, DataType, ExchangeError, PartitionKind, PartitionOptions, Record,
};
use headgate_record::Selector;
use link::{Link, consumed, write_rows};

#[test]
fn spec_4_13_a_blocking_partition_is_read_any_number_of_times_once_it_is_finished() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 2);
        let selector = Selector::Broadcast;
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
        for (number, index) in [0, 0, 1, 0, 1, 0].into_iter().enumerate() {
            let record = Bytes::from(vec![u8::try_from(number).unwrap(); 10]);
            writer.emit_to(index, record, &nothing).unwrap();
            writer.flush().unwrap();
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

#[test]
fn spec_section_4_6_several_readers_at_once_each_get_everything() {
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
        // The I/O thread frees the segment of a page a moment after its last byte is sent.
        wait_until("buffers on disk hold no segment", || link.producer.0.stats().pool.held == 0);
    }
}

#[test]
fn spec_section_4_7_a_paused_reader_keeps_no_segment_from_another_one() {
    // Three segments in total: two for the writer, and one to read with.
    let env = Env::new(3, 4096);
    let options = PartitionOptions::all(1).of_kind(PartitionKind::Blocking);
    let partition = env.0.create_result_partition(&options).unwrap();
    write_rows(&partition, 5_000);
    let others = env.0.create_result_partition(&PartitionOptions::all(1)).unwrap();
    let address = env.address(&partition, 0);
    let gates = [(); 4].map(|()| env.gate(std::slice::from_ref(&address)));
    let mut readers = gates.each_ref().map(|gate| env.reader(gate));
    // In one thread: each reader pauses in the middle while the others continue.
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
fn spec_section_4_6_stored_data_outlives_the_partition_while_it_is_read() {
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
fn a_lost_reader_leaves_a_blocking_partition_to_others() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 1);
        write_rows(&partition, 10_000);
        {
            let lost = link.another();
            let gate = lost.gate(&[link.producer.address(&partition, 0)]);
            assert!(lost.reader(&gate).next(&nothing).unwrap().is_some());
        }
        let gate = link.gate(&partition, 0);
        assert_eq!(drain(&mut link.consumer().reader(&gate)).unwrap().len(), 10_000);
        partition.check().unwrap();
    }
}

#[test]
fn the_end_of_a_stored_partition_ends_its_readers() {
    for kind in [PartitionKind::Blocking, PartitionKind::Hybrid] {
        for link in Link::all(24) {
            let partition = link.partition(kind, 1);
            write_rows(&partition, 10_000);
            let gate = link.gate(&partition, 0);
            let mut reader = link.consumer().reader(&gate);
            assert!(reader.next(&nothing).unwrap().is_some());
            partition.fail(&ExchangeError::Aborted("its cause".to_owned()));
            let error = drain(&mut reader).unwrap_err();
            assert!(error.to_string().contains("its cause"), "{error}");
            let late = link.bytes_reader_error(&partition);
            assert!(late.to_string().contains("its cause"), "{late}");
        }
        for link in Link::all(24) {
            let partition = link.partition(kind, 1);
            write_rows(&partition, 10_000);
            let gate = link.gate(&partition, 0);
            let mut reader = link.consumer().reader(&gate);
            assert!(reader.next(&nothing).unwrap().is_some());
            link.producer.0.close();
            drain(&mut reader).unwrap_err();
        }
    }
}

#[test]
fn a_released_subpartition_of_a_blocking_partition_is_gone_for_all() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 2);
        write_rows(&partition, 10_000);
        let gate = link.gate(&partition, 0);
        let mut reader = link.consumer().reader(&gate);
        assert!(reader.next(&nothing).unwrap().is_some());
        partition.release_subpartition(0);
        drain(&mut reader).unwrap_err();
        let error = link.bytes_reader_error(&partition);
        assert!(matches!(error, ExchangeError::PartitionNotFound { .. }), "{error}");
        let other = drain(&mut link.consumer().reader(&link.gate(&partition, 1))).unwrap();
        assert!(!other.is_empty() && !partition.is_released());
    }
}

#[test]
fn spec_section_4_7_a_buffer_for_all_subpartitions_is_written_once() {
    for link in Link::all(24) {
        let partition = link.partition(PartitionKind::Blocking, 4);
        let mut writer = writer(&partition);
        for part in 0..20 {
            let rows = batch(part * 100, (part + 1) * 100, 40);
            writer.broadcast_emit(&rows, &nothing).unwrap();
        }
        writer.finish().unwrap();
        let written = link.producer.0.stats().spilled.bytes_written;
        assert!((2_000 * 40..2 * 2_000 * 48).contains(&written), "{written}");
        for index in 0..4 {
            let keys = drain(&mut link.consumer().reader(&link.gate(&partition, index))).unwrap();
            assert_eq!(keys, Vec::from_iter(0..2_000));
        }
    }
}
