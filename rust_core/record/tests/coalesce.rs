//! Combined small batches, compared with Arrow's `concat`.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod support;

use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat;
use bytes::Bytes;
use headgate_record::{BatchCoalescer, PageSchema, Source, encode_rows, read_page};
use proptest::prelude::*;
use support::Random;

/// Encodes rows of a batch as a page; returns the batch read from it and the length of the page.
fn page(
    schema: &Arc<PageSchema>,
    batch: &RecordBatch,
    from: usize,
    len: usize,
) -> (RecordBatch, usize) {
    let source = Source::try_new(schema, &batch.slice(from, len)).unwrap();
    let rows: Vec<u32> = (0..u32::try_from(len).unwrap()).collect();
    let page = Bytes::from(encode_rows(schema, &source, &rows).unwrap());
    let length = page.len();
    (read_page(schema, page).unwrap(), length)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn combined_batches_equal_concat(
        types in prop::collection::vec(
            (
                prop_oneof![
                    2 => prop::sample::select(support::types()),
                    1 => prop::sample::select(support::nested_types()),
                    1 => prop::sample::select(support::packed_types()),
                ],
                any::<bool>(),
            ),
            1..6),
        seed in any::<u64>(),
        rows in 1_usize..300,
        max_bytes in prop::sample::select(vec![0, 10, 40, 400]),
        pieces in prop::collection::vec((1_usize..30, prop::bool::weighted(0.1)), 1..40),
        batch_bytes in prop_oneof![0_usize..3000, 3000_usize..200_000],
    ) {
        let schema = support::schema(&types);
        let (_, batch) = support::batches(&schema, rows, max_bytes, &mut Random(seed));
        let schema = Arc::new(PageSchema::try_new(schema).unwrap());
        let mut coalescer = BatchCoalescer::new(Arc::clone(&schema), batch_bytes);
        let (mut given, mut made) = (Vec::new(), Vec::new());
        let (mut from, mut pieces) = (0, pieces.iter().cycle());
        while from < rows {
            let (len, ends) = *pieces.next().unwrap();
            let len = len.min(rows - from);
            let (batch, length) = page(&schema, &batch, from, len);
            from += len;
            if coalescer.is_large(length) || ends {
                made.extend(coalescer.finish().unwrap());
                prop_assert!(coalescer.is_empty());
            }
            if coalescer.is_large(length) {
                made.push(batch.clone());
            } else {
                let before = made.len();
                coalescer.push(&batch, &mut made).unwrap();
                for full in &made[before..] {
                    let (_, length) = page(&schema, full, 0, full.num_rows());
                    prop_assert!(length <= batch_bytes, "{length} bytes of {batch_bytes}");
                }
            }
            given.push(batch);
        }
        made.extend(coalescer.finish().unwrap());
        prop_assert!(coalescer.finish().unwrap().is_none());
        prop_assert_eq!(made.iter().map(RecordBatch::num_rows).sum::<usize>(), rows);
        for (index, field) in schema.schema().fields().iter().enumerate() {
            let plain = support::plain(field.data_type());
            let whole = |batches: &[RecordBatch]| {
                let columns: Vec<_> =
                    batches.iter().map(|batch| cast(batch.column(index), &plain).unwrap()).collect();
                concat(&columns.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).unwrap()
            };
            prop_assert_eq!(&whole(&given), &whole(&made));
        }
    }
}

fn numbers() -> Arc<PageSchema> {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    Arc::new(PageSchema::try_new(Arc::new(schema)).unwrap())
}

fn batch(schema: &Arc<PageSchema>, from: i64, to: i64) -> RecordBatch {
    let column = Arc::new(Int64Array::from_iter_values(from..to));
    RecordBatch::try_new(Arc::clone(schema.schema()), vec![column]).unwrap()
}

#[test]
fn a_batch_is_complete_once_a_row_does_not_fit() {
    let schema = numbers();
    // A header of 64 bytes and 120 numbers.
    let mut coalescer = BatchCoalescer::new(Arc::clone(&schema), 1024);
    let mut made = Vec::new();
    coalescer.push(&batch(&schema, 0, 60), &mut made).unwrap();
    coalescer.push(&batch(&schema, 60, 120), &mut made).unwrap();
    assert!(made.is_empty() && !coalescer.is_empty());
    coalescer.push(&batch(&schema, 120, 121), &mut made).unwrap();
    assert_eq!(made, [batch(&schema, 0, 120)]);
    assert_eq!(coalescer.finish().unwrap(), Some(batch(&schema, 120, 121)));
    assert!(coalescer.is_empty());
}

#[test]
fn a_small_batch_does_not_keep_the_whole_target() {
    let schema = numbers();
    let mut coalescer = BatchCoalescer::new(Arc::clone(&schema), 1 << 20);
    for _ in 0..2 {
        coalescer.push(&batch(&schema, 0, 10), &mut Vec::new()).unwrap();
        let few = coalescer.finish().unwrap().unwrap();
        assert!(few.get_array_memory_size() < 1 << 10, "{}", few.get_array_memory_size());
    }
}
