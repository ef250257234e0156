//! Round trips of rows through pages, compared with Arrow's `take`.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod support;

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::{concat::concat, take::take};
use bytes::Bytes;
use headgate_record::{
    EncodeError, PageBuilder, PageProfile, PageSchema, Source, SourceError, encode_rows,
    encoded_len, read_page,
};
use proptest::prelude::*;
use support::Random;

/// Writes rows into pages of `capacity` in targets of `target_len` bytes that are full of
/// `garbage`.
fn write(
    schema: &Arc<PageSchema>,
    batch: &RecordBatch,
    rows: &[u32],
    (target_len, capacity): (usize, usize),
    garbage: u8,
) -> Vec<Vec<u8>> {
    let source = Source::try_new(schema, batch).unwrap();
    let mut profile = PageProfile::new();
    let mut pages = Vec::new();
    let (mut done, mut piece) = (0, 1);
    while done < rows.len() {
        let target = vec![garbage; target_len];
        let mut builder = PageBuilder::new(Arc::clone(schema), target, &profile);
        builder = builder.with_capacity(capacity);
        loop {
            // Appends of growing size, by list, or by range if the rows are adjacent.
            let next = &rows[done..rows.len().min(done + piece)];
            let adjacent = next.windows(2).all(|pair| pair[1] == pair[0] + 1);
            let count = match next.first() {
                Some(&first) if adjacent => {
                    builder.append_range(&source, first as usize, next.len())
                }
                _ => builder.append(&source, next),
            };
            done += count;
            piece = piece % 37 + 3;
            if count < next.len() || done == rows.len() {
                break;
            }
        }
        if builder.is_empty() {
            let row = &rows[done..=done];
            let page = encode_rows(schema, &source, row).unwrap();
            assert!(page.len() as u64 <= encoded_len(schema, &source, row));
            assert!(encoded_len(schema, &source, row) > target_len as u64 / 64 * 64);
            pages.push(page);
            done += 1;
            continue;
        }
        let stats = builder.stats();
        builder.teach(&mut profile);
        let (mut target, length) = builder.finish();
        assert_eq!(stats.bytes, length);
        assert!(length <= target_len);
        assert!(length <= capacity || stats.rows == 1, "{stats:?} of {capacity} bytes");
        target.truncate(length);
        pages.push(target);
    }
    pages
}

fn read_all(schema: &PageSchema, pages: Vec<Vec<u8>>) -> (usize, Vec<ArrayRef>) {
    let batches: Vec<_> =
        pages.into_iter().map(|page| read_page(schema, page.into()).unwrap()).collect();
    for batch in &batches {
        assert_eq!(batch.schema_ref(), schema.schema());
    }
    let columns = (0..schema.schema().fields().len())
        .map(|i| {
            let columns: Vec<&dyn Array> =
                batches.iter().map(|batch| batch.column(i).as_ref()).collect();
            concat(&columns).unwrap()
        })
        .collect();
    (batches.iter().map(RecordBatch::num_rows).sum(), columns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn pages_equal_take(
        types in prop::collection::vec(
            (
                prop_oneof![
                    2 => prop::sample::select(support::types()),
                    2 => prop::sample::select(support::nested_types()),
                    1 => prop::sample::select(support::packed_types()),
                ],
                any::<bool>(),
            ),
            0..6),
        seed in any::<u64>(),
        rows in 1usize..200,
        max_bytes in prop::sample::select(vec![0, 10, 40, 400]),
        target_len in prop_oneof![300usize..3000, 3000usize..100_000],
        capacity in prop_oneof![Just(usize::MAX), 0usize..3000],
        selected in prop::collection::vec((any::<prop::sample::Index>(), 1usize..12), 1..60),
        slice in any::<bool>(),
    ) {
        let schema = support::schema(&types);
        let (mut expected, mut batch) =
            support::batches(&schema, rows, max_bytes, &mut Random(seed));
        let mut rows = rows;
        if slice && rows > 9 {
            rows -= 9;
            (expected, batch) = (expected.slice(9, rows), batch.slice(9, rows));
        }
        let mut selection: Vec<u32> = Vec::new();
        for (start, len) in selected {
            let start = start.index(rows);
            selection.extend((start..rows.min(start + len)).map(|row| u32::try_from(row).unwrap()));
        }
        let page_schema = Arc::new(PageSchema::try_new(schema).unwrap());
        let lens = (target_len, capacity);
        let pages = write(&page_schema, &batch, &selection, lens, 0xaa);
        // Old content of the target is not part of the page.
        prop_assert!(pages == write(&page_schema, &batch, &selection, lens, 0x55));
        let (rows, columns) = read_all(&page_schema, pages);
        prop_assert_eq!(rows, selection.len());
        let selection = UInt32Array::from(selection);
        for (got, column) in columns.iter().zip(expected.columns()) {
            let plain = support::plain(column.data_type());
            let got = cast(got, &plain).unwrap();
            let taken = cast(&take(column, &selection, None).unwrap(), &plain).unwrap();
            prop_assert_eq!(&got, &taken);
            prop_assert_eq!(got.null_count(), taken.null_count());
        }
    }
}

fn page_schema(fields: Vec<Field>) -> Arc<PageSchema> {
    Arc::new(PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap())
}

#[test]
fn a_page_keeps_its_capacity_and_has_at_least_one_row() {
    let schema = page_schema(vec![Field::new("n", DataType::Int32, false)]);
    let rows: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1_000));
    let batch = RecordBatch::try_new(schema.schema().clone(), vec![rows]).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    // The header takes 64 bytes, and 16 rows 64 more.
    for (capacity, fit) in [(0, 1), (64, 1), (127, 1), (128, 16), (200, 32), (1024, 240)] {
        let builder = PageBuilder::new(Arc::clone(&schema), vec![0; 1024], &PageProfile::new());
        let mut builder = builder.with_capacity(capacity);
        assert_eq!(builder.append_range(&source, 0, 500), fit, "of {capacity} bytes");
        assert_eq!(builder.append_range(&source, fit, 500), 0, "it is full");
    }
}

