//! Pages made of pieces of a batch's own memory, for rows that all go to one subpartition, or to
//! each.
//!
//! Decision: ADR 0021.

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use bytes::Bytes;

use super::assembly::Assembly;
use super::bits;
use super::column_layout::{ColumnLayout, OffsetWidth, ValueLayout};
use super::gather;
use super::header::{HeaderWriter, header_len, to_u32};
use super::layout::{Layout, MAX_ROWS, Region};
use super::rows::Contiguous;
use super::schema::PageSchema;
use super::source::{Source, SourceColumn, Values};

/// A page in pieces. Concatenated, they are a page like any other.
#[derive(Debug)]
pub struct PiecedPage {
    /// The first piece holds the header. Each buffer of the page is within one piece.
    pub pieces: Vec<Bytes>,
    /// Total bytes of the pieces.
    pub len: usize,
    /// Number of rows.
    pub rows: usize,
    /// Bytes of values copied because a null had a nonzero value.
    pub copied: usize,
}

/// Cuts a batch into pages made of pieces of its memory, if its columns have the layout of page
/// columns.
///
/// Values, data, and offsets that start at 0 are used in place. Other offsets are copied. So are
/// bitmaps, which are small and rarely start at a byte, and values with a null that is not zero,
/// which a page must not contain.
#[derive(Debug)]
pub struct Pieces<'a> {
    schema: &'a PageSchema,
    source: &'a Source,
}

impl<'a> Pieces<'a> {
    /// Returns `None` if a column is nested, or dictionary-encoded, run-end encoded or a view here or
    /// for readers, if a null has a nonempty string, or if a page of all rows has less than `least`
    /// bytes.
    #[must_use]
    pub fn try_new(schema: &'a PageSchema, source: &'a Source, least: u64) -> Option<Self> {
        let lies_so = |column: &SourceColumn| {
            use Values::{Bits, Fixed, Null, Var32, Var64};
            matches!(&column.values, Null | Bits(_) | Fixed(_) | Var32 { .. } | Var64 { .. })
        };
        let hides_nothing = |column: &SourceColumn| match &column.values {
            Values::Var32 { offsets, .. } => hides_nothing(offsets, column.nulls.as_ref()),
            Values::Var64 { offsets, .. } => hides_nothing(offsets, column.nulls.as_ref()),
            _ => true,
        };
        let columns = source.columns();
        let pieces = Self { schema, source };
        let suits = schema.is_plain()
            && !source.is_unpacked()
            && columns.iter().all(lies_so)
            && pieces.len() >= least
            && columns.iter().all(hides_nothing);
        suits.then_some(pieces)
    }

