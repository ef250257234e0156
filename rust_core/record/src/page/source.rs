//! A batch whose columns were matched against a page schema, once, before rows are gathered from it.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::schema::{PageSchema, ValueLayout, accepts};

/// Why a batch cannot be written as pages of a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The batch has a column too many.
    #[error("column {column:?} of the batch is not in the schema, which has {expected} columns")]
    ExtraColumn {
        /// Name of the first column too many.
        column: String,
        /// How many columns the schema has.
        expected: usize,
    },
    /// The batch has a column too few.
    #[error("column {column:?} ({expected}) is missing in the batch")]
    MissingColumn {
        /// Name of the first missing column.
        column: String,
        /// Its type in the schema.
        expected: DataType,
    },
    /// A column has another name than in the schema.
    #[error("column number {index} is named {got:?}, expected {expected:?}")]
    RenamedColumn {
        /// Position of the column.
        index: usize,
        /// Its name in the schema.
        expected: String,
        /// Its name in the batch.
        got: String,
    },
    /// Row numbers are 32 bits wide.
    #[error("a batch of {rows} rows is too long, at most {} are taken at a time", u32::MAX)]
    TooManyRows {
        /// Rows of the batch.
        rows: usize,
    },
    /// A column has another type than in the schema.
    #[error("column {column:?} has type {got}, expected {expected}")]
    TypeMismatch {
        /// Name of the column.
        column: String,
        /// Its type in the schema.
        expected: DataType,
        /// Its type in the batch.
        got: DataType,
    },
    /// A column that the schema says has no nulls has some.
    #[error("column {column:?} is not nullable and has {nulls} nulls")]
    UnexpectedNulls {
        /// Name of the column.
        column: String,
        /// How many nulls there are.
        nulls: usize,
    },
}

/// A batch, resolved for a page schema; holds references to the batch's memory and copies nothing.
#[derive(Clone, Debug)]
pub struct Source {
    rows: usize,
    columns: Vec<SourceColumn>,
}

impl Source {
    /// Matches the columns of `batch`, by position, name and type.
    ///
    /// Strings and binaries may be of any offset width or views, and time zones may have other labels.
    ///
    /// # Errors
    /// Any other difference between the two schemas, and nulls where the schema has none.
    pub fn try_new(schema: &PageSchema, batch: &RecordBatch) -> Result<Self, SourceError> {
        if u32::try_from(batch.num_rows()).is_err() {
            return Err(SourceError::TooManyRows { rows: batch.num_rows() });
        }
        let expected = schema.schema().fields();
        let got = batch.schema_ref().fields();
        for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
            if expected.name() != got.name() {
                return Err(SourceError::RenamedColumn {
                    index,
                    expected: expected.name().clone(),
                    got: got.name().clone(),
                });
            }
        }
        if let Some(missing) = expected.get(got.len()) {
            return Err(SourceError::MissingColumn {
                column: missing.name().clone(),
                expected: missing.data_type().clone(),
            });
        }
        if let Some(extra) = got.get(expected.len()) {
            let column = extra.name().clone();
            return Err(SourceError::ExtraColumn { column, expected: expected.len() });
        }
        let mut columns = Vec::with_capacity(expected.len());
        for ((field, layout), array) in expected.iter().zip(schema.layouts()).zip(batch.columns()) {
            if !accepts(field.data_type(), array.data_type()) {
                return Err(SourceError::TypeMismatch {
                    column: field.name().clone(),
                    expected: field.data_type().clone(),
                    got: array.data_type().clone(),
                });
            }
            let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
            if let (Some(nulls), false) = (&nulls, field.is_nullable()) {
                let column = field.name().clone();
                return Err(SourceError::UnexpectedNulls { column, nulls: nulls.null_count() });
            }
            columns.push(SourceColumn { values: Values::new(layout.values, array), nulls });
        }
        Ok(Self { rows: batch.num_rows(), columns })
    }

    /// How many rows there are.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    pub(super) fn columns(&self) -> &[SourceColumn] {
        &self.columns
    }
}

/// One resolved column.
#[derive(Clone, Debug)]
pub(super) struct SourceColumn {
    pub(super) values: Values,
    /// There only if at least one row is null.
    pub(super) nulls: Option<NullBuffer>,
}

/// The values of a column, row 0 first.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Null,
    Bits(BooleanBuffer),
    Fixed(Buffer),
    Var32 { offsets: ScalarBuffer<i32>, data: Buffer },
    Var64 { offsets: ScalarBuffer<i64>, data: Buffer },
    Views { views: ScalarBuffer<u128>, data: Vec<Buffer> },
}

impl Values {
    fn new(layout: ValueLayout, array: &ArrayRef) -> Self {
        match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bits(array.as_boolean().values().clone()),
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                let offsets = array.offsets().inner().clone();
                Self::Var32 { offsets, data: array.values().clone() }
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                let offsets = array.offsets().inner().clone();
                Self::Var32 { offsets, data: array.values().clone() }
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                let offsets = array.offsets().inner().clone();
                Self::Var64 { offsets, data: array.values().clone() }
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                let offsets = array.offsets().inner().clone();
                Self::Var64 { offsets, data: array.values().clone() }
            }
            DataType::Utf8View => {
                let array = array.as_string_view();
                Self::Views { views: array.views().clone(), data: array.data_buffers().to_vec() }
            }
            DataType::BinaryView => {
                let array = array.as_binary_view();
                Self::Views { views: array.views().clone(), data: array.data_buffers().to_vec() }
            }
            _ => {
                let ValueLayout::Fixed(width) = layout else {
                    unreachable!("all types of other layouts are above");
                };
                let data = array.to_data();
                let values = &data.buffers()[0];
                let (start, length) = (data.offset() * width, data.len() * width);
                Self::Fixed(values.slice_with_length(start, length))
            }
        }
    }
}
