//! Batches for one place are not copied: their pages are pieces of their own memory (ADR 0021).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;
mod link;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_buffer::{Buffer as ArrowBuffer, ScalarBuffer};
use bytes::Bytes;
use common::{RECORD_LIMIT, batch, drain, nothing, page_schema, wait_until};
use headgate_exchange::{
    ArrowWriter, Codec, DataInput, DataType, Emitted, PartitionKind, PartitionOptions, Record,
    RecordReader, ResultPartition,
};
use headgate_record::{Event, Selector};
use link::Link;

fn writer(partition: &Arc<ResultPartition>, selector: Selector) -> ArrowWriter {
    ArrowWriter::new(Arc::clone(partition), page_schema(), selector, RECORD_LIMIT).unwrap()
}

/// Returns all batches of a reader. Sends to `attached` after the first.
fn read(reader: &mut RecordReader, attached: &Sender<()>) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    while let Some(record) = reader.next(&nothing).unwrap() {
        let Record::Batch(batch) = record else { panic!("only batches were written") };
        if batches.is_empty() {
            attached.send(()).unwrap();
        }
        batches.push(batch);
    }
    batches
}

/// Emits a row to each subpartition and waits until it is read, so that all readers are attached.
fn attach(writer: &mut ArrowWriter, attached: &Receiver<()>) {
    writer.broadcast_emit(&batch(0, 1, 10), &nothing).unwrap();
    writer.flush().unwrap();
    for _ in 0..writer.partition().num_subpartitions() {
        attached.recv().unwrap();
    }
}

