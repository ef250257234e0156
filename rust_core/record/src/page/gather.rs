//! Copies the values of selected rows, one column at a time, one loop per width.

use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};

use super::bits;
use super::column_layout::OffsetWidth;
use super::rows::RowSet;
use super::source::{SourceColumn, Values};

/// Gathers words of `width` bytes to the front of `target`; the slots of nulls become zero.
pub(super) fn fixed<R: RowSet>(
    target: &mut [u8],
    width: usize,
    values: &[u8],
    nulls: Option<&NullBuffer>,
    rows: R,
) {
    match width {
        1 => rows.gather(values, target),
        2 => words::<2, R>(target, values, rows),
        4 => words::<4, R>(target, values, rows),
        8 => words::<8, R>(target, values, rows),
        16 => words::<16, R>(target, values, rows),
        32 => words::<32, R>(target, values, rows),
        _ => {
            for (slot, row) in target.chunks_exact_mut(width).zip(rows.iter()) {
                slot.copy_from_slice(&values[row * width..][..width]);
            }
        }
    }
    if let Some(nulls) = nulls {
        for (slot, row) in target.chunks_exact_mut(width).zip(rows.iter()) {
            if nulls.is_null(row) {
                slot.fill(0);
            }
        }
    }
}

fn words<const W: usize, R: RowSet>(target: &mut [u8], values: &[u8], rows: R) {
    rows.gather(values.as_chunks::<W>().0, target.as_chunks_mut::<W>().0);
}

/// Gathers booleans to the bits of `target` from bit `at` on; those of nulls become zero.
pub(super) fn booleans<R: RowSet>(target: &mut [u8], at: usize, column: &SourceColumn, rows: R) {
    let Values::Bits(values) = &column.values else {
        unreachable!("a source is resolved for the schema of its pages");
    };
    match &column.nulls {
        None => bits::write(target, at, rows.iter().map(|row| values.value(row))),
        Some(nulls) => {
            let bits = rows.iter().map(|row| values.value(row) & nulls.is_valid(row));
            bits::write(target, at, bits)
        }
    };
}

/// Gathers validity to the bits of `target` from bit `at` on; returns the number of nulls.
pub(super) fn validity<R: RowSet>(
    target: &mut [u8],
    at: usize,
    nulls: &NullBuffer,
    rows: R,
) -> usize {
    rows.len() - bits::write(target, at, rows.iter().map(|row| nulls.is_valid(row)))
}

/// Bytes of data, or elements of lists, in the given rows; 0 for columns of fixed width.
pub(super) fn data_len<R: RowSet>(column: &SourceColumn, rows: R) -> usize {
    match &column.values {
        Values::List32(offsets) => sum(&Offsets { offsets, data: &[] }, column, rows),
        Values::List64(offsets) => sum(&Offsets { offsets, data: &[] }, column, rows),
        Values::Null
        | Values::Bits(_)
        | Values::Fixed(_)
        | Values::Struct
        | Values::FixedList(_) => 0,
        Values::Var32 { offsets, data } => sum(&Offsets { offsets, data }, column, rows),
        Values::Var64 { offsets, data } => sum(&Offsets { offsets, data }, column, rows),
        Values::Views { views, data } => sum(&Views::new(views, data), column, rows),
    }
}

/// Number of the first rows that fit into `room` bytes of data, or elements of lists.
pub(super) fn count_fitting<R: RowSet>(column: &SourceColumn, rows: R, room: usize) -> usize {
    match &column.values {
        Values::List32(offsets) => fit(&Offsets { offsets, data: &[] }, column, rows, room),
        Values::List64(offsets) => fit(&Offsets { offsets, data: &[] }, column, rows, room),
        Values::Null
        | Values::Bits(_)
        | Values::Fixed(_)
        | Values::Struct
        | Values::FixedList(_) => rows.len(),
        Values::Var32 { offsets, data } => fit(&Offsets { offsets, data }, column, rows, room),
        Values::Var64 { offsets, data } => fit(&Offsets { offsets, data }, column, rows, room),
        Values::Views { views, data } => fit(&Views::new(views, data), column, rows, room),
    }
}

