//! The page reader.

use std::sync::{Arc, LazyLock};

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use headgate_record::{PageSchema, Source, encode_rows, read_page};

use crate::input::take;

/// Checks that a page is read as a valid batch, and that the batch is the same after it was written and
/// read again.
///
/// The bytes: number of the schema, 1 to correct the page's header, page.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn pages(data: &[u8]) {
    let ([schema, flags], page) = take(data);
    let schemas = page_schemas();
    let schema = &schemas[usize::from(schema) % schemas.len()];
    let mut page = page.to_vec();
    if flags & 1 != 0 {
        repair(schema, &mut page);
    }
    let Ok(batch) = read_page(schema, page.into()) else {
        return;
    };
    assert_eq!(batch.schema(), *schema.schema());
    for column in batch.columns() {
        assert_eq!(column.len(), batch.num_rows());
        column.to_data().validate_full().expect("a column is a valid array");
    }
    // A small page can hold many rows that take no bytes.
    if batch.num_rows() <= 1000 {
        let rows: Vec<_> = (0..u32::try_from(batch.num_rows()).unwrap_or(0)).collect();
        let again = encode(schema, &batch, &rows);
        let again = read_page(schema, again.into()).expect("an encoded page can be read");
        assert_eq!(again, batch);
    }
}

/// Schemas that cover every layout of a column.
pub fn page_schemas() -> &'static [Arc<PageSchema>] {
    static SCHEMAS: LazyLock<Vec<Arc<PageSchema>>> = LazyLock::new(|| {
        types().into_iter().map(|columns| Arc::new(page_schema(&columns))).collect()
    });
    &SCHEMAS
}

fn encode(schema: &Arc<PageSchema>, batch: &RecordBatch, rows: &[u32]) -> Vec<u8> {
    let source = Source::try_new(schema, batch).expect("the batch has the page's schema");
    encode_rows(schema, &source, rows).expect("the rows fitted a page before")
}

/// Copies magic, version, counts and fingerprint from a page without rows, and sets the length.
fn repair(schema: &Arc<PageSchema>, page: &mut [u8]) {
    let none = RecordBatch::new_empty(Arc::clone(schema.schema()));
    let right = encode(schema, &none, &[]);
    let length = u32::try_from(page.len()).unwrap_or(u32::MAX).to_le_bytes();
    for field in [0..8, 12..20, 24..28] {
        if let Some(target) = page.get_mut(field.clone()) {
            target.copy_from_slice(&right[field]);
        }
    }
    if let Some(target) = page.get_mut(20..24) {
        target.copy_from_slice(&length);
    }
}

fn page_schema(columns: &[(DataType, bool)]) -> PageSchema {
    let fields = columns.iter().enumerate().map(|(index, (data_type, nullable))| {
        Field::new(format!("c{index}"), data_type.clone(), *nullable)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    PageSchema::try_new(schema).expect("these types travel in pages")
}

fn types() -> Vec<Vec<(DataType, bool)>> {
    use DataType::*;
    let field = |name: &str, data_type, nullable| Arc::new(Field::new(name, data_type, nullable));
    let point = Struct(vec![field("x", Float64, false), field("name", Utf8, true)].into());
    let entries = vec![field("keys", Utf8, false), field("values", Int64, true)];
    let entries = field("entries", Struct(entries.into()), false);
    let runs = RunEndEncoded(field("run_ends", Int32, false), field("values", Utf8, true));
    vec![
        vec![(Int32, true), (Boolean, true), (Utf8, false)],
        vec![(List(field("item", Utf8, true)), true), (point, true)],
        vec![(Dictionary(Box::new(Int32), Box::new(Utf8)), true), (Utf8View, false), (runs, true)],
        vec![
            (FixedSizeBinary(3), true),
            (Decimal128(38, 10), false),
            (Null, true),
            (LargeBinary, true),
            (Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
        ],
        vec![
            (Map(entries, false), true),
            (FixedSizeList(field("item", Boolean, true), 2), true),
            (ListView(field("item", Int16, true)), true),
        ],
        vec![(Time32(TimeUnit::Second), true), (Decimal256(76, 38), true), (Date64, true)],
    ]
}
