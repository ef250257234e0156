//! Selecting subpartitions for rows, writing rows into pages, reading pages.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use bytes::Bytes;
use headgate_record::{
    PageBuilder, PageProfile, PageSchema, Scatter, Source, partition_ids, read_page,
};

use super::{batch, schema_of};
use crate::aligned::Aligned;

const ROWS: usize = 1 << 16;
const PARTITIONS: u32 = 16;
const PAGE: usize = 256 << 10;

type Append = fn(&mut PageBuilder<Vec<u8>>, &Source, &[u32]) -> usize;

#[inline(never)]
fn counted_ids(batch: &RecordBatch) -> Vec<u32> {
    ids_of(batch)
}

#[inline(never)]
fn counted_group(scatter: &mut Scatter, ids: &[u32]) {
    scatter.group(ids, 0, PARTITIONS).unwrap();
}

#[inline(never)]
fn counted_append(builder: &mut PageBuilder<Vec<u8>>, source: &Source, rows: &[u32]) -> usize {
    builder.append(source, rows)
}

#[inline(never)]
fn counted_read(schema: &PageSchema, page: &Bytes) -> RecordBatch {
    read_page(schema, page.clone()).unwrap()
}

fn ids_of(batch: &RecordBatch) -> Vec<u32> {
    let mut ids = Vec::new();
    partition_ids(batch, &[0.into()], PARTITIONS, &mut ids).unwrap();
    ids
}

/// Returns all rows in full pages, partition by partition.
fn pages(batch: &RecordBatch, append: Append) -> Vec<Bytes> {
    let schema = schema_of(batch);
    let source = Source::try_new(&schema, batch).unwrap();
    let mut scatter = Scatter::new();
    scatter.group(&ids_of(batch), 0, PARTITIONS).unwrap();
    let mut profile = PageProfile::new();
    let mut pages = Vec::new();
    for (_, mut rows) in scatter.groups() {
        while !rows.is_empty() {
            let mut builder = PageBuilder::new(Arc::clone(&schema), vec![0; PAGE], &profile);
            rows = &rows[append(&mut builder, &source, rows)..];
            builder.teach(&mut profile);
            let (page, length) = builder.finish();
            pages.push(Bytes::from_owner(Aligned(Buffer::from_slice_ref(&page[..length]))));
        }
    }
    pages
}

fn encodes(batch: &RecordBatch) {
    let schema = schema_of(batch);
    let pages = pages(batch, counted_append);
    let rows = pages.iter().map(|page| read_page(&schema, page.clone()).unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), ROWS);
}

fn decodes(batch: &RecordBatch) {
    let schema = schema_of(batch);
    let pages = pages(batch, PageBuilder::append);
    let rows = pages.iter().map(|page| counted_read(&schema, page).num_rows());
    assert_eq!(rows.sum::<usize>(), ROWS);
}

#[test]
fn counts_hash() {
    let ids = counted_ids(&batch(ROWS, false));
    assert_eq!(ids.len(), ROWS);
    assert!((0..PARTITIONS).all(|id| ids.contains(&id)));
}

#[test]
fn counts_scatter() {
    let mut scatter = Scatter::new();
    counted_group(&mut scatter, &ids_of(&batch(ROWS, false)));
    assert_eq!(scatter.groups().map(|(_, rows)| rows.len()).sum::<usize>(), ROWS);
}

#[test]
fn counts_encode_of_numbers() {
    encodes(&batch(ROWS, false));
}

#[test]
fn counts_encode_of_strings() {
    encodes(&batch(ROWS, true));
}

#[test]
fn counts_decode_of_numbers() {
    decodes(&batch(ROWS, false));
}

#[test]
fn counts_decode_of_strings() {
    decodes(&batch(ROWS, true));
}
