//! From a page's bytes, which nobody vouches for, to a batch over the same bytes.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use bytes::Bytes;

use super::ALIGNMENT;
use super::error::PageError;
use super::header::{HeaderReader, MAGIC, PREFIX_LEN, VERSION, header_len};
use super::layout::MAX_ROWS;
use super::schema::{ColumnLayout, OffsetWidth, PageSchema, ValueLayout};

/// Whether [`read_page`] can use these bytes in place; it copies them as a whole otherwise.
#[must_use]
pub fn is_page_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
}

/// Reads a page as a batch over the same memory, which is kept as long as the batch or a part of it.
///
/// Nothing in `bytes` is believed: each number is compared with the page's length and the schema.
/// The bytes are copied once if they are not [aligned](is_page_aligned).
///
/// # Errors
/// The first thing found that no page builder writes for this schema.
pub fn read_page(schema: &PageSchema, bytes: Bytes) -> Result<RecordBatch, PageError> {
    let (rows, columns) = read_header(schema, &bytes)?;
    let page =
        if is_page_aligned(&bytes) { Buffer::from(bytes) } else { Buffer::from_slice_ref(&*bytes) };
    let mut arrays = Vec::with_capacity(columns.len());
    for ((field, layout), column) in
        schema.schema().fields().iter().zip(schema.layouts()).zip(&columns)
    {
        let reader = ColumnReader { name: field.name(), page: &page, rows, column };
        arrays.push(reader.read(field.data_type(), *layout)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
    RecordBatch::try_new_with_options(schema.schema().clone(), arrays, &options)
        .map_err(|source| PageError::InvalidColumn { column: String::new(), source })
}

/// A column as the header describes it: each buffer lies within the page.
#[derive(Default)]
struct HeaderColumn {
    null_count: u32,
    /// Validity, values or offsets, data: start and length.
    buffers: [(usize, usize); 3],
}

fn read_header(schema: &PageSchema, bytes: &[u8]) -> Result<(u32, Vec<HeaderColumn>), PageError> {
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
    if u64::from(rows) >= MAX_ROWS {
        return Err(PageError::TooManyRows { rows, limit: MAX_ROWS });
    }
    let expected = (schema.layouts().len(), schema.num_buffers());
    if (columns as usize, buffers as usize) != expected {
        return Err(PageError::Columns { columns, buffers, expected });
    }
    if bytes.len() < header {
        return Err(too_short);
    }
    if length as usize != bytes.len() {
        return Err(PageError::Length { said: length, got: bytes.len() });
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
            *slot = check_buffer(buffer, offset, len, &mut earliest, bytes.len())?;
            buffer += 1;
        }
    }
    Ok((rows, columns))
}

/// A buffer's start and length, after both were compared with the page's length.
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

struct ColumnReader<'a> {
    name: &'a str,
    page: &'a Buffer,
    rows: u32,
    column: &'a HeaderColumn,
}

impl ColumnReader<'_> {
    fn read(&self, data_type: &DataType, layout: ColumnLayout) -> Result<ArrayRef, PageError> {
        let nulls = self.read_validity(layout)?;
        let [_, (_, values_len), (_, data_len)] = self.column.buffers;
        let expected = layout.values.values_len(u64::from(self.rows));
        if values_len as u64 != expected {
            let part =
                if matches!(layout.values, ValueLayout::Var(_)) { "offsets" } else { "values" };
            return Err(self.buffer_length(part, expected, values_len));
        }
        let buffers = match layout.values {
            ValueLayout::Null => vec![],
            ValueLayout::Bits | ValueLayout::Fixed(_) => vec![self.buffer(1)],
            ValueLayout::Var(width) => {
                let offsets = self.buffer(1);
                if !ascend(&offsets, width, data_len) {
                    let column = self.name.to_owned();
                    return Err(PageError::Offsets { column, data: data_len });
                }
                vec![offsets, self.buffer(2)]
            }
        };
        ArrayData::builder(data_type.clone())
            .len(self.rows as usize)
            .nulls(nulls)
            .buffers(buffers)
            .build()
            .map(make_array)
            .map_err(|source| PageError::InvalidColumn { column: self.name.to_owned(), source })
    }

    fn read_validity(&self, layout: ColumnLayout) -> Result<Option<NullBuffer>, PageError> {
        let said = self.column.null_count;
        let (_, got) = self.column.buffers[0];
        let may_be_null = layout.nullable && layout.values != ValueLayout::Null;
        if said == 0 || !may_be_null {
            if said > 0 {
                return Err(PageError::NullCount { column: self.name.to_owned(), said, got: 0 });
            }
            return if got == 0 { Ok(None) } else { Err(self.buffer_length("validity", 0, got)) };
        }
        let expected = u64::from(self.rows).div_ceil(8);
        if got as u64 != expected {
            return Err(self.buffer_length("validity", expected, got));
        }
        let bits = BooleanBuffer::new(self.buffer(0), 0, self.rows as usize);
        let nulls = NullBuffer::new(bits);
        if nulls.null_count() != said as usize {
            let (column, got) = (self.name.to_owned(), nulls.null_count());
            return Err(PageError::NullCount { column, said, got });
        }
        Ok(Some(nulls))
    }

    fn buffer(&self, index: usize) -> Buffer {
        let (start, len) = self.column.buffers[index];
        self.page.slice_with_length(start, len)
    }

    fn buffer_length(&self, part: &'static str, expected: u64, got: usize) -> PageError {
        PageError::BufferLength {
            column: self.name.to_owned(),
            part,
            rows: self.rows,
            expected,
            got,
        }
    }
}

/// Whether offsets go from 0 to `data_len` and never down.
fn ascend(offsets: &[u8], width: OffsetWidth, data_len: usize) -> bool {
    match width {
        OffsetWidth::Four => {
            let (offsets, _) = offsets.as_chunks::<4>();
            ascend_words(offsets, |word| i64::from(i32::from_le_bytes(word)), data_len)
        }
        OffsetWidth::Eight => {
            let (offsets, _) = offsets.as_chunks::<8>();
            ascend_words(offsets, i64::from_le_bytes, data_len)
        }
    }
}

fn ascend_words<W: Copy>(words: &[W], value: impl Fn(W) -> i64, data_len: usize) -> bool {
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return data_len == 0;
    };
    let ends = value(*first) == 0 && usize::try_from(value(*last)) == Ok(data_len);
    ends && words.iter().zip(&words[1..]).all(|(a, b)| value(*a) <= value(*b))
}
