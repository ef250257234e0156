//! Pages in pieces of a batch, compared with pages that copy it.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod support;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use headgate_record::{
    PageError, PageSchema, PiecedPage, Pieces, Source, encode_rows, read_page, read_pieces,
};
use proptest::prelude::*;
use support::Random;

fn cut(schema: &PageSchema, source: &Source, capacity: usize) -> Vec<PiecedPage> {
    let pieces = Pieces::try_new(schema, source, 0).unwrap();
    let (mut pages, mut done) = (Vec::new(), 0);
    while done < source.num_rows() {
        let Some(page) = pieces.cut(done, capacity) else { break };
        assert!(page.rows > 0 && page.len <= capacity);
        done += page.rows;
        pages.push(page);
    }
    pages
}

fn together(page: &PiecedPage) -> Vec<u8> {
    let bytes = page.pieces.concat();
    assert_eq!(bytes.len(), page.len);
    bytes
}

fn page_schema(batch: &RecordBatch) -> Arc<PageSchema> {
    Arc::new(PageSchema::try_new(batch.schema()).unwrap())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

/// Memory that shows in the count of `lives` while somebody holds it.
struct Tracked(Buffer, #[allow(dead_code, reason = "it is counted")] Arc<()>);

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The same column over tracked memory.
fn tracked(column: &ArrayRef, lives: &Arc<()>) -> ArrayRef {
    let data = column.to_data();
    let buffers = data
        .buffers()
        .iter()
        .map(|buffer| Buffer::from(Bytes::from_owner(Tracked(buffer.clone(), Arc::clone(lives)))));
    let buffers = buffers.collect();
    make_array(data.into_builder().buffers(buffers).build().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]
    #[test]
    fn pages_in_pieces_are_read_as_their_rows(
        types in prop::collection::vec((prop::sample::select(support::types()), any::<bool>()), 0..6),
        seed in any::<u64>(),
        rows in 1usize..3000,
        max_bytes in prop::sample::select(vec![0, 10, 40]),
        capacity in prop_oneof![600usize..3000, 3000usize..200_000],
        from in 0usize..200,
    ) {
        let schema = support::schema(&types);
        let (expected, batch) = support::batches(&schema, rows, max_bytes, &mut Random(seed));
        let from = from.min(rows - 1);
        let (expected, batch) = (expected.slice(from, rows - from), batch.slice(from, rows - from));
        let schema = PageSchema::try_new(schema).unwrap();
        let source = Source::try_new(&schema, &batch).unwrap();
        let Some(pieces) = Pieces::try_new(&schema, &source, 0) else {
            // The other batch may have views.
            let views = [DataType::Utf8View, DataType::BinaryView];
            let has_view = batch.columns().iter().any(|it| views.contains(it.data_type()));
            prop_assert!(has_view, "{:?}", batch.schema());
            return Ok(());
        };
        prop_assert!(pieces.pinned() > 0 || types.iter().all(|(it, _)| it.is_null()) || max_bytes == 0);
        let pages = cut(&schema, &source, capacity);
        let done: usize = pages.iter().map(|page| page.rows).sum();
        let mut read = Vec::new();
        for page in pages {
            let whole = read_page(&schema, together(&page).into()).unwrap();
            let batch = read_pieces(&schema, page.pieces).unwrap();
            prop_assert_eq!(&whole, &batch);
            read.push(batch);
        }
        let read = concat_batches(expected.schema_ref(), &read).unwrap();
        prop_assert_eq!(read, expected.slice(0, done));
        if done < batch.num_rows() {
            // One more row does not fit.
            let row = [u32::try_from(done).unwrap()];
            let page = encode_rows(&Arc::new(schema.clone()), &source, &row).unwrap();
            prop_assert!(page.len() + 64 * 2 * types.len() > capacity);
        }
    }

    #[test]
    fn a_batch_holds_the_memory_that_its_pieces_hold(
        types in prop::collection::vec((prop::sample::select(support::types()), any::<bool>()), 1..6),
        seed in any::<u64>(),
        rows in 1usize..500,
    ) {
        let schema = support::schema(&types);
        let (batch, _) = support::batches(&schema, rows, 20, &mut Random(seed));
        let lives = Arc::new(());
        let columns = batch.columns().iter().map(|column| tracked(column, &lives)).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let schema = PageSchema::try_new(schema).unwrap();
        let source = Source::try_new(&schema, &batch).unwrap();
        if Pieces::try_new(&schema, &source, 0).is_none() {
            return Ok(());
        }
        let mut pages = cut(&schema, &source, 1 << 20);
        prop_assert_eq!(pages.len(), 1);
        let pieces = pages.pop().unwrap().pieces;
        drop((batch, source));
        let held = Arc::strong_count(&lives);
        let batch = read_pieces(&schema, pieces).unwrap();
        prop_assert_eq!(Arc::strong_count(&lives), held);
        drop(batch);
        prop_assert_eq!(Arc::strong_count(&lives), 1);
    }

    #[test]
    fn concatenated_pieces_equal_the_copied_page(
        types in prop::collection::vec(prop::sample::select(support::types()), 0..6),
        seed in any::<u64>(),
        rows in 1usize..500,
    ) {
        // For nullable columns the position of validity differs.
        let types: Vec<_> = types.into_iter().map(|it| (it, false)).collect();
        let schema = support::schema(&types);
        let (_, batch) = support::batches(&schema, rows, 20, &mut Random(seed));
        let schema = Arc::new(PageSchema::try_new(schema).unwrap());
        let source = Source::try_new(&schema, &batch).unwrap();
        if Pieces::try_new(&schema, &source, 0).is_none() {
            return Ok(());
        }
        let all: Vec<u32> = (0..u32::try_from(rows).unwrap()).collect();
        let [page] = &cut(&schema, &source, 1 << 20)[..] else {
            panic!("all of them fit");
        };
        prop_assert_eq!(together(page), encode_rows(&schema, &source, &all).unwrap());
        prop_assert_eq!(page.copied, 0);
    }
}

#[test]
fn values_are_used_in_place() {
    let numbers = Int64Array::from_iter_values(0..10_000);
    let texts = StringArray::from_iter_values((0..10_000).map(|i| format!("row {i}")));
    let (start, end) = (numbers.values().inner().as_ptr(), texts.values().as_ptr());
    let rows = batch(vec![("n", Arc::new(numbers)), ("s", Arc::new(texts))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let pages = cut(&schema, &source, 64 << 10);
    assert!(pages.len() > 2);
    let (mut row, mut byte) = (0, 0);
    for page in pages {
        let read = read_pieces(&schema, page.pieces).unwrap();
        let numbers = read.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        let texts = read.column(1).as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(numbers.values().inner().as_ptr(), start.wrapping_add(row * 8));
        assert_eq!(texts.values().as_ptr(), end.wrapping_add(byte));
        (row, byte) = (row + page.rows, byte + texts.values().len());
    }
    assert_eq!(row, 10_000);
}

#[test]
fn values_under_nulls_are_not_sent() {
    let values = vec![1.0, f64::NAN, 3.0, f64::NAN];
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let rows = batch(vec![("x", Arc::new(Float64Array::new(values.into(), Some(nulls.clone()))))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let [page] = &cut(&schema, &source, 4096)[..] else { panic!("one page") };
    assert_eq!(page.copied, 32);
    let nan = f64::NAN.to_le_bytes();
    assert_eq!(together(page).windows(8).filter(|bytes| **bytes == nan).count(), 1);

    let offsets = OffsetBuffer::from_lengths([1, 6, 1, 1]);
    let secret = StringArray::new(offsets, Buffer::from(b"asecretbc"), Some(nulls));
    let rows = batch(vec![("s", Arc::new(secret))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    assert!(Pieces::try_new(&schema, &source, 0).is_none());
}

#[test]
fn columns_of_another_layout_have_no_pieces() {
    for data_type in [support::nested_types(), support::packed_types()].concat() {
        let schema = support::schema(&[(DataType::Int64, true), (data_type.clone(), true)]);
        let (rows, _) = support::batches(&schema, 50, 10, &mut Random(1));
        let schema = PageSchema::try_new(schema).unwrap();
        let source = Source::try_new(&schema, &rows).unwrap();
        assert!(Pieces::try_new(&schema, &source, 0).is_none(), "{data_type}");
    }
}

#[test]
fn a_slice_counts_its_buffers_once() {
    let memory = Buffer::from_vec((0..1000_i64).collect::<Vec<_>>());
    let column = |from: usize| -> ArrayRef {
        Arc::new(Int64Array::new(arrow_buffer::ScalarBuffer::new(memory.clone(), from, 10), None))
    };
    let rows = batch(vec![("a", column(0)), ("b", column(500))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let pieces = Pieces::try_new(&schema, &source, 0).unwrap();
    assert_eq!(pieces.pinned(), 8000);
    assert!(pieces.len() < 1000);
}

#[test]
fn the_widest_row_is_estimated() {
    let texts = StringArray::from(vec!["a".to_owned(), "b".repeat(100), String::new()]);
    let rows =
        batch(vec![("s", Arc::new(texts)), ("n", Arc::new(Int64Array::from(vec![1, 2, 3])))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let pieces = Pieces::try_new(&schema, &source, 0).unwrap();
    assert!(pieces.has_rows_within(116) && !pieces.has_rows_within(115));
}

#[test]
fn a_row_beyond_the_capacity_has_no_pieces() {
    let rows = batch(vec![("s", Arc::new(StringArray::from(vec!["a".repeat(5000)])))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let pieces = Pieces::try_new(&schema, &source, 0).unwrap();
    assert!(pieces.cut(0, 4096).is_none());
    assert_eq!(pieces.cut(0, 8192).unwrap().rows, 1);
}

#[test]
fn a_buffer_across_pieces_is_rejected() {
    let rows = batch(vec![("n", Arc::new(Int64Array::from_iter_values(0..8)))]);
    let schema = page_schema(&rows);
    let source = Source::try_new(&schema, &rows).unwrap();
    let [page] = &cut(&schema, &source, 4096)[..] else { panic!("one page") };
    let bytes = Bytes::from(together(page));
    let at = bytes.len() - 8;
    let torn = vec![bytes.slice(..at), bytes.slice(at..)];
    assert!(matches!(read_pieces(&schema, torn), Err(PageError::Torn { .. })));
    let short = vec![bytes.slice(..20), bytes.slice(20..)];
    assert!(matches!(read_pieces(&schema, short), Err(PageError::TooShort { .. })));
    let less = vec![bytes.slice(..at)];
    assert!(matches!(read_pieces(&schema, less), Err(PageError::Length { .. })));
    assert!(matches!(read_pieces(&schema, Vec::new()), Err(PageError::TooShort { .. })));
}

#[test]
fn unaligned_numbers_and_offsets_are_rejected() {
    let texts = StringArray::from_iter_values((0..8).map(|i| format!("row {i}")));
    let columns: [ArrayRef; 2] = [Arc::new(Int64Array::from_iter_values(0..8)), Arc::new(texts)];
    for column in columns {
        let rows = batch(vec![("c", column)]);
        let schema = page_schema(&rows);
        let source = Source::try_new(&schema, &rows).unwrap();
        let page = encode_rows(&schema, &source, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let mut memory = vec![0; page.len() + 8];
        let odd = memory.as_ptr().align_offset(8) + 1;
        memory[odd..odd + page.len()].copy_from_slice(&page);
        let page = Bytes::from(memory).slice(odd..odd + page.len());
        assert_eq!(read_page(&schema, page.clone()).unwrap(), rows, "copied as a whole");
        let Err(PageError::InvalidColumn { column, source }) = read_pieces(&schema, vec![page])
        else {
            panic!("numbers at odd addresses");
        };
        assert_eq!(column, "c");
        assert!(source.to_string().contains("Misaligned buffers[0]"), "{source}");
    }
}
