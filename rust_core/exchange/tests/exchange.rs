//! Complete exchanges: every row arrives once, in bounded memory, over local and remote channels.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, ListArray, RecordBatch, new_null_array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use common::{Env, RECORD_LIMIT, batch, drain, nothing, page_schema, writer};
use headgate_exchange::{ArrowWriter, ExchangeError, PartitionOptions, Record, RecordReader};
use headgate_record::{PageSchema, Selector};

fn exchange(producers: &[Env], consumers: &[Env], rows: i64, width: usize) -> Vec<Vec<i64>> {
    let partitions: Vec<_> = producers.iter().map(|env| env.partition(consumers.len())).collect();
    thread::scope(|scope| {
        let mut results = Vec::new();
        for (index, consumer) in consumers.iter().enumerate() {
            let addresses: Vec<_> = producers
                .iter()
                .zip(&partitions)
                .map(|(env, partition)| env.address(partition, u32::try_from(index).unwrap()))
                .collect();
            let gate = consumer.gate(&addresses);
            results.push(scope.spawn(move || drain(&mut consumer.reader(&gate)).unwrap()));
        }
        for (number, partition) in (0_i64..).zip(&partitions) {
            scope.spawn(move || {
                let mut writer = writer(partition);
                let (mut from, end) = (number * rows, (number + 1) * rows);
                while from < end {
                    let to = (from + 1_000).min(end);
                    writer.emit(&batch(from, to, width), &nothing).unwrap();
                    from = to;
                }
                writer.finish().unwrap();
                let taken = partition.wait_consumed(Some(Duration::from_secs(30)), &nothing);
                assert!(taken.unwrap());
            });
        }
        results.into_iter().map(|result| result.join().unwrap()).collect()
    })
}

fn check(results: &[Vec<i64>], total: i64) {
    let all: Vec<i64> = results.iter().flatten().copied().collect();
    assert_eq!(all.len() as i64, total);
    assert_eq!(all.iter().collect::<HashSet<_>>().len() as i64, total, "no row twice");
}

#[test]
fn remote_channels_deliver_every_row_once() {
    let producers = [Env::new(16, 4096), Env::new(16, 4096)];
    let consumers = [Env::new(12, 4096), Env::new(12, 4096), Env::new(12, 4096)];
    let results = exchange(&producers, &consumers, 20_000, 20);
    check(&results, 40_000);
    let stats = consumers[0].0.stats();
    assert!(stats.pool.peak <= 12 && stats.bytes_received > 0);
}

#[test]
fn rows_of_one_producer_arrive_in_order() {
    let results = exchange(&[Env::new(8, 4096)], &[Env::new(4, 4096)], 5_000, 8);
    assert!(results[0].is_sorted());
    check(&results, 5_000);
}

#[test]
fn the_time_a_writer_waits_for_segments_is_counted() {
    let env = Env::new(8, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = writer(&partition);
            writer.emit(&batch(0, 100, 12), &nothing).unwrap();
            assert_eq!(partition.back_pressured_ns(), 0, "no request had to wait");
            writer.emit(&batch(100, 10_000, 12), &nothing).unwrap();
            writer.finish().unwrap();
        });
        // The time is counted while the writer waits, not only afterwards.
        while partition.back_pressured_ns() == 0 {
            thread::yield_now();
        }
        assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 10_000);
    });
    let at_the_end = partition.back_pressured_ns();
    assert!(partition.wait_consumed(None, &nothing).unwrap());
    assert_eq!(partition.back_pressured_ns(), at_the_end);
}

#[test]
fn a_local_channel_copies_nothing_over_a_socket() {
    let env = Env::new(32, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = writer(&partition);
            writer.emit(&batch(0, 10_000, 12), &nothing).unwrap();
            writer.finish().unwrap();
        });
        assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 10_000);
    });
    assert_eq!(env.0.stats().bytes_sent, 0);
    assert!(partition.wait_consumed(Some(Duration::ZERO), &nothing).unwrap());
}

#[test]
fn a_row_wider_than_many_segments_spans_them() {
    let results = exchange(&[Env::new(8, 4096)], &[Env::new(6, 4096)], 40, 50_000);
    check(&results, 40);
}

#[test]
fn keeping_every_batch_never_stalls() {
    for local in [false, true] {
        let producer = Env::new(8, 4096);
        let consumer = Env::new(8, 4096);
        let partition = producer.partition(1);
        let reading = if local { &producer } else { &consumer };
        let gate = reading.gate(&[producer.address(&partition, 0)]);
        let kept = thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = writer(&partition);
                for part in 0..100 {
                    writer.emit(&batch(part * 100, (part + 1) * 100, 30), &nothing).unwrap();
                }
                writer.finish().unwrap();
            });
            let mut reader = reading.reader(&gate);
            let mut kept = Vec::new();
            while let Some(Record::Batch(batch)) = reader.next(&nothing).unwrap() {
                kept.push(batch);
            }
            kept
        });
        assert_eq!(kept.iter().map(|batch| batch.num_rows()).sum::<usize>(), 10_000);
        assert!(reading.0.stats().copied_pool_low > 0);
        drop(kept);
    }
}