#[test]
fn a_batch_without_columns_has_a_row_count() {
    let schema = page_schema(vec![]);
    let options = RecordBatchOptions::new().with_row_count(Some(1_000_000));
    let batch =
        RecordBatch::try_new_with_options(schema.schema().clone(), vec![], &options).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    let mut builder = PageBuilder::new(Arc::clone(&schema), vec![1; 64], &PageProfile::new());
    assert_eq!(builder.append_range(&source, 0, 999_999), 999_999);
    assert_eq!(builder.append(&source, &[7]), 1);
    let (page, length) = builder.finish();
    assert_eq!(length, 64);
    assert_eq!(read_page(&schema, page.into()).unwrap().num_rows(), 1_000_000);
}

#[test]
fn an_empty_page_is_an_empty_batch() {
    let types = [support::types(), support::nested_types(), support::packed_types()].concat();
    let types: Vec<_> = types.into_iter().map(|data_type| (data_type, true)).collect();
    let schema = Arc::new(PageSchema::try_new(support::schema(&types)).unwrap());
    let builder = PageBuilder::new(Arc::clone(&schema), vec![3; 4096], &PageProfile::new());
    let (mut page, length) = builder.finish();
    page.truncate(length);
    let batch = read_page(&schema, page.into()).unwrap();
    assert_eq!(batch, RecordBatch::new_empty(schema.schema().clone()));
}

