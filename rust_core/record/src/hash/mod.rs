//! Spark's hash partitioning: `pmod(murmur3(columns, 42), n)`, column by column.
//!
//! | Arrow type | hashed as |
//! |---|---|
//! | Boolean, Int8, Int16, Int32, Date32 | int |
//! | Int64, Timestamp of any unit, as microseconds | long |
//! | Float32, Float64 | int or long of the bits; -0.0 as 0.0, every NaN as the canonical NaN |
//! | Utf8, Binary (also large and view), FixedSizeBinary | bytes |
//! | Decimal128 of precision 18 or less | long of the unscaled value |
//! | Decimal128 of more | bytes of the unscaled value, big-endian, in minimal two's complement |
//! | List, LargeList, FixedSizeList | the elements in order |
//! | Struct | the fields in order |
//! | Dictionary, run-end encoded, views | the decoded values |
//! | Null, and any null value | the hash does not change |
//!
//! Decision: ADR 0012.

mod columns;
mod murmur3;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema};

pub(crate) use murmur3::hash_int;

/// Failures of hashing key columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// Several columns have the name.
    #[error("key column {name:?} is ambiguous: the schema has it more than once")]
    AmbiguousColumn {
        /// Requested name.
        name: String,
    },
    /// The position does not exist.
    #[error("key column number {index} does not exist: there are {columns} columns")]
    NoSuchColumn {
        /// Requested position.
        index: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A key is null, which a key group selector does not allow.
    #[error("key column {column:?} is null in row {row}")]
    NullKey {
        /// Name of the column.
        column: String,
        /// First row with a null key, counted from 0.
        row: usize,
    },
    /// No column has the name.
    #[error("key column {name:?} does not exist; there are {have:?}")]
    UnknownColumn {
        /// Requested name.
        name: String,
        /// Names of the columns.
        have: Vec<String>,
    },
    /// The type of the column cannot be hashed.
    #[error("key column {column:?} has type {data_type}, which cannot be hashed")]
    UnsupportedKeyType {
        /// Name of the column.
        column: String,
        /// Type of the column.
        data_type: DataType,
    },
}

/// A column that is a key, or a field of a struct column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Position of the column.
    column: usize,
    /// Position of the field in the column, of the field in that field, and so on.
    fields: Vec<usize>,
}

impl From<usize> for KeyColumn {
    /// Returns the column at this position.
    fn from(column: usize) -> Self {
        Self { column, fields: Vec::new() }
    }
}

/// Returns the key columns with these names. A name is that of a column, followed by those of fields.
///
/// # Errors
/// A name is missing or ambiguous, or the type of a column cannot be hashed.
pub fn resolve_columns<S: AsRef<str>>(
    schema: &Schema,
    names: &[impl AsRef<[S]>],
) -> Result<Vec<KeyColumn>, HashError> {
    names.iter().map(|name| resolve_column(schema, name.as_ref())).collect()
}

/// Checks the types of the columns at these positions.
///
/// # Errors
/// The type of a column cannot be hashed.
pub(crate) fn check_columns(schema: &Schema, columns: &[usize]) -> Result<(), HashError> {
    let mut fields = columns.iter().map(|column| schema.field(*column));
    let refused = fields.find(|field| !columns::can_hash(field.data_type()));
    refused.map_or(Ok(()), |field| Err(unsupported(field)))
}

/// Writes the partition of each row into `out`: `pmod(murmur3(columns, 42), n)` as in Spark.
///
/// # Errors
/// A position does not exist, or the type of a column cannot be hashed; `out` is unspecified then.
///
/// # Panics
/// If `n` is 0 or above `i32::MAX`.
pub fn partition_ids(
    batch: &RecordBatch,
    columns: &[KeyColumn],
    n: u32,
    out: &mut Vec<u32>,
) -> Result<(), HashError> {
    assert!(n > 0, "rows cannot be sent to one of no partitions");
    row_hashes(batch, columns, out)?;
    murmur3::pmod(out, n);
    Ok(())
}

/// Writes the 32-bit hash of each row into `out`, as the bits of Spark's `hash(columns)`.
///
/// # Errors
/// A position does not exist, or the type of a column cannot be hashed; `out` is unspecified then.
pub fn row_hashes(
    batch: &RecordBatch,
    columns: &[KeyColumn],
    out: &mut Vec<u32>,
) -> Result<(), HashError> {
    out.clear();
    out.resize(batch.num_rows(), murmur3::SEED);
    for &KeyColumn { column: index, ref fields } in columns {
        let Some(array) = batch.columns().get(index) else {
            return Err(HashError::NoSuchColumn { index, columns: batch.num_columns() });
        };
        if !columns::hash_field_into(array, fields, out) {
            return Err(unsupported(batch.schema_ref().field(index)));
        }
    }
    Ok(())
}

/// Returns the position of a named column.
pub(crate) fn find_column(schema: &Schema, name: &str) -> Result<usize, HashError> {
    find(schema.fields(), name)
}

fn find(fields: &Fields, name: &str) -> Result<usize, HashError> {
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    let Some((index, _)) = found.next() else {
        let have = fields.iter().map(|field| field.name().clone()).collect();
        return Err(HashError::UnknownColumn { name: name.to_owned(), have });
    };
    if found.next().is_some() {
        return Err(HashError::AmbiguousColumn { name: name.to_owned() });
    }
    Ok(index)
}

fn resolve_column<S: AsRef<str>>(schema: &Schema, path: &[S]) -> Result<KeyColumn, HashError> {
    let (name, rest) = path.split_first().ok_or_else(|| HashError::UnknownColumn {
        name: String::new(),
        have: schema.fields().iter().map(|field| field.name().clone()).collect(),
    })?;
    let column = find_column(schema, name.as_ref())?;
    let mut field = schema.field(column);
    let mut fields = Vec::with_capacity(rest.len());
    for name in rest {
        let DataType::Struct(inner) = field.data_type() else {
            let (name, have) = (name.as_ref().to_owned(), Vec::new());
            return Err(HashError::UnknownColumn { name, have });
        };
        let index = find(inner, name.as_ref())?;
        fields.push(index);
        field = &inner[index];
    }
    if !columns::can_hash(field.data_type()) {
        return Err(unsupported(field));
    }
    Ok(KeyColumn { column, fields })
}

pub(crate) fn unsupported(field: &Field) -> HashError {
    HashError::UnsupportedKeyType {
        column: field.name().clone(),
        data_type: field.data_type().clone(),
    }
}
