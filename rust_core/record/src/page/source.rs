//! A batch whose columns are matched against a page schema once, before rows are gathered from it.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};

use super::column_layout::{ColumnLayout, ValueLayout, top_level};
use super::schema::PageSchema;
use super::types::{accepts, plain_type};

/// The batch cannot be written as pages of the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The batch has an extra column.
    #[error("column {column:?} of the batch is not in the schema, which has {expected} columns")]
    ExtraColumn {
        /// Name of the first extra column.
        column: String,
        /// Number of columns of the schema.
        expected: usize,
    },
    /// The batch lacks a column.
    #[error("column {column:?} ({expected}) is missing in the batch")]
    MissingColumn {
        /// Name of the first missing column.
        column: String,
        /// Type in the schema.
        expected: DataType,
    },
    /// The name of a column differs from the schema.
    #[error("column number {index} is named {got:?}, expected {expected:?}")]
    RenamedColumn {
        /// Position of the column.
        index: usize,
        /// Name in the schema.
        expected: String,
        /// Name in the batch.
        got: String,
    },
    /// The batch has more rows than 32-bit row numbers allow.
    #[error("a batch of {rows} rows is too long, at most {} are taken at a time", u32::MAX)]
    TooManyRows {
        /// Rows of the batch.
        rows: usize,
    },
    /// The type of a column differs from the schema.
    #[error("column {column:?} has type {got}, expected {expected}")]
    TypeMismatch {
        /// Name of the column.
        column: String,
        /// Type in the schema.
        expected: DataType,
        /// Type in the batch.
        got: DataType,
    },
    /// Arrow rejects a column.
    #[error("column {column:?} is not valid: {error}")]
    Invalid {
        /// Name of the column.
        column: String,
        /// Message of Arrow.
        error: String,
    },
    /// A column that is not nullable in the schema has nulls.
    #[error("column {column:?} is not nullable and has {nulls} nulls")]
    UnexpectedNulls {
        /// Name of the column.
        column: String,
        /// Number of nulls.
        nulls: usize,
    },
}

/// A batch resolved for a page schema. It references the batch's memory and copies only columns
/// that it must decode: dictionaries, run-end encoded columns, and list views.
#[derive(Clone, Debug)]
pub struct Source {
    rows: usize,
    /// True if a column was decoded into memory of its own.
    unpacked: bool,
    /// All columns, depth first, parents before children.
    columns: Vec<SourceColumn>,
}

impl Source {
    /// Matches the columns of `batch`, by position, name and type.
    ///
    /// Strings, binaries and lists may have any offset width or be views, values may be dictionary
    /// or run-end encoded, and time zones may have other labels.
    ///
    /// # Errors
    /// [`SourceError`] for any other difference between the schemas, and for nulls that the schema
    /// does not allow.
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
        let mut columns = Vec::with_capacity(schema.layouts().len());
        let mut unpacked = false;
        for (index, (field, array)) in expected.iter().zip(batch.columns()).enumerate() {
            let travels_as = schema.travels_as(index).unwrap_or_else(|| field.data_type());
            if !accepts(travels_as, &plain_type(array.data_type())) {
                return Err(SourceError::TypeMismatch {
                    column: field.name().clone(),
                    expected: field.data_type().clone(),
                    got: array.data_type().clone(),
                });
            }
            unpacked |= is_packed(array.data_type());
            add(&mut columns, schema.layouts(), array, None)
                .map_err(|unfit| unfit.of_column(field.name()))?;
        }
        Ok(Self { rows: batch.num_rows(), unpacked, columns })
    }

    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Reads adjacent rows once, in memory order, which the processor prefetches, so that they are
    /// in the cache when rows are gathered from them. Skips nested columns.
    ///
    /// # Panics
    /// If the range exceeds the rows, or the source was resolved for another schema.
    pub fn warm(&self, schema: &PageSchema, rows: Range<usize>) {
        let touched =
            top_level(schema.layouts()).map(|column| match &self.columns[column].values {
                Values::Fixed(values) => touch_rows(values, self.rows, &rows),
                Values::Views { views, .. } => touch_rows(views.inner(), self.rows, &rows),
                Values::Var32 { offsets, data } => touch_strings(offsets, data, &rows),
                Values::Var64 { offsets, data } => touch_strings(offsets, data, &rows),
                _ => 0,
            });
        std::hint::black_box(touched.fold(0, |all, one| all ^ one));
    }

    pub(super) fn is_unpacked(&self) -> bool {
        self.unpacked
    }

    pub(super) fn columns(&self) -> &[SourceColumn] {
        &self.columns
    }
}

fn touch_rows(values: &[u8], all: usize, rows: &Range<usize>) -> u8 {
    let width = values.len() / all.max(1);
    touch(&values[rows.start * width..rows.end * width])
}

fn touch_strings<O: ArrowNativeType>(
    offsets: &ScalarBuffer<O>,
    data: &[u8],
    rows: &Range<usize>,
) -> u8 {
    let (start, end) = (offsets[rows.start].as_usize(), offsets[rows.end].as_usize());
    touch(&data[start..end]) ^ touch_rows(offsets.inner(), offsets.len(), rows)
}

/// Reads one byte of each cache line, unless the bytes would not fit the cache.
fn touch(bytes: &[u8]) -> u8 {
    if bytes.len() > MAX_WARM {
        return 0;
    }
    bytes.chunks(64).fold(0, |all, line| all ^ line[0])
}

