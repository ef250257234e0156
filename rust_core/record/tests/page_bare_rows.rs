//! Rows that take no bytes: nulls, structs without fields, batches without columns.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int8Array, ListArray, NullArray, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use headgate_record::{
    PageBuilder, PageError, PageProfile, PageSchema, Pieces, Source, encode_rows, encoded_len,
    read_page, read_pieces,
};
use proptest::prelude::*;

/// Rows without bytes that a page of any length may have.
const LIMIT: u32 = 1 << 20;

fn page_schema(types: &[DataType]) -> Arc<PageSchema> {
    let fields: Vec<_> = types.iter().map(|it| Field::new("c", it.clone(), true)).collect();
    Arc::new(PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap())
}

/// A page without validity, whose columns have the given numbers of buffers. `lists` are the
/// offsets of its only column, if that is a list.
fn page(schema: &PageSchema, rows: u32, columns: &[u32], lists: &[i32], padding: usize) -> Vec<u8> {
    let buffers: u32 = columns.iter().sum();
    let header = (28 + 4 * columns.len() + 8 * buffers as usize).next_multiple_of(64);
    let body = (4 * lists.len()).next_multiple_of(64) + padding;
    let words = [u32::from_le_bytes(*b"HDGP"), 1, rows];
    let counts = [columns.len(), buffers as usize, header + body].map(|it| it as u32);
    let mut page: Vec<u8> = words.into_iter().chain(counts).flat_map(u32::to_le_bytes).collect();
    page.extend(&schema.hash()[..4]);
    page.resize(header + body, 0);
    if !lists.is_empty() {
        let place = 28 + 4 * columns.len() + 8;
        page[place..place + 4].copy_from_slice(&(header as u32).to_le_bytes());
        page[place + 4..place + 8].copy_from_slice(&(4 * lists.len() as u32).to_le_bytes());
        for (slot, offset) in page[header..].chunks_exact_mut(4).zip(lists) {
            slot.copy_from_slice(&offset.to_le_bytes());
        }
    }
    page
}

