//! Reads the bytes of a page, which are not trusted, as a batch over the same bytes.

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_cast::cast;
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::DataType;
use bytes::Bytes;

use super::ALIGNMENT;
use super::body::Body;
use super::column_layout::{ColumnLayout, OffsetWidth, ValueLayout};
use super::error::PageError;
use super::header::{HeaderReader, MAGIC, PREFIX_LEN, VERSION, header_len};
use super::layout::max_rows;
use super::schema::PageSchema;
use super::typed;

/// Returns true if [`read_page`] can use the bytes in place; otherwise it copies all of them.
#[must_use]
pub fn is_page_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
}

/// Reads a page as a batch over the same memory, which stays alive as long as any part of the
/// batch.
///
/// Checks each number in `bytes` against the length of the page and the schema. Copies the bytes
/// once if they are not [aligned](is_page_aligned).
///
/// # Errors
/// [`PageError`] for the first violation of the format or the schema.
pub fn read_page(schema: &PageSchema, bytes: Bytes) -> Result<RecordBatch, PageError> {
    let page =
        if is_page_aligned(&bytes) { Buffer::from(bytes) } else { Buffer::from_slice_ref(&*bytes) };
    read_body(schema, &Body::Whole(page))
}

/// Reads a page [in pieces](super::Pieces) as a batch over their memory. The batch holds each piece
/// that [`Pieces`](super::Pieces) took from the source.
///
/// # Errors
/// As [`read_page`], or a buffer is not within one piece.
pub fn read_pieces(schema: &PageSchema, pieces: Vec<Bytes>) -> Result<RecordBatch, PageError> {
    read_body(schema, &Body::of_pieces(pieces))
}

/// Like [`read_page`], for aligned memory.
pub(super) fn read_body(schema: &PageSchema, page: &Body) -> Result<RecordBatch, PageError> {
    let (rows, columns) = read_header(schema, page.front(), page.len())?;
    let mut arrays = Vec::with_capacity(schema.schema().fields().len());
    let mut column = 0;
    for (index, field) in schema.schema().fields().iter().enumerate() {
        let name = field.name();
        let reader = ColumnReader { name, page, layouts: schema.layouts(), columns: &columns };
        let invalid = |source| PageError::InvalidColumn { column: name.clone(), source };
        let array = match schema.travels_as(index) {
            None => reader.read(column, field.data_type(), rows)?,
            Some(plain) => {
                let array = reader.read(column, plain, rows)?;
                cast(&array, field.data_type()).map_err(invalid)?
            }
        };
        arrays.push(array);
        column = schema.layouts()[column].end;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.schema().clone(), arrays, &options)
        .map_err(|source| PageError::InvalidColumn { column: String::new(), source })
}

/// A column of the header, whose buffers are known to be within the page.
#[derive(Default)]
struct HeaderColumn {
    null_count: u32,
    /// Validity, values or offsets, data: start and length.
    buffers: [(usize, usize); 3],
}

/// Reads the header of a page of `page_len` bytes.
fn read_header(
    schema: &PageSchema,
    bytes: &[u8],
    page_len: usize,
) -> Result<(usize, Vec<HeaderColumn>), PageError> {
    let header = header_len(schema);
    let too_short = PageError::TooShort { got: bytes.len(), header };
    let mut fields = HeaderReader::new(bytes);
    let mut prefix = [0; PREFIX_LEN / 4];
    for field in &mut prefix {
        let Some(value) = fields.take() else {
            return Err(too_short);
        };
        *field = value;
    }
    let [magic, version, rows, columns, buffers, length, fingerprint] = prefix;
    if magic != MAGIC {
        return Err(PageError::Magic { got: magic });
    }
    if version != u32::from(VERSION) {
        return Err(PageError::Version { got: version, expected: u32::from(VERSION) });
    }
    if fingerprint != schema.fingerprint() {
        return Err(PageError::OtherSchema { got: fingerprint, expected: schema.fingerprint() });
    }
    let rows = checked_rows(u64::from(rows), page_len)?;
    let expected = (schema.layouts().len(), schema.num_buffers());
    if (columns as usize, buffers as usize) != expected {
        return Err(PageError::Columns { columns, buffers, expected });
    }
    if bytes.len() < header {
        return Err(too_short);
    }
    if length as usize != page_len {
        return Err(PageError::Length { declared: length, got: page_len });
    }
    let mut columns = Vec::with_capacity(expected.0);
    for _ in schema.layouts() {
        let Some(null_count) = fields.take() else {
            return Err(too_short);
        };
        columns.push(HeaderColumn { null_count, ..HeaderColumn::default() });
    }
    let (mut buffer, mut earliest) = (0, header as u64);
    for (column, layout) in columns.iter_mut().zip(schema.layouts()) {
        for slot in &mut column.buffers[..layout.values.num_buffers()] {
            let (Some(offset), Some(len)) = (fields.take(), fields.take()) else {
                return Err(too_short);
            };
            *slot = check_buffer(buffer, offset, len, &mut earliest, page_len)?;
            buffer += 1;
        }
    }
    Ok((rows, columns))
}