/// Reason why an array or its child does not match its column.
enum Unfit {
    Nulls(usize),
    Rows(usize),
    Invalid(ArrowError),
}

impl Unfit {
    fn of_column(self, name: &str) -> SourceError {
        let column = name.to_owned();
        match self {
            Self::Nulls(nulls) => SourceError::UnexpectedNulls { column, nulls },
            Self::Rows(rows) => SourceError::TooManyRows { rows },
            Self::Invalid(error) => SourceError::Invalid { column, error: error.to_string() },
        }
    }
}

/// Adds an array and its children; the layout of the array is number `columns.len()`.
///
/// Rows that are `hidden` inside a null of a parent are written as zeros.
fn add(
    columns: &mut Vec<SourceColumn>,
    layouts: &[ColumnLayout],
    array: &ArrayRef,
    hidden: Option<&NullBuffer>,
) -> Result<(), Unfit> {
    if is_packed(array.data_type()) {
        let plain = cast(array, &plain_type(array.data_type())).map_err(Unfit::Invalid)?;
        return add(columns, layouts, &plain, hidden);
    }
    if u32::try_from(array.len()).is_err() {
        return Err(Unfit::Rows(array.len()));
    }
    let layout = layouts[columns.len()];
    let own = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if let (Some(own), false) = (own, layout.nullable) {
        let seen = |row: usize| hidden.is_none_or(|hidden| hidden.is_valid(row));
        let nulls = (0..own.len()).filter(|&row| own.is_null(row) && seen(row)).count();
        if nulls > 0 {
            return Err(Unfit::Nulls(nulls));
        }
    }
    let nulls = NullBuffer::union(own, hidden).filter(|nulls| nulls.null_count() > 0);
    let validity = match (own, hidden) {
        (Some(own), Some(hidden)) => Some(NullBuffer::new(own.inner() | &!hidden.inner())),
        (own, _) => own.cloned(),
    };
    let values = Values::new(layout.values, array);
    let has_hidden = hidden.is_some();
    columns.push(SourceColumn { values, nulls: nulls.clone(), validity, has_hidden });
    match array.data_type() {
        DataType::Struct(_) => {
            let inside = array.as_struct().columns();
            inside.iter().try_for_each(|array| add(columns, layouts, array, nulls.as_ref()))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            add_elements(columns, layouts, list.values(), list.offsets(), nulls.as_ref())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            add_elements(columns, layouts, list.values(), list.offsets(), nulls.as_ref())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            add_elements(columns, layouts, &entries, map.offsets(), nulls.as_ref())
        }
        DataType::FixedSizeList(_, n) => {
            let times = usize::try_from(*n).expect("sizes are above 0");
            let hidden = nulls.map(|nulls| nulls.expand(times));
            add(columns, layouts, array.as_fixed_size_list().values(), hidden.as_ref())
        }
        _ => Ok(()),
    }
}

/// Adds the elements of lists; elements outside of all lists count as hidden.
fn add_elements<O: ArrowNativeType>(
    columns: &mut Vec<SourceColumn>,
    layouts: &[ColumnLayout],
    elements: &ArrayRef,
    offsets: &[O],
    nulls: Option<&NullBuffer>,
) -> Result<(), Unfit> {
    // Hidden elements only matter if nulls are not allowed; finding them takes a pass over all
    // lists.
    if layouts[columns.len()].nullable || elements.null_count() == 0 {
        return add(columns, layouts, elements, None);
    }
    let mut seen = vec![false; elements.len()];
    for (row, bounds) in offsets.windows(2).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
            seen[bounds[0].as_usize()..bounds[1].as_usize()].fill(true);
        }
    }
    add(columns, layouts, elements, Some(&NullBuffer::from(seen)))
}

/// True if arrays of this type must be decoded to match their layout.
fn is_packed(data_type: &DataType) -> bool {
    use DataType::{Dictionary, LargeListView, ListView, RunEndEncoded};
    matches!(data_type, Dictionary(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_))
}

/// One resolved column.
#[derive(Clone, Debug)]
pub(super) struct SourceColumn {
    pub(super) values: Values,
    /// Rows without a visible value: nulls, and rows inside a null of a parent; `None` if there are
    /// none.
    pub(super) nulls: Option<NullBuffer>,
    /// Nulls outside of a parent's null. Nulls inside one are written as values, since the reader's
    /// column may not allow nulls.
    pub(super) validity: Option<NullBuffer>,
    /// True if rows may be inside a null of a parent.
    pub(super) has_hidden: bool,
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
    Struct,
    List32(ScalarBuffer<i32>),
    List64(ScalarBuffer<i64>),
    FixedList(usize),
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
            DataType::Struct(_) => Self::Struct,
            DataType::List(_) => Self::List32(array.as_list::<i32>().offsets().inner().clone()),
            DataType::LargeList(_) => {
                Self::List64(array.as_list::<i64>().offsets().inner().clone())
            }
            DataType::Map(_, _) => Self::List32(array.as_map().offsets().inner().clone()),
            _ => {
                let width = match layout {
                    ValueLayout::FixedList(times) => return Self::FixedList(times),
                    ValueLayout::Fixed(width) => width,
                    _ => unreachable!("all types of other layouts are above"),
                };
                let data = array.to_data();
                let values = &data.buffers()[0];
                let (start, length) = (data.offset() * width, data.len() * width);
                Self::Fixed(values.slice_with_length(start, length))
            }
        }
    }
}

/// Approximate size of a processor's second-level cache.
const MAX_WARM: usize = 1 << 20;