#[test]
fn a_row_beyond_the_target_gets_a_page_of_its_size() {
    let schema = page_schema(vec![
        Field::new("n", DataType::Int32, false),
        Field::new("s", DataType::Utf8, true),
    ]);
    let wide = "x".repeat(20 << 20);
    let columns: [(&str, ArrayRef); 2] = [
        ("n", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ("s", Arc::new(StringArray::from(vec!["small", wide.as_str(), "small"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    let target = vec![0; 4096];
    let mut builder = PageBuilder::new(Arc::clone(&schema), target, &PageProfile::new());
    assert_eq!(builder.append(&source, &[1, 0]), 0);
    assert!(builder.is_empty());
    assert_eq!(builder.append(&source, &[0, 1, 2]), 1);
    assert_eq!(builder.append(&source, &[1, 2]), 0);
    assert_eq!(builder.append(&source, &[2]), 1);
    let page = encode_rows(&schema, &source, &[1]).unwrap();
    assert!(page.len() < wide.len() + 512);
    let read = read_page(&schema, page.into()).unwrap();
    assert!(read.columns() == batch.slice(1, 1).columns());
}

#[test]
fn data_beyond_its_offsets_is_rejected() {
    let schema = page_schema(vec![Field::new("s", DataType::Utf8, false)]);
    let text = "x".repeat(1 << 20);
    let batch =
        RecordBatch::try_from_iter([("s", Arc::new(StringArray::from(vec![text])) as ArrayRef)])
            .unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    let error = encode_rows(&schema, &source, &[0; 2048]).unwrap_err();
    let (bytes, max) = (1 << 31, (1 << 31) - 1);
    assert_eq!(error, EncodeError::DataTooLarge { column: 0, bytes, max });
    assert!(encoded_len(&schema, &source, &[0; 2048]) > max);
}

#[test]
fn pages_of_strings_are_full_after_a_wrong_estimate() {
    let schema = page_schema(vec![
        Field::new("a", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
        Field::new("b", DataType::LargeUtf8, true),
    ]);
    let target_len = 64 << 10;
    let mut random = Random(7);
    // The first rows are no sample of the later ones: one column grows, the other shrinks.
    for (first, second) in [((4, 400), (400, 4)), ((100, 100), (4, 4)), ((0, 0), (300, 10))] {
        let lens: Vec<_> = (0..4000).map(|row| if row < 40 { first } else { second }).collect();
        let mut column = |len: &dyn Fn(&(usize, usize)) -> usize| -> ArrayRef {
            let texts = lens.iter().map(|lens| "y".repeat(random.below(len(lens) + 1)));
            Arc::new(StringArray::from_iter_values(texts))
        };
        let (a, b) = (column(&|lens| lens.0), column(&|lens| lens.1));
        let n: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..4000));
        let batch = RecordBatch::try_from_iter([("a", a), ("n", n), ("b", b)]).unwrap();
        for step in [1, 8, 4000] {
            let source = Source::try_new(&schema, &batch).unwrap();
            let target = vec![0; target_len];
            let mut builder = PageBuilder::new(Arc::clone(&schema), target, &PageProfile::new());
            let rows: Vec<u32> = (0..4000).collect();
            let full = rows.chunks(step).any(|rows| builder.append(&source, rows) < rows.len());
            let (rows, bytes) = (builder.num_rows(), builder.stats().bytes);
            assert!(!full || bytes * 100 > target_len * 85, "{bytes} bytes after {rows} rows");
        }
    }
}

#[test]
fn a_batch_keeps_only_its_own_page_alive() {
    let schema = page_schema(vec![Field::new("s", DataType::Utf8, false)]);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = RecordBatch::try_from_iter([("s", column)]).unwrap();
    let source = Source::try_new(&schema, &batch).unwrap();
    let lives = Arc::new(());
    let page = encode_rows(&schema, &source, &[0, 1]).unwrap();
    let page = Aligned::new(&page, Arc::clone(&lives));
    let address = page.as_ref().as_ptr() as usize;
    let bytes = Bytes::from_owner(page);
    let length = bytes.len();
    let read = read_page(&schema, bytes).unwrap();
    let data = read.column(0).to_data();
    let values = data.buffers()[1].as_ptr() as usize;
    assert!((address..address + length).contains(&values), "the batch is over the page");
    drop(read);
    assert_eq!(Arc::strong_count(&lives), 2);
    drop(data);
    assert_eq!(Arc::strong_count(&lives), 1);
}

/// Bytes that start at a multiple of 64.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    _lives: Arc<()>,
}

impl Aligned {
    fn new(bytes: &[u8], lives: Arc<()>) -> Self {
        let mut memory = vec![0; bytes.len() + 64];
        let start = memory.as_ptr().align_offset(64);
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        memory.truncate(start + bytes.len());
        Self { memory, start, _lives: lives }
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

fn source_error(expected: &SchemaRef, columns: Vec<(&str, ArrayRef)>) -> SourceError {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let schema = PageSchema::try_new(expected.clone()).unwrap();
    Source::try_new(&schema, &batch).unwrap_err()
}

#[test]
fn a_batch_of_another_schema_names_the_column() {
    let expected: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int32, false),
        Field::new("s", DataType::Utf8, true),
    ]));
    let n = || Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef;
    let s = || Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef;
    let holes = Arc::new(Int32Array::from(vec![None, Some(1)])) as ArrayRef;
    assert_eq!(
        source_error(&expected, vec![("n", n())]),
        SourceError::MissingColumn { column: "s".to_owned(), expected: DataType::Utf8 }
    );
    assert_eq!(
        source_error(&expected, vec![("n", n()), ("s", s()), ("t", s())]),
        SourceError::ExtraColumn { column: "t".to_owned(), expected: 2 }
    );
    assert_eq!(
        source_error(&expected, vec![("n", n()), ("t", s())]),
        SourceError::RenamedColumn { index: 1, expected: "s".to_owned(), got: "t".to_owned() }
    );
    assert_eq!(
        source_error(&expected, vec![("n", n()), ("s", n())]),
        SourceError::TypeMismatch {
            column: "s".to_owned(),
            expected: DataType::Utf8,
            got: DataType::Int32
        }
    );
    assert_eq!(
        source_error(&expected, vec![("n", holes), ("s", s())]),
        SourceError::UnexpectedNulls { column: "n".to_owned(), nulls: 1 }
    );
}