    /// Upper bound of the bytes of one page of all rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.lens_of(0, self.source.num_rows()).0
    }

    /// True if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.num_rows() == 0
    }

    /// Returns true if every row has at most `bytes` bytes. An estimate: it adds up the widest
    /// value of each column.
    #[must_use]
    pub fn has_rows_within(&self, bytes: usize) -> bool {
        let widest = |(column, layout): (&SourceColumn, &ColumnLayout)| match &column.values {
            Values::Var32 { offsets, .. } => longest(offsets) + 8,
            Values::Var64 { offsets, .. } => longest(offsets) + 8,
            _ => match layout.values {
                ValueLayout::Fixed(width) => width,
                _ => 1,
            },
        };
        let columns = self.source.columns().iter().zip(self.schema.layouts());
        columns.map(widest).sum::<usize>() <= bytes
    }

    /// Bytes of the buffers that the batch keeps alive, including the parts outside of its slices.
    #[must_use]
    pub fn pinned(&self) -> u64 {
        let mut all: Vec<&Buffer> = Vec::new();
        for column in self.source.columns() {
            all.extend(column.nulls.as_ref().map(NullBuffer::buffer));
            match &column.values {
                Values::Bits(bits) => all.push(bits.inner()),
                Values::Fixed(values) => all.push(values),
                Values::Var32 { offsets, data } => all.extend([offsets.inner(), data]),
                Values::Var64 { offsets, data } => all.extend([offsets.inner(), data]),
                _ => {}
            }
        }
        all.sort_unstable_by_key(|buffer| buffer.data_ptr());
        all.dedup_by_key(|buffer| buffer.data_ptr());
        all.iter().map(|buffer| buffer.capacity() as u64).sum()
    }

    /// Estimated bytes that the pages need in addition to the memory of the batch.
    #[must_use]
    pub fn written(&self) -> u64 {
        let rows = self.source.num_rows() as u64;
        let columns = self.schema.layouts().iter().map(|layout| {
            let offsets = match layout.values {
                ValueLayout::Var(width) => rows * width.bytes() as u64,
                ValueLayout::Bits => rows / 8,
                _ => 0,
            };
            offsets + if layout.has_validity() { rows / 8 } else { 0 }
        });
        header_len(self.schema) as u64 + columns.sum::<u64>()
    }

    /// Makes a page of at most `capacity` bytes of rows from `start` on; `None` if not even one row
    /// fits.
    ///
    /// # Panics
    /// If `start` is beyond the last row.
    #[must_use]
    pub fn cut(&self, start: usize, capacity: usize) -> Option<PiecedPage> {
        let rows = self.count_fitting(start, capacity.min(u32::MAX as usize) as u64)?;
        let header_len = header_len(self.schema);
        let mut page = Assembly::new(header_len);
        let mut copied = 0;
        let mut fields = Vec::with_capacity(self.source.columns().len());
        for (column, layout) in self.source.columns().iter().zip(self.schema.layouts()) {
            let range = Contiguous { start, len: rows };
            let column = Column { column, rows: range };
            let nulls = column.nulls();
            let null_count = nulls.as_ref().map_or(0, NullBuffer::null_count);
            let validity = nulls.as_ref().map_or_else(Region::default, |nulls| {
                page.write(rows.div_ceil(8), |target| bits::pack(target, nulls.inner(), None))
            });
            let [values, data] = match layout.values {
                ValueLayout::Fixed(width) => {
                    let values = column.fixed(width, nulls.as_ref(), &mut page);
                    copied += values.1;
                    [values.0, Region::default()]
                }
                ValueLayout::Var(width) => column.var(width, &mut page),
                ValueLayout::Bits => [column.bits(nulls.as_ref(), &mut page), Region::default()],
                _ => [Region::default(); 2],
            };
            fields.push((null_count, layout.values.num_buffers(), [validity, values, data]));
        }
        let len = page.len();
        let pieces = page.finish(header_len, |header| {
            let mut header = HeaderWriter::new(header, to_u32(rows), self.schema, to_u32(len));
            fields.iter().for_each(|(nulls, ..)| header.put(to_u32(*nulls)));
            for region in fields.iter().flat_map(|(_, count, regions)| &regions[..*count]) {
                header.put(if region.len == 0 { 0 } else { to_u32(region.start) });
                header.put(to_u32(region.len));
            }
            header.finish();
        });
        Some(PiecedPage { pieces, len, rows, copied })
    }

    /// Returns the number of rows from `start` on for the next page: those that fit, or fewer if
    /// that spreads the remaining rows evenly over the same number of pages. A large number is
    /// rounded down so that values end at a cache line, which saves padding pieces.
    fn count_fitting(&self, start: usize, capacity: u64) -> Option<usize> {
        let left = (self.source.num_rows() - start).min(MAX_ROWS as usize - 1);
        let fits = |rows: usize| matches!(self.lens_of(start, rows), (len, 0) if len <= capacity);
        if fits(left) {
            return Some(left).filter(|left| *left > 0);
        }
        let pages = self.lens_of(start, left).0.div_ceil(capacity.max(1));
        let even =
            left.div_ceil(usize::try_from(pages).unwrap_or(left)).next_multiple_of(ROWS_OF_A_LINE);
        let (mut rows, mut too_many) = (0, left);
        while too_many - rows > 1 + rows / MAX_LEFT_OUT {
            let middle = rows.midpoint(too_many);
            *(if fits(middle) { &mut rows } else { &mut too_many }) = middle;
        }
        match rows.min(even) {
            0 => None,
            few if few / ROWS_OF_A_LINE < MIN_LINES => Some(few),
            many => Some(many / ROWS_OF_A_LINE * ROWS_OF_A_LINE),
        }
    }

    /// Bytes of a page of these rows, and smallest length of the page, as [`Layout::lens`].
    fn lens_of(&self, start: usize, rows: usize) -> (u64, u64) {
        Layout::lens(self.schema, rows as u64, |column| {
            let data_len = |column: &SourceColumn| match &column.values {
                Values::Var32 { offsets, .. } => span(offsets, start, rows),
                Values::Var64 { offsets, .. } => span(offsets, start, rows),
                _ => 0,
            };
            data_len(&self.source.columns()[column]) as u64
        })
    }
}

/// A range of rows of a column.
struct Column<'a> {
    column: &'a SourceColumn,
    rows: Contiguous,
}