/// Writes a partition, and reads each subpartition in its own thread. Returns the batches of each.
fn exchange(
    link: &Link,
    options: &PartitionOptions,
    selector: Selector,
    write: impl FnOnce(&mut ArrowWriter) + Send,
) -> Vec<Vec<RecordBatch>> {
    let partition = link.producer.0.create_result_partition(options).unwrap();
    let (tell, attached) = channel();
    let results = thread::scope(|scope| {
        let count = u32::try_from(partition.num_subpartitions()).unwrap();
        let readers: Vec<_> = (0..count)
            .map(|index| {
                let (gate, tell) = (link.gate(&partition, index), tell.clone());
                scope.spawn(move || read(&mut link.consumer().reader(&gate), &tell))
            })
            .collect();
        let mut writer = writer(&partition, selector);
        attach(&mut writer, &attached);
        write(&mut writer);
        writer.finish().unwrap();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert!(partition.wait_consumed(None, &nothing).unwrap());
    results
}

fn keys_of(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(common::keys).collect()
}

/// Returns bytes copied so far: by scattering, and by compacting slices.
fn copied(link: &Link) -> (u64, u64) {
    let stats = link.producer.0.stats();
    (stats.copied_scatter, stats.copied_compacted)
}

fn pipelined(count: usize) -> PartitionOptions {
    PartitionOptions::all(count).of_kind(PartitionKind::Pipelined)
}

#[test]
fn rows_that_go_to_one_place_are_not_copied() {
    let round_robin = Selector::RoundRobin { next: 0, group: None, by_rows: false };
    for selector in [Selector::One(0), round_robin, Selector::Broadcast] {
        for link in Link::all(128).into_iter().take(2) {
            let mut first = (0, 0);
            let results = exchange(&link, &pipelined(2), selector.clone(), |writer| {
                first = copied(&link);
                for part in 1..=4 {
                    writer.emit(&batch(part * 1000, part * 1000 + 1000, 20), &nothing).unwrap();
                }
                writer.random_emit(&batch(5000, 6000, 20), &nothing).unwrap();
            });
            assert_eq!(copied(&link), first, "{selector:?}");
            assert_eq!(link.consumer().0.stats().copied_joined, 0);
            let mut all: Vec<i64> = results.iter().flat_map(|it| keys_of(it)).collect();
            all.sort_unstable();
            let times = if selector == Selector::Broadcast { 2 } else { 1 };
            let four = (1000..5000).flat_map(|key| vec![key; times]);
            assert!(all.into_iter().eq([0, 0].into_iter().chain(four).chain(5000..6000)));
        }
    }
}

#[test]
fn a_local_reader_gets_the_memory_itself() {
    let rows = batch(0, 1000, 20);
    let start = rows.column(0).to_data().buffers()[0].as_ptr();
    let [link, ..] = Link::all(64);
    let results = exchange(&link, &pipelined(1), Selector::One(0), |writer| {
        writer.emit(&rows, &nothing).unwrap();
    });
    assert_eq!(results[0][1].column(0).to_data().buffers()[0].as_ptr(), start);
    assert!(results[0].len() > 4, "the batch is cut into pages");
    let stats = link.producer.0.stats();
    // Only the first batch was copied: it was too small for pieces.
    assert_eq!(
        (stats.pool.held, stats.pool.pinned),
        (0, 1),
        "a batch that was read is not charged"
    );
}

#[test]
fn scattered_stored_and_compressed_rows_are_copied() {
    let [local, remote, same_host, _] = Link::all(128);
    let stored =
        [PartitionKind::Hybrid].map(|kind| (&remote, PartitionOptions::all(1).of_kind(kind)));
    let compressed = (&remote, pipelined(1).compressed(Codec::Lz4));
    let all = stored.into_iter().chain([compressed, (&same_host, pipelined(1))]);
    for (link, options) in all {
        let mut first = (0, 0);
        exchange(link, &options, Selector::One(0), |writer| {
            first = copied(link);
            writer.emit(&batch(0, 1000, 20), &nothing).unwrap();
        });
        assert!(copied(link).0 > first.0 + 20_000, "{options:?}");
    }
    assert!(same_host.producer.0.stats().lent.buffers > 5);
    // Only remote readers get compressed buffers.
    let mut first = (0, 0);
    exchange(&local, &pipelined(1).compressed(Codec::Lz4), Selector::One(0), |writer| {
        first = copied(&local);
        writer.emit(&batch(0, 1000, 20), &nothing).unwrap();
    });
    assert_eq!(copied(&local), first);
}

#[test]
fn a_slice_of_less_than_a_quarter_is_compacted() {
    let all = batch(0, 10_000, 20);
    for link in Link::all(256).into_iter().take(2) {
        let mut first = (0, 0);
        let results = exchange(&link, &pipelined(1), Selector::One(0), |writer| {
            first = copied(&link);
            writer.emit(&all.slice(77, 1000), &nothing).unwrap();
            // Memory that only the batch's owner knows counts too.
            let part = batch(5000, 6000, 20);
            writer.emit(Emitted { batch: &part, pinned: 1 << 30 }, &nothing).unwrap();
            writer.flush().unwrap();
            let (scatter, compacted) = copied(&link);
            assert_eq!(scatter, first.0);
            assert!(compacted > 60_000, "{compacted}");
            writer.emit(&all.slice(1000, 9000), &nothing).unwrap();
            assert_eq!(copied(&link), (scatter, compacted));
        });
        let keys = [0].into_iter().chain(77..1077).chain(5000..6000).chain(1000..10_000);
        assert!(keys_of(&results[0]).into_iter().eq(keys));
    }
}

#[test]
fn the_order_of_small_and_large_batches_and_events_holds() {
    for link in Link::all(128) {
        let partition = link.partition(PartitionKind::Pipelined, 2);
        let (tell, attached) = channel();
        let read = |index: u32| {
            let (gate, tell, link) = (link.gate(&partition, index), tell.clone(), &link);
            move || {
                let mut reader = link.consumer().reader(&gate);
                let mut seen = Vec::new();
                while let Some(record) = reader.next(&nothing).unwrap() {
                    match record {
                        Record::Batch(batch) => seen.extend(common::keys(&batch)),
                        Record::Event { event: Event::Custom { .. }, .. } => seen.push(-1),
                        other => panic!("{other:?}"),
                    }
                    if seen.len() == 1 {
                        tell.send(()).unwrap();
                    }
                }
                seen
            }
        };
        let (first, second) = thread::scope(|scope| {
            let readers = [scope.spawn(read(0)), scope.spawn(read(1))];
            let mut writer = writer(&partition, Selector::One(0));
            attach(&mut writer, &attached);
            let event = Event::Custom { name: "e".to_owned(), body: Bytes::new() };
            writer.emit(&batch(1, 5, 10), &nothing).unwrap();
            writer.emit(&batch(5, 800, 20), &nothing).unwrap();
            writer.emit(&batch(800, 810, 10), &nothing).unwrap();
            writer.broadcast_emit(&batch(810, 1500, 20), &nothing).unwrap();
            writer.broadcast_emit(&batch(1500, 1505, 10), &nothing).unwrap();
            writer.emit(&batch(1505, 2300, 20), &nothing).unwrap();
            writer.broadcast_event(&event).unwrap();
            writer.broadcast_emit(&batch(2300, 3000, 20), &nothing).unwrap();
            writer.finish().unwrap();
            let [first, second] = readers.map(|reader| reader.join().unwrap());
            (first, second)
        });
        assert!(first.into_iter().eq((0..2300).chain([-1]).chain(2300..3000)));
        assert!(
            second.into_iter().eq([0].into_iter().chain(810..1505).chain([-1]).chain(2300..3000))
        );
    }
}

#[test]
fn small_pools_never_hang() {
    for segments in [6, 9, 14, 30] {
        for link in Link::all(segments) {
            for kind in [PartitionKind::Pipelined, PartitionKind::PipelinedBounded] {
                let options = PartitionOptions::all(2).of_kind(kind);
                let round_robin = Selector::RoundRobin { next: 0, group: None, by_rows: false };
                let results = exchange(&link, &options, round_robin, |writer| {
                    for part in 0..12 {
                        let rows = 30 << (part % 6);
                        writer.emit(&batch(part * 1000, part * 1000 + rows, 20), &nothing).unwrap();
                        writer.broadcast_emit(&batch(-500, -100, 20), &nothing).unwrap();
                    }
                });
                let rows = |it: &Vec<RecordBatch>| keys_of(it).len();
                let expected = |odd: i64| {
                    1 + 12 * 400 + 2 * (0..3).map(|i| 30 << (2 * i + odd)).sum::<usize>()
                };
                assert_eq!(
                    results.iter().map(rows).collect::<Vec<_>>(),
                    [expected(0), expected(1)]
                );
                // A consumer of the same host returns lent pages a moment after it drops them.
                drop(results);
                wait_until("lent pages are back", || link.producer.0.stats().pool.pinned == 0);
            }
        }
    }
}

#[test]
fn a_late_reader_does_not_stop_the_writer() {
    let [link, ..] = Link::all(24);
    let partition = link.partition(PartitionKind::Pipelined, 2);
    let (mut first, mut second) = (
        link.consumer().reader(&link.gate(&partition, 0)),
        link.consumer().reader(&link.gate(&partition, 1)),
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            let round_robin = Selector::RoundRobin { next: 0, group: None, by_rows: false };
            let mut writer = writer(&partition, round_robin);
            for part in 0..6 {
                writer.emit(&batch(part * 1000, part * 1000 + 300, 20), &nothing).unwrap();
            }
            writer.finish().unwrap();
        });
        // Rows for the second subpartition wait meanwhile: no charge is free, but single segments
        // are.
        assert_eq!(drain(&mut first).unwrap().len(), 900);
        assert_eq!(drain(&mut second).unwrap().len(), 900);
    });
}

