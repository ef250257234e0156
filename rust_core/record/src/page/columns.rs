//! The columns of an open page, nested ones included: the rows that fit, and the appending of rows.
//!
//! Each row of a list selects rows of its child column. These are computed list by list, so that
//! the same loops gather both.

use super::bits;
use super::column_layout::{
    ColumnLayout, ValueLayout, children, has_varying_descendant, top_level,
};
use super::gather::{self, VarTarget};
use super::layout::ColumnRegions;
use super::rows::{Contiguous, RowSet};
use super::source::{SourceColumn, Values};

/// Written part of one column.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnState {
    rows: usize,
    pub(super) nulls: usize,
    /// Bytes of data, or elements of a list.
    pub(super) data_len: usize,
}

impl ColumnState {
    /// Bytes of validity, values or offsets, and data.
    pub(super) fn used(self, layout: ColumnLayout) -> [usize; 3] {
        let validity = if self.nulls == 0 { 0 } else { self.rows.div_ceil(8) };
        let values = layout.values.values_len(self.rows as u64);
        let values = usize::try_from(values).expect("values were written to memory");
        let data = if let ValueLayout::Var(_) = layout.values { self.data_len } else { 0 };
        [validity, values, data]
    }
}

/// Rows of a child column.
enum Inside {
    Range(Contiguous),
    Picked(Vec<u32>),
}

impl Inside {
    fn of<R: RowSet>(column: &SourceColumn, rows: R) -> Self {
        match &column.values {
            Values::List32(offsets) => Self::elements(column, rows, |row| {
                (index(offsets[row].into()), index(offsets[row + 1].into()))
            }),
            Values::List64(offsets) => {
                Self::elements(column, rows, |row| (index(offsets[row]), index(offsets[row + 1])))
            }
            Values::FixedList(times) => match rows.range() {
                Some(range) => {
                    Self::Range(Contiguous { start: range.start * times, len: range.len() * times })
                }
                None => Self::Picked(
                    rows.iter().flat_map(|row| numbers(row * times, (row + 1) * times)).collect(),
                ),
            },
            _ => unreachable!("only lists have other rows inside than their own"),
        }
    }

    fn elements<R: RowSet>(
        column: &SourceColumn,
        rows: R,
        bounds: impl Fn(usize) -> (usize, usize),
    ) -> Self {
        if let (None, Some(range)) = (&column.nulls, rows.range()) {
            let (start, end) = match range.len() {
                0 => (0, 0),
                _ => (bounds(range.start).0, bounds(range.end - 1).1),
            };
            return Self::Range(Contiguous { start, len: end - start });
        }
        let valid = |row: &usize| column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        let bounds = rows.iter().filter(valid).map(bounds);
        Self::Picked(bounds.flat_map(|(start, end)| numbers(start, end)).collect())
    }
}

/// Row numbers as `u32`; `Source` rejects longer columns.
fn numbers(start: usize, end: usize) -> std::ops::Range<u32> {
    let number = |row| u32::try_from(row).expect("columns have at most u32::MAX rows");
    number(start)..number(end)
}

/// An offset as an index; Arrow guarantees that it is not negative.
fn index(offset: i64) -> usize {
    usize::try_from(offset).expect("offsets are not negative")
}

/// Number of list elements, of top-level lists with children of varying size, in some rows.
pub(super) fn count_elements<R: RowSet>(
    layouts: &[ColumnLayout],
    source: &[SourceColumn],
    rows: R,
) -> usize {
    let of_column = |column: usize| match layouts[column].values {
        ValueLayout::List(_) => gather::data_len(&source[column], rows),
        ValueLayout::FixedList(times) => rows.len() * times,
        _ => 0,
    };
    top_level(layouts)
        .filter(|&column| has_varying_descendant(layouts, column))
        .map(of_column)
        .sum()
}

/// Bytes of data, or elements, of the given rows in each column, nested ones included.
pub(super) fn data_lens<R: RowSet>(
    layouts: &[ColumnLayout],
    source: &[SourceColumn],
    rows: R,
) -> Vec<u64> {
    let mut lens = vec![0; layouts.len()];
    for column in top_level(layouts) {
        add_data_lens(layouts, source, column, rows, &mut lens);
    }
    lens
}

fn add_data_lens<R: RowSet>(
    layouts: &[ColumnLayout],
    source: &[SourceColumn],
    column: usize,
    rows: R,
    lens: &mut [u64],
) {
    lens[column] = gather::data_len(&source[column], rows) as u64;
    if !has_varying_descendant(layouts, column) {
        return;
    }
    match layouts[column].values {
        ValueLayout::Struct => {
            for field in children(layouts, column) {
                add_data_lens(layouts, source, field, rows, lens);
            }
        }
        ValueLayout::List(_) | ValueLayout::FixedList(_) => {
            match Inside::of(&source[column], rows) {
                Inside::Range(rows) => add_data_lens(layouts, source, column + 1, rows, lens),
                Inside::Picked(rows) => add_data_lens(layouts, source, column + 1, &*rows, lens),
            }
        }
        _ => {}
    }
}

/// Free room in the regions of an open page.
pub(super) struct Room<'a> {
    pub(super) layouts: &'a [ColumnLayout],
    pub(super) source: &'a [SourceColumn],
    pub(super) states: &'a [ColumnState],
    pub(super) regions: &'a [ColumnRegions],
}