/// Target of the next rows of a string column.
pub(super) struct VarTarget<'a> {
    /// The column's offsets, from the first one.
    pub(super) offsets: &'a mut [u8],
    pub(super) width: OffsetWidth,
    /// The column's data, from its first byte.
    pub(super) data: &'a mut [u8],
    /// Rows written so far.
    pub(super) rows: usize,
    /// Bytes of data written so far.
    pub(super) data_len: usize,
}

impl VarTarget<'_> {
    /// Appends the given rows; returns the total bytes of data.
    pub(super) fn append<R: RowSet>(self, column: &SourceColumn, rows: R) -> usize {
        match &column.values {
            Values::Var32 { offsets, data } => {
                self.append_from(&Offsets { offsets, data }, column, rows)
            }
            Values::Var64 { offsets, data } => {
                self.append_from(&Offsets { offsets, data }, column, rows)
            }
            Values::Views { views, data } => {
                self.append_from(&Views::new(views, data), column, rows)
            }
            _ => unreachable!("a source is resolved for the schema of its pages"),
        }
    }

    fn append_from<V: VarSource, R: RowSet>(
        self,
        var: &V,
        column: &SourceColumn,
        rows: R,
    ) -> usize {
        match self.width {
            OffsetWidth::Four => self.append_offsets::<4, V, R>(var, column, rows),
            OffsetWidth::Eight => self.append_offsets::<8, V, R>(var, column, rows),
        }
    }

    fn append_offsets<const W: usize, V: VarSource, R: RowSet>(
        self,
        var: &V,
        column: &SourceColumn,
        rows: R,
    ) -> usize {
        let (slots, _) = self.offsets.as_chunks_mut::<W>();
        if self.rows == 0 {
            slots[0] = [0; W];
        }
        let slots = slots[self.rows + 1..].iter_mut().zip(rows.iter());
        let mut end = self.data_len;
        if let (None, Some(range)) = (&column.nulls, rows.range())
            && let Some(run) = var.run(range)
        {
            self.data[end..end + run.len()].copy_from_slice(run);
            for (slot, row) in slots {
                end += var.len(row);
                *slot = offset(end);
            }
            return end;
        }
        for (slot, row) in slots {
            if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                let (bytes, start) = var.locate(row);
                let len = var.len(row);
                copy(self.data, end, bytes, start, len);
                end += len;
            }
            *slot = offset(end);
        }
        end
    }
}

/// Appends the offsets of lists; returns the total number of elements.
pub(super) fn list_offsets<R: RowSet>(
    target: &mut [u8],
    width: OffsetWidth,
    rows_before: usize,
    elements: usize,
    column: &SourceColumn,
    rows: R,
) -> usize {
    match (&column.values, width) {
        (Values::List32(offsets), OffsetWidth::Four) => {
            append_ends::<4, _, _>(target, rows_before, elements, offsets, column, rows)
        }
        (Values::List32(offsets), OffsetWidth::Eight) => {
            append_ends::<8, _, _>(target, rows_before, elements, offsets, column, rows)
        }
        (Values::List64(offsets), OffsetWidth::Four) => {
            append_ends::<4, _, _>(target, rows_before, elements, offsets, column, rows)
        }
        (Values::List64(offsets), OffsetWidth::Eight) => {
            append_ends::<8, _, _>(target, rows_before, elements, offsets, column, rows)
        }
        _ => unreachable!("a source is resolved for the schema of its pages"),
    }
}

fn append_ends<const W: usize, O: ArrowNativeType, R: RowSet>(
    target: &mut [u8],
    rows_before: usize,
    elements: usize,
    offsets: &[O],
    column: &SourceColumn,
    rows: R,
) -> usize {
    let (slots, _) = target.as_chunks_mut::<W>();
    if rows_before == 0 {
        slots[0] = [0; W];
    }
    let lists = Offsets { offsets, data: &[] };
    let mut end = elements;
    for (slot, row) in slots[rows_before + 1..].iter_mut().zip(rows.iter()) {
        if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            end += lists.len(row);
        }
        *slot = offset(end);
    }
    end
}

/// A column of byte strings or of lists.
trait Lengths {
    /// Length of a row's string or list.
    fn len(&self, row: usize) -> usize;

    /// Total length of adjacent rows, if it can be computed without a loop.
    fn total(&self, rows: std::ops::Range<usize>) -> Option<usize>;
}