#[test]
fn a_lost_consumer_releases_all_segments() {
    for link in Link::all(64).into_iter().take(2) {
        let partition = link.partition(PartitionKind::Pipelined, 1);
        let gate = link.gate(&partition, 0);
        let mut writer = writer(&partition, Selector::One(0));
        writer.emit(&batch(0, 1, 10), &nothing).unwrap();
        writer.flush().unwrap();
        let mut reader = link.consumer().reader(&gate);
        assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Batch(_))));
        writer.emit(&batch(0, 1000, 20), &nothing).unwrap();
        assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Batch(_))));
        drop(reader);
        gate.close();
        if link.consumer.is_some() {
            link.consumer().0.close();
        }
        common::wait_until("segments come home", || link.producer.0.stats().pool.held == 0);
        // No consumer wants this batch.
        let emitted = writer.emit(&batch(0, 1000, 20), &nothing);
        assert!(emitted.is_ok() || partition.check().is_err());
        // The producer may hear of the loss only now.
        common::wait_until("segments come home", || link.producer.0.stats().pool.held == 0);
    }
}

#[test]
fn a_partition_closed_while_rows_wait_releases_all_segments() {
    let [link, ..] = Link::all(64);
    let partition = link.partition(PartitionKind::Pipelined, 1);
    let _gate = link.gate(&partition, 0);
    let mut writer = writer(&partition, Selector::One(0));
    writer.emit(&batch(0, 1000, 20), &nothing).unwrap();
    assert!(link.producer.0.stats().pool.held > 5);
    drop(writer);
    link.producer.0.release_partition(partition.id());
    assert_eq!(link.producer.0.stats().pool.held, 0);
}