fn refused(schema: &PageSchema, page: Vec<u8>, got: u64, most: u64) -> bool {
    let bytes = page.len();
    match read_page(schema, page.into()) {
        Err(PageError::TooManyRows { rows, length, limit }) => {
            (rows, length, limit) == (got, bytes, most)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_short_page_has_few_rows_without_bytes() {
    let cases: [(&[DataType], &[u32]); 3] =
        [(&[], &[]), (&[DataType::Null], &[0]), (&[DataType::Struct(Fields::empty())], &[1])];
    for (types, columns) in cases {
        let schema = page_schema(types);
        let of_rows = |rows| page(&schema, rows, columns, &[], 0);
        let batch = read_page(&schema, of_rows(LIMIT).into()).unwrap();
        assert_eq!(batch.num_rows(), LIMIT as usize, "{types:?}");
        for rows in [LIMIT + 1, (1 << 31) - 1, 1 << 31, u32::MAX] {
            assert!(refused(&schema, of_rows(rows), rows.into(), LIMIT.into()));
        }
    }
}

#[test]
fn a_short_page_has_few_elements_without_bytes() {
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let schema = page_schema(&[DataType::List(item)]);
    let of_elements = |elements: u32| page(&schema, 1, &[2, 0], &[0, elements as i32], 0);
    let batch = read_page(&schema, of_elements(LIMIT).into()).unwrap();
    let lists = batch.column(0).as_any().downcast_ref::<ListArray>().unwrap();
    assert_eq!(lists.value(0).len(), LIMIT as usize);
    for elements in [LIMIT + 1, (1 << 31) - 1] {
        assert!(refused(&schema, of_elements(elements), elements.into(), LIMIT.into()));
    }
}

#[test]
fn a_long_page_has_at_most_eight_rows_for_each_byte() {
    let schema = page_schema(&[DataType::Null]);
    let of_rows = |rows| page(&schema, rows, &[0], &[], 1 << 18);
    let most = 8 * (64 + (1 << 18));
    assert_eq!(read_page(&schema, of_rows(most).into()).unwrap().num_rows(), most as usize);
    assert!(refused(&schema, of_rows(most + 1), u64::from(most) + 1, most.into()));
}

/// A column of a type with or without bytes, for `rows` rows.
fn column(kind: usize, rows: usize, elements: usize) -> ArrayRef {
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let numbers = || {
        let numbers = (0..rows).map(|row| (row.wrapping_mul(0x9e37_79b9) >> 9) as i8);
        Arc::new(Int8Array::from_iter_values(numbers)) as ArrayRef
    };
    match kind {
        0 => Arc::new(NullArray::new(rows)),
        1 => Arc::new(StructArray::new_empty_fields(rows, None)),
        2 => numbers(),
        3 => {
            let columns: Vec<ArrayRef> = vec![Arc::new(NullArray::new(rows)), numbers()];
            let fields = vec![field("n", DataType::Null), field("b", DataType::Int8)];
            Arc::new(StructArray::new(fields.into(), columns, None))
        }
        _ => {
            let each = elements / rows.max(1);
            let lens = (0..rows).map(|row| if row + 1 < rows { each } else { each + elements % 7 });
            let offsets = OffsetBuffer::<i32>::from_lengths(lens);
            let inside = NullArray::new(offsets.last().copied().unwrap() as usize);
            Arc::new(ListArray::new(field("item", DataType::Null), offsets, Arc::new(inside), None))
        }
    }
}

fn append_all(schema: &Arc<PageSchema>, source: &Source, target: usize) -> Vec<Vec<u8>> {
    let (mut pages, mut done, mut profile) = (Vec::new(), 0, PageProfile::new());
    while done < source.num_rows() {
        let mut builder = PageBuilder::new(Arc::clone(schema), vec![0xaa; target], &profile);
        let appended = builder.append_range(source, done, source.num_rows() - done);
        if appended == 0 {
            let row = [done as u32];
            let page = encode_rows(schema, source, &row).unwrap();
            assert!(page.len() as u64 <= encoded_len(schema, source, &row));
            assert!(encoded_len(schema, source, &row) > target as u64 / 64 * 64);
            pages.push(page);
            done += 1;
            continue;
        }
        builder.teach(&mut profile);
        let stats = builder.stats();
        let (mut page, length) = builder.finish();
        assert_eq!((stats.rows, stats.bytes), (appended, length));
        page.truncate(length);
        pages.push(page);
        done += appended;
    }
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rows_without_bytes_are_split_over_pages_and_arrive(
        kinds in prop::collection::vec(0usize..5, 0..4),
        rows in prop_oneof![
            1usize..10, Just(1 << 20), Just((1 << 20) + 1), 1usize..3 << 20,
        ],
        elements in prop_oneof![Just(1 << 20), Just((1 << 20) + 1), 0usize..5 << 20],
        target in prop_oneof![Just(4 << 10), Just(256 << 10), Just(4 << 20)],
    ) {
        let columns: Vec<ArrayRef> =
            kinds.iter().map(|kind| column(*kind, rows, elements)).collect();
        let fields: Vec<_> = columns
            .iter()
            .enumerate()
            .map(|(i, it)| Field::new(format!("c{i}"), it.data_type().clone(), true))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options).unwrap();
        let schema = Arc::new(PageSchema::try_new(batch.schema()).unwrap());
        let source = Source::try_new(&schema, &batch).unwrap();

        let pages = append_all(&schema, &source, target);
        let mut done = 0;
        for page in pages {
            let zeros = page.len();
            let read = read_page(&schema, page.into()).unwrap();
            prop_assert!(read.num_rows() == 1 || zeros <= target);
            prop_assert_eq!(&read, &batch.slice(done, read.num_rows()));
            done += read.num_rows();
        }
        prop_assert_eq!(done, rows);

        let all: Vec<u32> = (0..rows as u32).collect();
        let page = encode_rows(&schema, &source, &all).unwrap();
        prop_assert!(page.len() as u64 <= encoded_len(&schema, &source, &all));
        prop_assert_eq!(&read_page(&schema, page.into()).unwrap(), &batch);

        if let Some(pieces) = Pieces::try_new(&schema, &source, 0) {
            let (mut done, mut pages) = (0, 0);
            while done < rows {
                let page = pieces.cut(done, target).unwrap();
                let read = read_pieces(&schema, page.pieces).unwrap();
                prop_assert_eq!(&read, &batch.slice(done, page.rows));
                done += page.rows;
                pages += 1;
            }
            prop_assert!(pages <= 2 + rows / (1 << 17) + 2 * rows * kinds.len() / target);
        }
    }
}

#[test]
fn a_batch_of_two_billion_rows_without_bytes_has_few_pages() {
    let schema = page_schema(&[]);
    let rows = u32::MAX as usize;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema.schema()), vec![], &options);
    let source = Source::try_new(&schema, &batch.unwrap()).unwrap();
    let pages = append_all(&schema, &source, 4096);
    assert_eq!(pages.len(), 4096);
    let pieces = Pieces::try_new(&schema, &source, 0).unwrap();
    for start in [0, rows / 2] {
        let page = pieces.cut(start, 4096).unwrap();
        assert!(page.rows <= LIMIT as usize && page.rows > LIMIT as usize / 2, "{}", page.rows);
    }
    assert_eq!(pieces.cut(rows - 10, 4096).unwrap().rows, 10);
}
