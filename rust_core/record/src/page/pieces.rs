//! Pages that are pieces of a batch's own memory: rows that all go to one place need no copy.
//!
//! Decision: ADR 0021.

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use bytes::Bytes;

use super::assembly::Assembly;
use super::bits;
use super::gather;
use super::header::{HeaderWriter, header_len, to_u32};
use super::layout::{Layout, Region};
use super::rows::Contiguous;
use super::schema::{ColumnLayout, OffsetWidth, PageSchema, ValueLayout};
use super::source::{Source, SourceColumn, Values};

/// A page in pieces; behind each other they are the bytes of any page of these rows.
#[derive(Debug)]
pub struct PiecedPage {
    /// The first holds the header, and each buffer of the page is in one.
    pub pieces: Vec<Bytes>,
    /// Bytes of all of them.
    pub len: usize,
    /// How many rows it has.
    pub rows: usize,
    /// Bytes of values that had to be copied, since nulls hid others than zeros.
    pub copied: usize,
}

/// Cuts a batch into pages that are pieces of its memory, where its columns lie as those of pages do.
///
/// Values, data, and offsets that start at 0 stay where they are. Other offsets, and bitmaps, which are
/// small and rarely begin with a byte, are written anew, and so are values under nulls that are not zero:
/// a page holds nothing but its rows.
#[derive(Debug)]
pub struct Pieces<'a> {
    schema: &'a PageSchema,
    source: &'a Source,
}

impl<'a> Pieces<'a> {
    /// None where a column is nested, packed, or a view, or hides strings behind nulls; and for pages of
    /// less than so many bytes.
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
        let suits = !source.is_unpacked()
            && columns.iter().all(lies_so)
            && pieces.len() >= least
            && columns.iter().all(hides_nothing);
        suits.then_some(pieces)
    }

    /// At most how many bytes one page of all rows would have.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len_of(0, self.source.num_rows())
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.num_rows() == 0
    }

    /// Whether no row has more than so many bytes, or seems to: the widest of each column are added up.
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

    /// Bytes of the memory that the batch keeps, as far as Arrow shows it: of what it is a slice of, too.
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

    /// Bytes that its pages have beside the memory of the batch, more or less.
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

    /// The rows from `start` on that a page of `capacity` bytes holds; none if it does not hold one.
    ///
    /// # Panics
    /// If `start` is behind the last row.
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

    /// How many rows from `start` on to put into a page: those that fit, or less where all that are left
    /// come as evenly on as few pages. Many are such that their values end with a line of memory, which
    /// saves pieces.
    fn count_fitting(&self, start: usize, capacity: u64) -> Option<usize> {
        let left = self.source.num_rows() - start;
        let fits = |rows: usize| self.len_of(start, rows) <= capacity;
        if fits(left) {
            return Some(left).filter(|left| *left > 0);
        }
        let pages = self.len_of(start, left).div_ceil(capacity.max(1));
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

    fn len_of(&self, start: usize, rows: usize) -> u64 {
        Layout::len(self.schema, rows as u64, |column| {
            let data_len = |column: &SourceColumn| match &column.values {
                Values::Var32 { offsets, .. } => span(offsets, start, rows),
                Values::Var64 { offsets, .. } => span(offsets, start, rows),
                _ => 0,
            };
            data_len(&self.source.columns()[column]) as u64
        })
    }
}

/// Some rows of a column.
struct Column<'a> {
    column: &'a SourceColumn,
    rows: Contiguous,
}

impl Column<'_> {
    /// None if no row is null.
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

    /// The values, and how many bytes of them were copied.
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

/// At most one row in so many is left out that would fit.
const MAX_LEFT_OUT: usize = 64;
/// So many values of any width end with a line of memory.
const ROWS_OF_A_LINE: usize = 64;
/// Of fewer lines than this, too many rows would be left out for that.
const MIN_LINES: usize = 32;
