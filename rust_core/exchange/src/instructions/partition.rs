//! Writing a partition and reading it within one process and one thread.

use std::sync::Arc;
use std::task::Poll;

use arrow_array::RecordBatch;
use bytes::Bytes;
use headgate_record::{PageSchema, Selector};

use super::{batch, schema_of};
use crate::address::Address;
use crate::config::Config;
use crate::environment::ShuffleEnvironment;
use crate::error::Result;
use crate::partition::{PartitionOptions, ResultPartition};
use crate::reader::{Record, RecordReader};
use crate::writer::{ArrowWriter, BytesWriter};

const SUBPARTITIONS: u32 = 16;
const SEGMENT: usize = 32 << 10;
const EMITS: usize = 20;
/// Rows of a batch: fewer than the free segments hold.
const ROWS: usize = 8192;
/// Records between two reads.
const RECORDS: usize = 1000;

#[inline(never)]
fn counted_emit(writer: &mut ArrowWriter, batch: &RecordBatch) -> Result<()> {
    writer.emit(batch, &|| Ok(()))
}

#[inline(never)]
fn counted_emit_of_bytes(writer: &mut BytesWriter, record: &Bytes) -> Result<()> {
    writer.emit(record, &|| Ok(()))
}

#[inline(never)]
fn counted_poll(reader: &mut RecordReader) -> Result<Poll<Option<Record>>> {
    reader.poll_next()
}

/// Returns a partition, and a reader of all its subpartitions.
fn partition(
    schema: Option<Arc<PageSchema>>,
) -> (ShuffleEnvironment, Arc<ResultPartition>, RecordReader) {
    let env = ShuffleEnvironment::new(Config::of_segments(400, SEGMENT)).unwrap();
    let options = PartitionOptions::all(SUBPARTITIONS as usize);
    let partition = env.create_result_partition(&options).unwrap();
    let gate = env.create_input_gate().unwrap();
    let hash = schema.as_ref().map_or([0; 32], |schema| schema.hash());
    for subpartition in 0..SUBPARTITIONS {
        let (process, partition) = (env.process(), partition.id());
        let address = Address { host: String::new(), port: 0, process, partition, subpartition };
        env.add_channel(&gate, &address, hash).unwrap();
    }
    gate.seal();
    let copies = Arc::clone(env.copies());
    let reader = RecordReader::new(gate, schema, env.spanning_options(), copies);
    (env, partition, reader)
}

/// Reads until the reader is pending. Returns the rows or bytes, and true at the end.
fn drain(
    reader: &mut RecordReader,
    poll: impl Fn(&mut RecordReader) -> Result<Poll<Option<Record>>>,
) -> (usize, bool) {
    let mut read = 0;
    loop {
        match poll(reader).unwrap() {
            Poll::Ready(Some(Record::Batch(batch))) => read += batch.num_rows(),
            Poll::Ready(Some(Record::Bytes(record))) => read += record.len(),
            Poll::Ready(Some(Record::Event { .. } | Record::Checkpoint(_))) => {}
            Poll::Ready(None) => return (read, true),
            Poll::Pending => return (read, false),
        }
    }
}

fn exchange(
    emit: impl Fn(&mut ArrowWriter, &RecordBatch) -> Result<()>,
    poll: impl Copy + Fn(&mut RecordReader) -> Result<Poll<Option<Record>>>,
) {
    let batch = batch(ROWS, true);
    let schema = schema_of(&batch);
    let (_env, partition, mut reader) = partition(Some(Arc::clone(&schema)));
    let selector = Selector::Hash { columns: vec![0.into()] };
    let mut writer = ArrowWriter::new(partition, schema, selector, 1 << 20).unwrap();
    let mut rows = 0;
    for _ in 0..EMITS {
        emit(&mut writer, &batch).unwrap();
        rows += drain(&mut reader, poll).0;
    }
    writer.finish().unwrap();
    let (last, ended) = drain(&mut reader, poll);
    assert_eq!((rows + last, ended), (EMITS * ROWS, true));
}

#[test]
fn counts_emit() {
    exchange(counted_emit, RecordReader::poll_next);
}

#[test]
fn counts_read() {
    exchange(|writer, batch| writer.emit(batch, &|| Ok(())), counted_poll);
}

#[test]
fn counts_emit_of_bytes() {
    let (_env, partition, mut reader) = partition(None);
    let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
    let mut writer = BytesWriter::new(partition, selector, 1 << 20).unwrap();
    let record = Bytes::from(vec![7; 100]);
    let mut bytes = 0;
    for _ in 0..EMITS {
        for _ in 0..RECORDS {
            counted_emit_of_bytes(&mut writer, &record).unwrap();
        }
        bytes += drain(&mut reader, RecordReader::poll_next).0;
    }
    writer.finish().unwrap();
    let (last, ended) = drain(&mut reader, RecordReader::poll_next);
    assert_eq!((bytes + last, ended), (EMITS * RECORDS * record.len(), true));
}