impl Room<'_> {
    /// Number of the first rows whose data and elements fit.
    pub(super) fn count_fitting<R: RowSet>(&self, rows: R) -> usize {
        top_level(self.layouts).fold(rows.len(), |count, column| self.fit(column, rows.head(count)))
    }

    fn fit<R: RowSet>(&self, column: usize, rows: R) -> usize {
        let source = &self.source[column];
        let left = |capacity: usize| capacity - self.states[column].data_len;
        match self.layouts[column].values {
            ValueLayout::Var(_) => {
                gather::count_fitting(source, rows, left(self.regions[column].data.len))
            }
            ValueLayout::Struct => children(self.layouts, column)
                .fold(rows.len(), |count, field| self.fit(field, rows.head(count))),
            ValueLayout::List(_) => {
                let room = left(self.regions[column].elements);
                let rows = rows.head(gather::count_fitting(source, rows, room));
                if !has_varying_descendant(self.layouts, column) {
                    return rows.len();
                }
                let (fitting, all) = self.fit_inside(column, rows);
                if fitting == all {
                    return rows.len();
                }
                gather::count_fitting(source, rows, fitting)
            }
            ValueLayout::FixedList(times) if has_varying_descendant(self.layouts, column) => {
                self.fit_inside(column, rows).0 / times
            }
            ValueLayout::Null
            | ValueLayout::Bits
            | ValueLayout::Fixed(_)
            | ValueLayout::FixedList(_) => rows.len(),
        }
    }

    /// Number of elements of these rows that fit, and their total.
    fn fit_inside<R: RowSet>(&self, column: usize, rows: R) -> (usize, usize) {
        match Inside::of(&self.source[column], rows) {
            Inside::Range(rows) => (self.fit(column + 1, rows), rows.len()),
            Inside::Picked(rows) => (self.fit(column + 1, &*rows), rows.len()),
        }
    }
}

/// The columns of an open page while rows that fit are appended.
pub(super) struct OpenColumns<'a> {
    pub(super) layouts: &'a [ColumnLayout],
    pub(super) source: &'a [SourceColumn],
    pub(super) states: &'a mut [ColumnState],
    pub(super) regions: &'a [ColumnRegions],
    pub(super) target: &'a mut [u8],
}

impl OpenColumns<'_> {
    pub(super) fn append<R: RowSet>(&mut self, rows: R) {
        for column in top_level(self.layouts) {
            self.append_column(column, rows);
        }
    }

    fn append_column<R: RowSet>(&mut self, column: usize, rows: R) {
        if rows.len() == 0 {
            return; // lists without elements: the child may not even have room for one offset
        }
        let has_nulls = self.append_validity(column, rows);
        let (source, regions) = (&self.source[column], self.regions[column]);
        let state = &mut self.states[column];
        let rows_before = state.rows;
        state.rows += rows.len();
        let values = regions.values;
        match self.layouts[column].values {
            ValueLayout::Null => {}
            ValueLayout::Bits => {
                let target = &mut self.target[values.start..values.end()];
                gather::booleans(target, rows_before, source, rows);
            }
            ValueLayout::Fixed(width) => {
                let Values::Fixed(words) = &source.values else {
                    unreachable!("a source is resolved for the schema of its pages");
                };
                let start = values.start + rows_before * width;
                let target = &mut self.target[start..start + rows.len() * width];
                let nulls = source.nulls.as_ref().filter(|_| has_nulls);
                gather::fixed(target, width, words, nulls, rows);
            }
            ValueLayout::Var(width) => {
                let (front, back) = self.target.split_at_mut(regions.data.start);
                let target = VarTarget {
                    offsets: &mut front[values.start..values.end()],
                    width,
                    data: &mut back[..regions.data.len],
                    rows: rows_before,
                    data_len: state.data_len,
                };
                state.data_len = target.append(source, rows);
            }
            ValueLayout::List(width) => {
                let offsets = &mut self.target[values.start..values.end()];
                let end = state.data_len;
                state.data_len =
                    gather::list_offsets(offsets, width, rows_before, end, source, rows);
                self.append_inside(column, rows);
            }
            ValueLayout::FixedList(_) => self.append_inside(column, rows),
            ValueLayout::Struct => {
                for field in children(self.layouts, column) {
                    self.append_column(field, rows);
                }
            }
        }
    }

    fn append_inside<R: RowSet>(&mut self, column: usize, rows: R) {
        match Inside::of(&self.source[column], rows) {
            Inside::Range(rows) => self.append_column(column + 1, rows),
            Inside::Picked(rows) => self.append_column(column + 1, &*rows),
        }
    }

    /// Writes validity from the first null on; returns true if some of these rows may need zeroed
    /// values.
    fn append_validity<R: RowSet>(&mut self, column: usize, rows: R) -> bool {
        let (source, layout) = (&self.source[column], self.layouts[column]);
        let some_are_blank = source.nulls.is_some();
        if !layout.has_validity() {
            return some_are_blank;
        }
        let (state, regions) = (&mut self.states[column], self.regions[column]);
        let target = &mut self.target[regions.validity.start..regions.validity.end()];
        let Some(validity) = &source.validity else {
            if state.nulls > 0 {
                bits::set(target, state.rows, rows.len());
            }
            return some_are_blank;
        };
        let nulls = gather::validity(target, state.rows, validity, rows);
        if state.nulls == 0 && nulls > 0 {
            bits::set_front(target, state.rows);
        }
        state.nulls += nulls;
        nulls > 0 || source.has_hidden
    }
}