impl Column<'_> {
    /// `None` if no row is null.
    fn nulls(&self) -> Option<NullBuffer> {
        let nulls = self.column.nulls.as_ref()?.slice(self.rows.start, self.rows.len);
        (nulls.null_count() > 0).then_some(nulls)
    }

    fn bits(&self, nulls: Option<&NullBuffer>, page: &mut Assembly) -> Region {
        let Values::Bits(values) = &self.column.values else {
            unreachable!("a source is resolved for the schema of its pages");
        };
        let values = values.slice(self.rows.start, self.rows.len);
        let mask = nulls.map(NullBuffer::inner);
        page.write(self.rows.len.div_ceil(8), |target| bits::pack(target, &values, mask))
    }

    /// Returns the values and the number of bytes copied.
    fn fixed(
        &self,
        width: usize,
        nulls: Option<&NullBuffer>,
        page: &mut Assembly,
    ) -> (Region, usize) {
        let Values::Fixed(all) = &self.column.values else {
            unreachable!("a source is resolved for the schema of its pages");
        };
        let (start, len) = (self.rows.start * width, self.rows.len * width);
        let values = all.slice_with_length(start, len);
        let is_zero = |row: usize| values[row * width..][..width].iter().all(|byte| *byte == 0);
        if nulls.is_none_or(|nulls| bits::zeros(nulls.inner()).all(is_zero)) {
            return (page.take(values), 0);
        }
        let nulls = self.column.nulls.as_ref();
        let copy = |target: &mut [u8]| gather::fixed(target, width, all, nulls, self.rows);
        (page.write(len, copy), len)
    }

    /// Offsets and data.
    fn var(&self, width: OffsetWidth, page: &mut Assembly) -> [Region; 2] {
        match (&self.column.values, width) {
            (Values::Var32 { offsets, data }, OffsetWidth::Four) => {
                self.strings::<i32, 4>(offsets, true, data, page)
            }
            (Values::Var32 { offsets, data }, OffsetWidth::Eight) => {
                self.strings::<i32, 8>(offsets, false, data, page)
            }
            (Values::Var64 { offsets, data }, OffsetWidth::Four) => {
                self.strings::<i64, 4>(offsets, false, data, page)
            }
            (Values::Var64 { offsets, data }, OffsetWidth::Eight) => {
                self.strings::<i64, 8>(offsets, true, data, page)
            }
            _ => unreachable!("a source is resolved for the schema of its pages"),
        }
    }

    fn strings<O: ArrowNativeType, const W: usize>(
        &self,
        all: &arrow_buffer::ScalarBuffer<O>,
        same_width: bool,
        data: &Buffer,
        page: &mut Assembly,
    ) -> [Region; 2] {
        let Contiguous { start, len } = self.rows;
        let offsets = &all[start..=start + len];
        let (first, last) = (offsets[0].as_usize(), offsets[len].as_usize());
        let placed = if same_width && first == 0 {
            page.take(all.inner().slice_with_length(start * W, (len + 1) * W))
        } else {
            page.write((len + 1) * W, |target| {
                for (slot, offset) in target.as_chunks_mut::<W>().0.iter_mut().zip(offsets) {
                    *slot = gather::offset(offset.as_usize() - first);
                }
            })
        };
        [placed, page.take(data.slice_with_length(first, last - first))]
    }
}

/// Bytes of the strings of adjacent rows.
fn span<O: ArrowNativeType>(offsets: &[O], start: usize, rows: usize) -> usize {
    offsets[start + rows].as_usize() - offsets[start].as_usize()
}

fn longest<O: ArrowNativeType>(offsets: &[O]) -> usize {
    let lengths =
        offsets.iter().zip(&offsets[1..]).map(|(from, to)| to.as_usize() - from.as_usize());
    lengths.max().unwrap_or(0)
}

fn hides_nothing<O: ArrowNativeType>(offsets: &[O], nulls: Option<&NullBuffer>) -> bool {
    let is_empty = |row: usize| offsets[row] == offsets[row + 1];
    nulls.is_none_or(|nulls| bits::zeros(nulls.inner()).all(is_empty))
}

/// The search for the number of rows stops short of the optimum by at most one row in this many.
const MAX_LEFT_OUT: usize = 64;
/// Values of any width end at a cache line after a multiple of this many rows.
const ROWS_OF_A_LINE: usize = 64;
/// With fewer cache lines than this, rounding down would leave out too many rows.
const MIN_LINES: usize = 32;