#[test]
fn buffers_in_pieces_are_joined_for_as_slice() {
    let [link, ..] = Link::all(64);
    let partition = link.partition(PartitionKind::Pipelined, 1);
    let gate = link.gate(&partition, 0);
    let mut writer = writer(&partition, Selector::One(0));
    writer.emit(&batch(0, 1000, 20), &nothing).unwrap();
    writer.finish().unwrap();
    let mut bytes = 0;
    while let Some(received) = gate.next(&nothing).unwrap() {
        if received.data_type == DataType::DataBufferWithClearEnd {
            assert_eq!(&received.buffer.as_slice()[..4], b"HDGP");
            bytes += received.buffer.len() as u64;
        }
    }
    assert_eq!(link.producer.0.stats().copied_joined, bytes);
}

thread_local! {
    /// True while this thread is within a call of a reader or writer, under whose lock it may be.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

fn within<T>(call: impl FnOnce() -> T) -> T {
    WITHIN.set(true);
    let result = call();
    WITHIN.set(false);
    result
}

/// Memory that records the thread that frees it.
struct Theirs(ArrowBuffer, Sender<Option<String>>);

impl AsRef<[u8]> for Theirs {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let thread = thread::current();
        let place = if WITHIN.get() { Some("within a call") } else { thread.name() };
        self.1.send(place.map(str::to_owned)).unwrap();
    }
}

/// A thousand rows whose keys are in memory that records who frees it.
fn theirs(from: i64, tell: &Sender<Option<String>>) -> RecordBatch {
    let memory = ArrowBuffer::from_vec((from..from + 1000).collect::<Vec<i64>>());
    let memory = ArrowBuffer::from(Bytes::from_owner(Theirs(memory, tell.clone())));
    let keys = Int64Array::new(ScalarBuffer::new(memory, 0, 1000), None);
    let text = StringArray::from(vec!["x"; 1000]);
    let schema = Arc::clone(page_schema().schema());
    RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(text)]).unwrap()
}

#[test]
fn foreign_memory_is_never_freed_within_a_call() {
    let (tell, gone) = channel();
    let [local, remote, ..] = Link::all(64);
    // A reader that combines batches copies those in pieces.
    let event = Event::Custom { name: "e".to_owned(), body: Bytes::new() };
    for (link, is_combined) in [(&local, false), (&local, true), (&remote, false)] {
        let partition = link.partition(PartitionKind::Pipelined, 1);
        let gate = link.gate(&partition, 0);
        let mut writer = writer(&partition, Selector::One(0));
        writer.emit(&batch(0, 1, 10), &nothing).unwrap();
        writer.flush().unwrap();
        let mut reader = link.consumer().reader(&gate);
        if is_combined {
            reader = reader.with_batch_bytes(1 << 20);
        }
        assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Batch(_))));
        let before = copied(link);
        for part in 0..5 {
            let rows = theirs(part * 1000, &tell);
            within(|| writer.emit(&rows, &nothing)).unwrap();
        }
        assert_eq!(copied(link), before, "none of them was copied into a page");
        within(|| writer.broadcast_event(&event)).unwrap();
        let mut rows = 0;
        loop {
            match within(|| reader.next(&nothing)).unwrap() {
                Some(Record::Batch(batch)) => rows += batch.num_rows(),
                Some(Record::Event { event: Event::Custom { .. }, .. }) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rows, 5_000);
        // All of it is unneeded now.
        within(|| writer.emit(&batch(0, 10, 10), &nothing)).unwrap();
        within(|| writer.flush()).unwrap();
        within(|| writer.finish()).unwrap();
        let mut places = Vec::new();
        // The thread of the connection may hold the last piece for a moment after it has sent it.
        wait_until("all of it is freed", || {
            link.producer.0.release_foreign();
            places.extend(gone.try_iter());
            places.len() == 5
        });
        assert!(!places.contains(&Some("within a call".to_owned())), "{is_combined} {places:?}");
    }
}

#[test]
fn foreign_memory_is_never_freed_by_a_thread_of_headgate() {
    let (tell, gone) = channel();
    let link = Link::remote(64, false);
    let (mut first, mut last) = ((0, 0), (0, 0));
    exchange(&link, &pipelined(1), Selector::One(0), |writer| {
        first = copied(&link);
        for part in 0..10 {
            let rows = theirs(part * 1000, &tell);
            writer.emit(&rows, &nothing).unwrap();
        }
        last = copied(&link);
    });
    assert_eq!(last, first, "none of them was copied");
    link.producer.0.close();
    let threads: Vec<_> = gone.try_iter().collect();
    assert_eq!(threads.len(), 10);
    let is_ours =
        |name: &Option<String>| name.as_ref().is_some_and(|it| it.starts_with("headgate"));
    assert!(!threads.iter().any(is_ours), "{threads:?}");
}
