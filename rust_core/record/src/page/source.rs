//! A batch whose columns were matched against a page schema, once, before rows are gathered from it.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};

use super::columns::outermost;
use super::schema::{ColumnLayout, PageSchema, ValueLayout};
use super::types::{accepts, plain_type};

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
    /// Arrow refuses a column.
    #[error("column {column:?} is not valid: {error}")]
    Invalid {
        /// Name of the column.
        column: String,
        /// What Arrow says.
        error: String,
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

/// A batch, resolved for a page schema; holds references to the batch's memory and copies nothing but
/// what it must unpack: dictionaries, runs, and views of lists.
#[derive(Clone, Debug)]
pub struct Source {
    rows: usize,
    /// Whether a column had to be unpacked, into memory of its own.
    unpacked: bool,
    /// Each column, before those inside it.
    columns: Vec<SourceColumn>,
}

impl Source {
    /// Matches the columns of `batch`, by position, name and type.
    ///
    /// Strings, binaries and lists may be of any offset width or views, values may be packed in
    /// dictionaries or runs, and time zones may have other labels.
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

    /// How many rows there are.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Reads adjacent rows once, in the order of their memory, which is what a processor fetches ahead:
    /// rows that are picked out of them right after are in the cache. Columns inside others are left out.
    ///
    /// # Panics
    /// If there are fewer rows, or this was resolved for another schema.
    pub fn warm(&self, schema: &PageSchema, rows: Range<usize>) {
        let touched =
            outermost(schema.layouts()).map(|column| match &self.columns[column].values {
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

/// Reads a byte of each line of the cache; nothing of what would not stay there.
fn touch(bytes: &[u8]) -> u8 {
    if bytes.len() > MAX_WARM {
        return 0;
    }
    bytes.chunks(64).fold(0, |all, line| all ^ line[0])
}

/// Why an array, or one inside it, does not suit its column.
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

/// Adds an array and those inside it, whose layouts start with that of number `columns.len()`.
///
/// Rows that are `hidden` inside a null take no part: they are written as zeros.
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

/// Adds the elements of lists; those that are in no list count as hidden.
fn add_elements<O: ArrowNativeType>(
    columns: &mut Vec<SourceColumn>,
    layouts: &[ColumnLayout],
    elements: &ArrayRef,
    offsets: &[O],
    nulls: Option<&NullBuffer>,
) -> Result<(), Unfit> {
    // Only there does it matter, and it costs a walk over all lists.
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

/// Whether the rows of an array of this type are not where its layout has them.
fn is_packed(data_type: &DataType) -> bool {
    use DataType::{Dictionary, LargeListView, ListView, RunEndEncoded};
    matches!(data_type, Dictionary(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_))
}

/// One resolved column.
#[derive(Clone, Debug)]
pub(super) struct SourceColumn {
    pub(super) values: Values,
    /// Whose values are not to be seen: nulls, and rows inside a null. There only if there are some.
    pub(super) nulls: Option<NullBuffer>,
    /// Nulls that are not inside another: those are written as if they were none, since the reader's
    /// column may be one without nulls.
    pub(super) validity: Option<NullBuffer>,
    /// Whether rows may be inside a null.
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

/// The second cache of a processor holds about as much.
const MAX_WARM: usize = 1 << 20;