/// A column of byte strings.
trait VarSource: Lengths {
    /// Memory of a row's string, and its offset there.
    fn locate(&self, row: usize) -> (&[u8], usize);

    /// The strings of adjacent rows, if these are contiguous.
    fn run(&self, rows: std::ops::Range<usize>) -> Option<&[u8]>;
}

struct Offsets<'a, O> {
    offsets: &'a [O],
    data: &'a [u8],
}

impl<O: ArrowNativeType> Lengths for Offsets<'_, O> {
    #[inline]
    fn len(&self, row: usize) -> usize {
        self.offsets[row + 1].as_usize() - self.offsets[row].as_usize()
    }

    fn total(&self, rows: std::ops::Range<usize>) -> Option<usize> {
        Some(self.offsets[rows.end].as_usize() - self.offsets[rows.start].as_usize())
    }
}

impl<O: ArrowNativeType> VarSource for Offsets<'_, O> {
    #[inline]
    fn locate(&self, row: usize) -> (&[u8], usize) {
        (self.data, self.offsets[row].as_usize())
    }

    fn run(&self, rows: std::ops::Range<usize>) -> Option<&[u8]> {
        Some(&self.data[self.offsets[rows.start].as_usize()..self.offsets[rows.end].as_usize()])
    }
}

/// Views: length in the low 4 bytes; then either up to 12 bytes of the string, or a prefix of 4
/// bytes, the number of a buffer and an offset in it.
struct Views<'a> {
    views: &'a [u128],
    inlined: &'a [u8],
    data: &'a [Buffer],
}

impl<'a> Views<'a> {
    fn new(views: &'a arrow_buffer::ScalarBuffer<u128>, data: &'a [Buffer]) -> Self {
        Self { views, inlined: views.inner(), data }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "fields are taken out of a word")]
impl Lengths for Views<'_> {
    #[inline]
    fn len(&self, row: usize) -> usize {
        self.views[row] as u32 as usize
    }

    fn total(&self, _: std::ops::Range<usize>) -> Option<usize> {
        None
    }
}

#[expect(clippy::cast_possible_truncation, reason = "fields are taken out of a word")]
impl VarSource for Views<'_> {
    #[inline]
    fn locate(&self, row: usize) -> (&[u8], usize) {
        let view = self.views[row];
        if view as u32 <= MAX_INLINED {
            (self.inlined, row * size_of::<u128>() + 4)
        } else {
            (&self.data[(view >> 64) as u32 as usize], (view >> 96) as usize)
        }
    }

    fn run(&self, _: std::ops::Range<usize>) -> Option<&[u8]> {
        None
    }
}

fn sum<V: Lengths, R: RowSet>(var: &V, column: &SourceColumn, rows: R) -> usize {
    match (&column.nulls, rows.range().and_then(|range| var.total(range))) {
        (None, Some(total)) => total,
        (None, None) => rows.iter().map(|row| var.len(row)).sum(),
        (Some(nulls), _) => {
            rows.iter().filter(|&row| nulls.is_valid(row)).map(|row| var.len(row)).sum()
        }
    }
}

fn fit<V: Lengths, R: RowSet>(var: &V, column: &SourceColumn, rows: R, room: usize) -> usize {
    // Usually all rows fit, and a sum without early exit is the faster loop.
    if sum(var, column, rows) <= room {
        return rows.len();
    }
    let mut bytes = 0;
    rows.iter()
        .take_while(|&row| {
            if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                bytes += var.len(row);
            }
            bytes <= room
        })
        .count()
}

/// Copies a string to `target[at..at + len]`; may overwrite bytes after it.
#[inline]
fn copy(target: &mut [u8], at: usize, source: &[u8], start: usize, len: usize) {
    if len <= SHORT
        && let Some(target) = target.get_mut(at..at + SHORT)
        && let Some(source) = source.get(start..start + SHORT)
    {
        // A copy of constant length takes two instructions; the next row overwrites the excess.
        target.copy_from_slice(source);
    } else {
        target[at..at + len].copy_from_slice(&source[start..start + len]);
    }
}

#[inline]
pub(super) fn offset<const W: usize>(end: usize) -> [u8; W] {
    *(end as u64).to_le_bytes().first_chunk().expect("offsets are of 4 or 8 bytes")
}

const MAX_INLINED: u32 = 12;
const SHORT: usize = 16;