#[test]
fn a_producers_failure_reaches_the_consumer_with_its_message() {
    let (producer, consumer) = (Env::new(8, 4096), Env::new(8, 4096));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let mut writer = writer(&partition);
    writer.emit(&batch(0, 100, 8), &nothing).unwrap();
    partition.fail(&ExchangeError::Aborted("disk on fire".to_owned()));
    let error = drain(&mut consumer.reader(&gate)).unwrap_err();
    assert!(matches!(&error, ExchangeError::ProducerFailed(text) if text == "disk on fire"));
    assert!(writer.emit(&batch(0, 1, 8), &nothing).is_err());
}

#[test]
fn a_lost_producer_is_an_error_and_not_an_end() {
    let (producer, consumer) = (Env::new(8, 4096), Env::new(8, 4096));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let mut writer = writer(&partition);
    writer.emit(&batch(0, 1_000, 8), &nothing).unwrap();
    writer.flush().unwrap();
    drop((writer, partition));
    let reading = thread::scope(|scope| {
        let reading = scope.spawn(|| drain(&mut consumer.reader(&gate)));
        thread::sleep(Duration::from_millis(50));
        producer.0.close();
        reading.join().unwrap()
    });
    reading.unwrap_err();
}

#[test]
fn a_consumer_that_stops_early_frees_the_producer() {
    let (producer, consumer) = (Env::new(8, 4096), Env::new(8, 4096));
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = writer(&partition);
            for part in 0..1_000 {
                writer.emit(&batch(part * 100, (part + 1) * 100, 30), &nothing).unwrap();
            }
            writer.finish().unwrap();
            partition.wait_consumed(Some(Duration::from_secs(30)), &nothing).unwrap()
        });
        assert!(consumer.reader(&gate).next(&nothing).unwrap().is_some());
        gate.close();
        assert!(writing.join().unwrap());
    });
}

#[test]
fn a_consumer_that_closes_is_no_loss() {
    for timeout in [Duration::ZERO, Duration::MAX] {
        let producer = Env::new(8, 4096);
        let partition = producer
            .0
            .create_result_partition(&PartitionOptions {
                lost_consumer_timeout: timeout,
                ..PartitionOptions::all(1)
            })
            .unwrap();
        let mut stream = std::net::TcpStream::connect(producer.0.address().unwrap()).unwrap();
        let consumer = Env::new(8, 4096);
        let gate = consumer.gate(&[producer.address(&partition, 0)]);
        let mut writer = writer(&partition);
        writer.emit(&batch(0, 100, 8), &nothing).unwrap();
        writer.flush().unwrap();
        assert!(consumer.reader(&gate).next(&nothing).unwrap().is_some());
        use std::io::Write;
        // These bytes are no handshake. They are refused, and no other connection is affected.
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        consumer.0.abort(&ExchangeError::Aborted("enough".to_owned()));
        consumer.0.close();
        let waited = partition.wait_consumed(Some(Duration::from_secs(2)), &nothing);
        // A consumer that closes sends GOODBYE, so it does not count as lost.
        assert!(waited.unwrap(), "{timeout:?}");
    }
}

#[test]
fn unwanted_subpartitions_are_not_built() {
    let env = Env::new(8, 4096);
    let wanted = vec![false, true, false, false];
    let options = PartitionOptions { wanted, ..PartitionOptions::all(4) };
    let partition = env.0.create_result_partition(&options).unwrap();
    let gate = env.gate(&[env.address(&partition, 1)]);
    let mut writer = writer(&partition);
    writer.emit(&batch(0, 1_000, 8), &nothing).unwrap();
    writer.finish().unwrap();
    let keys = drain(&mut env.reader(&gate)).unwrap();
    assert!(!keys.is_empty() && keys.len() < 500);
    assert!(partition.wait_consumed(Some(Duration::ZERO), &nothing).unwrap());
}

#[test]
fn channels_may_appear_while_the_gate_is_read() {
    let (producer, consumer) = (Env::new(32, 4096), Env::new(16, 4096));
    let gate = consumer.0.create_input_gate().unwrap();
    let keys = thread::scope(|scope| {
        let reading = scope.spawn(|| drain(&mut consumer.reader(&gate)).unwrap());
        for number in 0..20_i64 {
            let partition = producer.partition(1);
            let address = producer.address(&partition, 0);
            consumer.0.add_channel(&gate, &address, page_schema().hash()).unwrap();
            let mut writer = writer(&partition);
            writer.emit(&batch(number * 50, (number + 1) * 50, 8), &nothing).unwrap();
            writer.finish().unwrap();
            assert!(partition.wait_consumed(Some(Duration::from_secs(10)), &nothing).unwrap());
            producer.0.release_partition(partition.id());
        }
        gate.seal();
        reading.join().unwrap()
    });
    check(&[keys], 1_000);
}

