//! Work whose instructions `make bench NAME=instructions` counts: the functions `counted_*` in
//! tests `counts_*`. As tests they show that no row is lost.
//!
//! The work of crates below is here too: one program is built faster than two. The work of the I/O
//! threads is in `net/simulator/instructions.rs`.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod partition;
mod rows;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use headgate_record::PageSchema;

/// Returns a batch with a key, three numbers, and on request a string of 6 to 10 bytes.
fn batch(rows: usize, strings: bool) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(42);
    let mut number = || i64::from(random.u32(..u32::MAX));
    let mut fields = Vec::new();
    let mut columns = Vec::<ArrayRef>::new();
    for name in ["key", "i", "x", "y"] {
        fields.push(Field::new(name, DataType::Int64, false));
        columns.push(Arc::new(Int64Array::from_iter_values((0..rows).map(|_| number()))));
    }
    if strings {
        fields.push(Field::new("name", DataType::Utf8, true));
        let text = (0..rows).map(|_| Some((number() + 100_000).to_string()));
        columns.push(Arc::new(StringArray::from_iter(text)));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn schema_of(batch: &RecordBatch) -> Arc<PageSchema> {
    Arc::new(PageSchema::try_new(batch.schema()).unwrap())
}