/// Start and length of a buffer, checked against the length of the page.
fn check_buffer(
    buffer: usize,
    offset: u32,
    len: u32,
    earliest: &mut u64,
    length: usize,
) -> Result<(usize, usize), PageError> {
    if len == 0 {
        if offset == 0 {
            return Ok((0, 0));
        }
        return Err(PageError::BufferOffset { buffer, offset, earliest: 0 });
    }
    if u64::from(offset) < *earliest || !(offset as usize).is_multiple_of(ALIGNMENT) {
        return Err(PageError::BufferOffset { buffer, offset, earliest: *earliest });
    }
    let end = u64::from(offset) + u64::from(len);
    if end > length as u64 {
        return Err(PageError::BufferEnd { buffer, end, length });
    }
    *earliest = end;
    Ok((offset as usize, len as usize))
}

/// Limits the rows by the bytes of the page, since columns without bytes could declare any number.
fn checked_rows(rows: u64, length: usize) -> Result<usize, PageError> {
    let limit = max_rows(length);
    match usize::try_from(rows) {
        Ok(checked) if rows <= limit => Ok(checked),
        _ => Err(PageError::TooManyRows { rows, length, limit }),
    }
}

struct ColumnReader<'a> {
    /// Name of the top-level column.
    name: &'a str,
    page: &'a Body,
    layouts: &'a [ColumnLayout],
    columns: &'a [HeaderColumn],
}

