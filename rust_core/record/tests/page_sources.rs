//! Pages with rows of several batches, and values of a batch that must not be sent.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod support;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int8Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray, UInt32Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::concat::concat;
use arrow_select::take::{take, take_record_batch};
use headgate_record::{
    PageBuilder, PageProfile, PageSchema, Scatter, Selector, Source, encode_rows, read_page,
};
use proptest::prelude::*;
use support::Random;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn one_page_holds_rows_of_many_batches(
        types in prop::collection::vec(
            prop::sample::select([support::types(), support::nested_types()].concat()), 1..5),
        seed in any::<u64>(),
        lens in prop::collection::vec(1usize..40, 2..8),
        by_range in any::<bool>(),
    ) {
        let types: Vec<_> = types.into_iter().map(|data_type| (data_type, true)).collect();
        let schema = Arc::new(PageSchema::try_new(support::schema(&types)).unwrap());
        let mut random = Random(seed);
        let target = vec![0xaa; 1 << 17];
        let mut builder = PageBuilder::new(Arc::clone(&schema), target, &PageProfile::new());
        let mut expected: Vec<Vec<ArrayRef>> = vec![Vec::new(); types.len()];
        for rows in lens {
            // Each column of each batch has nulls or none.
            let (batch, other) = support::batches(schema.schema(), rows, 30, &mut random);
            let source = Source::try_new(&schema, &other).unwrap();
            let first = random.below(rows);
            source.warm(&schema, first..rows);
            let selection: Vec<u32> =
                (first..rows).map(|row| u32::try_from(row).unwrap()).collect();
            let count = if by_range {
                builder.append_range(&source, first, rows - first)
            } else {
                builder.append(&source, &selection)
            };
            prop_assert_eq!(count, selection.len());
            let selection = UInt32Array::from(selection);
            for (expected, column) in expected.iter_mut().zip(batch.columns()) {
                expected.push(take(column, &selection, None).unwrap());
            }
        }
        let (mut page, length) = builder.finish();
        page.truncate(length);
        let read = read_page(&schema, page.into()).unwrap();
        for (got, expected) in read.columns().iter().zip(&expected) {
            let expected: Vec<_> = expected.iter().map(AsRef::as_ref).collect();
            prop_assert_eq!(got, &concat(&expected).unwrap());
        }
    }
}

#[test]
fn values_under_a_null_are_not_sent() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("b", DataType::Boolean, true),
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]));
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let batch = |bits: Vec<bool>, numbers: Vec<i64>, text: &str, offsets: Vec<i32>| {
        let offsets = OffsetBuffer::new(offsets.into());
        let text = Buffer::from(text.as_bytes());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BooleanArray::new(BooleanBuffer::from(bits), nulls.clone())),
            Arc::new(Int64Array::new(numbers.into(), nulls.clone())),
            Arc::new(StringArray::new(offsets, text, nulls.clone())),
        ];
        RecordBatch::try_new(schema.clone(), columns).unwrap()
    };
    let secret = batch(vec![true; 3], vec![1, 0x5ec2e7, 3], "asecretb", vec![0, 1, 7, 8]);
    let clean = batch(vec![true, false, true], vec![1, 0, 3], "ab", vec![0, 1, 1, 2]);
    let page_schema = Arc::new(PageSchema::try_new(schema.clone()).unwrap());
    let page = |batch: &RecordBatch, by_range: bool| {
        let source = Source::try_new(&page_schema, batch).unwrap();
        let target = vec![0x55; 4096];
        let mut builder = PageBuilder::new(Arc::clone(&page_schema), target, &PageProfile::new());
        let count = if by_range {
            builder.append_range(&source, 0, 3)
        } else {
            builder.append(&source, &[0, 1, 2])
        };
        assert_eq!(count, 3);
        let (mut page, length) = builder.finish();
        page.truncate(length);
        page
    };
    assert!(page(&secret, false) == page(&clean, false));
    assert!(page(&secret, true) == page(&clean, false));
    let source = Source::try_new(&page_schema, &secret).unwrap();
    let heap = encode_rows(&page_schema, &source, &[0, 1, 2]).unwrap();
    assert!(heap == page(&clean, false));
}

