//! Hybrid partitions: the writer never waits, and the reader gets everything in order.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::thread;

use common::{batch, drain, nothing, writer};
use headgate_exchange::{ExchangeError, PartitionKind, PartitionOptions, Record};
use link::{Link, consumed, write_rows};

#[test]
fn a_hybrid_writer_does_not_wait_and_its_reader_gets_everything_in_order() {
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
            writer.flush().unwrap();
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
        // Reading frees space on disk for more.
        consumed(&partition);
    }
}