impl ColumnReader<'_> {
    /// Reads a column of a plain type, with its children.
    fn read(&self, column: usize, plain: &DataType, rows: usize) -> Result<ArrayRef, PageError> {
        let values = self.layouts[column].values;
        let nulls = self.read_validity(column, rows)?;
        let [_, (_, values_len), (_, data_len)] = self.columns[column].buffers;
        let expected = values.values_len(rows as u64);
        if values_len as u64 != expected {
            let part = match values {
                ValueLayout::Var(_) | ValueLayout::List(_) => "offsets",
                _ => "values",
            };
            return Err(self.buffer_length(part, rows, expected, values_len));
        }
        let quick = match values {
            ValueLayout::Fixed(_) => {
                typed::fixed(plain, self.buffer(column, 1)?, rows, nulls.as_ref())
            }
            ValueLayout::Var(width) => {
                let offsets = self.buffer(column, 1)?;
                if last_offset(&offsets, width) != Some(data_len as u64) {
                    let column = self.name.to_owned();
                    return Err(PageError::Offsets { column, data: data_len });
                }
                typed::var(plain, offsets, self.buffer(column, 2)?, rows, nulls.as_ref())
            }
            _ => None,
        };
        if let Some(array) = quick {
            return Ok(array);
        }
        let builder = ArrayData::builder(plain.clone()).len(rows).nulls(nulls);
        let array = self.add_buffers(column, plain, rows, builder)?.build();
        let invalid = |source| PageError::InvalidColumn { column: self.name.to_owned(), source };
        Ok(make_array(array.map_err(invalid)?))
    }

    /// Builds an array by Arrow's validating constructor, which reports the violation.
    fn add_buffers(
        &self,
        column: usize,
        plain: &DataType,
        rows: usize,
        builder: ArrayDataBuilder,
    ) -> Result<ArrayDataBuilder, PageError> {
        Ok(match self.layouts[column].values {
            ValueLayout::Null => builder,
            ValueLayout::Bits | ValueLayout::Fixed(_) => {
                builder.add_buffer(self.buffer(column, 1)?)
            }
            ValueLayout::Var(_) => {
                builder.add_buffer(self.buffer(column, 1)?).add_buffer(self.buffer(column, 2)?)
            }
            ValueLayout::List(width) => {
                let offsets = self.buffer(column, 1)?;
                let Some(elements) = last_offset(&offsets, width) else {
                    return Err(PageError::ListOffsets { column: self.name.to_owned() });
                };
                let inside = self.read_inside(column, plain, self.checked_rows(elements)?)?;
                builder.add_buffer(offsets).add_child_data(inside)
            }
            ValueLayout::FixedList(times) => {
                let elements = self.checked_rows((rows as u64).saturating_mul(times as u64))?;
                builder.add_child_data(self.read_inside(column, plain, elements)?)
            }
            ValueLayout::Struct => {
                let DataType::Struct(fields) = plain else {
                    unreachable!("layouts are made from the schema");
                };
                let (mut inside, mut children) = (column + 1, Vec::with_capacity(fields.len()));
                for field in fields {
                    children.push(self.read(inside, field.data_type(), rows)?.to_data());
                    inside = self.layouts[inside].end;
                }
                builder.child_data(children)
            }
        })
    }

    /// Reads the elements of a list.
    fn read_inside(
        &self,
        column: usize,
        list: &DataType,
        elements: usize,
    ) -> Result<ArrayData, PageError> {
        let (DataType::List(field)
        | DataType::LargeList(field)
        | DataType::Map(field, _)
        | DataType::FixedSizeList(field, _)) = list
        else {
            unreachable!("layouts are made from the schema");
        };
        Ok(self.read(column + 1, field.data_type(), elements)?.to_data())
    }

    fn read_validity(&self, column: usize, rows: usize) -> Result<Option<NullBuffer>, PageError> {
        let declared = self.columns[column].null_count;
        let (_, got) = self.columns[column].buffers[0];
        if declared == 0 || !self.layouts[column].has_validity() {
            if declared > 0 {
                return Err(PageError::NullCount {
                    column: self.name.to_owned(),
                    declared,
                    got: 0,
                });
            }
            let unexpected = || Err(self.buffer_length("validity", rows, 0, got));
            return if got == 0 { Ok(None) } else { unexpected() };
        }
        let expected = rows.div_ceil(8);
        if got != expected {
            return Err(self.buffer_length("validity", rows, expected as u64, got));
        }
        let bits = BooleanBuffer::new(self.buffer(column, 0)?, 0, rows);
        let nulls = NullBuffer::new(bits);
        if nulls.null_count() != declared as usize {
            let (column, got) = (self.name.to_owned(), nulls.null_count());
            return Err(PageError::NullCount { column, declared, got });
        }
        Ok(Some(nulls))
    }

    fn checked_rows(&self, rows: u64) -> Result<usize, PageError> {
        checked_rows(rows, self.page.len())
    }

    fn buffer(&self, column: usize, index: usize) -> Result<Buffer, PageError> {
        let (start, len) = self.columns[column].buffers[index];
        self.page.buffer(start, len)
    }

    fn buffer_length(
        &self,
        part: &'static str,
        rows: usize,
        expected: u64,
        got: usize,
    ) -> PageError {
        PageError::BufferLength { column: self.name.to_owned(), part, rows, expected, got }
    }
}

/// Returns the last offset if the offsets ascend from 0; 0 if there are none.
fn last_offset(offsets: &[u8], width: OffsetWidth) -> Option<u64> {
    match width {
        OffsetWidth::Four => {
            let (offsets, _) = offsets.as_chunks::<4>();
            last_word(offsets, |word| i64::from(i32::from_le_bytes(word)))
        }
        OffsetWidth::Eight => {
            let (offsets, _) = offsets.as_chunks::<8>();
            last_word(offsets, i64::from_le_bytes)
        }
    }
}

fn last_word<W: Copy>(words: &[W], value: impl Fn(W) -> i64) -> Option<u64> {
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return Some(0);
    };
    // No early exit, so that the loop is vectorised.
    let pairs = words.iter().zip(&words[1..]);
    let ascends = || pairs.fold(true, |ascends, (a, b)| ascends & (value(*a) <= value(*b)));
    if value(*first) == 0 && ascends() { u64::try_from(value(*last)).ok() } else { None }
}