#[test]
fn children_of_a_null_are_not_sent() {
    let numbers = Field::new("item", DataType::Int8, false);
    let lists = DataType::FixedSizeList(Arc::new(numbers.clone()), 2);
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("l", lists, false),
    ]);
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let batch = |n: i64, text: &str, l: i8| {
        let items: ArrayRef = Arc::new(Int8Array::from(vec![1, 2, l, l, 5, 6]));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![1, n, 3])),
            Arc::new(StringArray::from(vec!["a", text, "b"])),
            Arc::new(FixedSizeListArray::new(Arc::new(numbers.clone()), 2, items, None)),
        ];
        let structs: ArrayRef = Arc::new(StructArray::new(fields.clone(), columns, nulls.clone()));
        let lists = OffsetBuffer::from_lengths([1, 1, 1]);
        let item = Arc::new(Field::new("item", structs.data_type().clone(), true));
        let lists = ListArray::new(item, lists, structs.clone(), nulls.clone());
        let columns = [("s", structs), ("l", Arc::new(lists) as ArrayRef)];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
    };
    let (secret, clean) = (batch(0x5ec2e7, "secret", 7), batch(0, "", 0));
    let schema = Arc::new(PageSchema::try_new(clean.schema()).unwrap());
    for rows in [vec![0, 1, 2], vec![2, 1, 0]] {
        let pages = [&secret, &clean].map(|batch| {
            let source = Source::try_new(&schema, batch).unwrap();
            encode_rows(&schema, &source, &rows).unwrap()
        });
        assert!(pages[0] == pages[1]);
        let read = read_page(&schema, pages[0].clone().into()).unwrap();
        let expected = take_record_batch(&secret, &UInt32Array::from(rows)).unwrap();
        assert_eq!(read, expected);
    }
}

#[test]
fn a_batch_is_selected_scattered_and_read_again_in_order() {
    let rows = 20_000;
    let keys = Int64Array::from_iter((0..rows).map(|row| (row % 10 != 0).then_some(row % 97)));
    let numbers = Int64Array::from_iter_values(0..rows);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("k", Arc::new(keys) as ArrayRef, true),
        ("n", Arc::new(numbers) as ArrayRef, false),
    ])
    .unwrap();
    let schema = Arc::new(PageSchema::try_new(batch.schema()).unwrap());
    let mut ids = Vec::new();
    let mut selector = Selector::hash_by_name(&batch.schema(), &[["k"]]).unwrap();
    selector.select(&batch, 5, &mut ids).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    let mut builders: Vec<_> = (0..5)
        .map(|_| PageBuilder::new(Arc::clone(&schema), vec![0; 1 << 20], &PageProfile::new()))
        .collect();
    let (mut scatter, mut first) = (Scatter::new(), 0);
    for block in ids.chunks(Scatter::block_rows(5)) {
        scatter.group(block, first, 5).unwrap();
        for (partition, rows) in scatter.groups() {
            assert_eq!(builders[partition as usize].append(&source, rows), rows.len());
        }
        first += u32::try_from(block.len()).unwrap();
    }
    for (partition, builder) in (0..).zip(builders) {
        let (mut page, length) = builder.finish();
        page.truncate(length);
        let selected = (0..).zip(&ids).filter(|&(_, &id)| id == partition).map(|(row, _)| row);
        let selected = UInt32Array::from_iter_values(selected);
        assert!(!selected.is_empty());
        let read = read_page(&schema, page.into()).unwrap();
        for (got, column) in read.columns().iter().zip(batch.columns()) {
            assert!(*got == take(column, &selected, None).unwrap());
        }
    }
}