#[test]
fn broadcast_shares_one_page_and_keeps_the_order() {
    let env = Env::new(32, 4096);
    let partition = env.partition(3);
    let gates: Vec<_> = (0..3).map(|index| env.gate(&[env.address(&partition, index)])).collect();
    let mut writer = writer(&partition);
    writer.broadcast_emit(&batch(0, 10, 8), &nothing).unwrap();
    writer.emit(&batch(10, 20, 8), &nothing).unwrap();
    writer.broadcast_emit(&batch(20, 30, 8), &nothing).unwrap();
    writer.finish().unwrap();
    assert_eq!(
        env.0.stats().pool.held,
        5,
        "two shared pages, and three pages for one subpartition"
    );
    let mut seen = Vec::new();
    for gate in &gates {
        let keys = drain(&mut env.reader(gate)).unwrap();
        assert_eq!(keys[..10], Vec::from_iter(0..10)[..]);
        assert_eq!(keys[keys.len() - 10..], Vec::from_iter(20..30)[..]);
        seen.extend_from_slice(&keys[10..keys.len() - 10]);
    }
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(10..20));
}

#[test]
fn a_channel_is_added_while_an_unread_channel_holds_all_floating_segments() {
    let (producer, consumer) = (Env::new(128, 4096), Env::new(128, 4096));
    let partitions = [producer.partition(1), producer.partition(1)];
    thread::scope(|scope| {
        for partition in &partitions {
            scope.spawn(|| {
                let mut writer = writer(partition);
                for at in 0..200 {
                    writer.emit(&batch(at * 100, at * 100 + 100, 20), &nothing).unwrap();
                }
                writer.finish().unwrap();
            });
        }
        let gate = consumer.0.create_input_gate().unwrap();
        let add = |at: usize| {
            let address = producer.address(&partitions[at], 0);
            consumer.0.add_channel(&gate, &address, [0; 32])
        };
        add(0).unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while consumer.0.stats().pool.held < 10 {
            assert!(Instant::now() < patience, "the first channel gets no floating segments");
            thread::sleep(Duration::from_millis(5));
        }
        let started = Instant::now();
        add(1).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        gate.seal();
        assert_eq!(drain(&mut consumer.reader(&gate)).unwrap().len(), 40_000);
    });
}

#[test]
fn a_buffer_larger_than_the_consumers_segments_ends_both_sides() {
    let (producer, consumer) = (Env::new(16, 16384), Env::new(16, 4096));
    let partition = producer.partition(1);
    let mut writer = writer(&partition);
    writer.emit(&batch(0, 1_000, 20), &nothing).unwrap();
    writer.finish().unwrap();
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let refused = drain(&mut consumer.reader(&gate)).unwrap_err();
    assert!(matches!(refused, ExchangeError::ProducerFailed(_)), "{refused}");
    assert!(refused.to_string().contains("the same segment_size"), "{refused}");
    gate.close();
    let waited = partition.wait_consumed(Some(Duration::from_secs(10)), &nothing);
    let limit = 4096;
    assert!(
        matches!(waited, Err(ExchangeError::BufferTooLarge { limit: got, .. }) if got == limit),
        "{waited:?}"
    );
}

#[test]
fn rows_without_bytes_arrive_in_any_number() {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Null, true)));
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Null, true),
        Field::new("l", list.clone(), true),
    ]));
    let rows = (3 << 20) + 7;
    let nulls = new_null_array(&DataType::Null, rows);
    let flat =
        RecordBatch::try_new(Arc::new(schema.project(&[0]).unwrap()), vec![Arc::clone(&nulls)]);
    let offsets = OffsetBuffer::<i32>::from_lengths([2, rows - 2]);
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, nulls, None));
    let wide = RecordBatch::try_new(schema, vec![new_null_array(&DataType::Null, 2), lists]);
    for batch in [flat.unwrap(), wide.unwrap()] {
        for is_local in [true, false] {
            let (producer, other) = (Env::new(64, 16 << 10), Env::new(64, 16 << 10));
            let consumer = if is_local { &producer } else { &other };
            let partition = producer.partition(1);
            let schema = Arc::new(PageSchema::try_new(batch.schema()).unwrap());
            let gate = consumer.0.create_input_gate().unwrap();
            let address = producer.address(&partition, 0);
            consumer.0.add_channel(&gate, &address, schema.hash()).unwrap();
            gate.seal();
            let options = consumer.0.spanning_options();
            let copies = Arc::clone(consumer.0.copies());
            let reader = RecordReader::new(gate, Some(Arc::clone(&schema)), options, copies);
            let mut reader = reader.with_batch_bytes(8 << 10);
            let written = batch.clone();
            let writing = thread::spawn(move || {
                let selector = Selector::Broadcast;
                let writer = ArrowWriter::new(partition, schema, selector, RECORD_LIMIT);
                let mut writer = writer.unwrap();
                writer.emit(&written, &nothing).unwrap();
                writer.finish().unwrap();
            });
            let mut done = 0;
            while let Some(record) = reader.next(&nothing).unwrap() {
                let Record::Batch(read) = record else { panic!("only batches were written") };
                assert_eq!(read, batch.slice(done, read.num_rows()), "{is_local}");
                done += read.num_rows();
            }
            writing.join().unwrap();
            assert_eq!(done, batch.num_rows());
        }
    }
}
