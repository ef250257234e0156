//! The layout of an open page: regions of the columns for a number of rows.

use super::ALIGNMENT;
use super::column_layout::{ColumnLayout, Length, ValueLayout};
use super::header::header_len;
use super::schema::PageSchema;

/// Statistics of earlier pages to plan the next one: bytes per row of each string column, elements
/// per row of each list.
///
/// Keep one per subpartition or one per partition. It affects only how full pages become.
#[derive(Clone, Debug, Default)]
pub struct PageProfile {
    rows: u64,
    data_bytes: Vec<u64>,
}

impl PageProfile {
    /// Creates a profile without statistics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `rows` rows with the given bytes of data, or elements, of each column. The weight of
    /// older rows decays.
    pub(super) fn add(&mut self, rows: usize, data_bytes: impl ExactSizeIterator<Item = u64>) {
        self.data_bytes.resize(data_bytes.len(), 0);
        self.rows = self.rows / 2 + rows as u64;
        for (sum, bytes) in self.data_bytes.iter_mut().zip(data_bytes) {
            *sum = *sum / 2 + bytes;
        }
    }

    /// Estimated bytes of data, or elements, of a column in `rows` rows.
    fn guess(&self, column: usize, rows: u64) -> u64 {
        let bytes = self.data_bytes.get(column).copied().unwrap_or(0);
        let guess = u128::from(bytes) * u128::from(rows) / u128::from(self.rows.max(1));
        u64::try_from(guess).unwrap_or(u64::MAX / 2)
    }
}

/// A region of a page: bytes `start..start + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Region {
    pub(super) fn end(self) -> usize {
        self.start + self.len
    }
}

/// The regions of one column; unused ones are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnRegions {
    pub(super) validity: Region,
    /// Values, or offsets.
    pub(super) values: Region,
    pub(super) data: Region,
    /// Number of list elements for which the child column has room.
    pub(super) elements: usize,
}

impl ColumnRegions {
    pub(super) fn all(self) -> [Region; 3] {
        [self.validity, self.values, self.data]
    }
}

/// The regions of an open page.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Number of rows for which all regions except data have room.
    pub(super) rows: usize,
    pub(super) columns: Vec<ColumnRegions>,
    /// Smallest length of the page. Zeros fill it up.
    pub(super) min_len: usize,
}

impl Layout {
    /// Computes regions for the number of rows that `profile` expects in `page_len` bytes.
    ///
    /// They have room for at least `min_rows` rows with `min_data` bytes in each column; `None` if
    /// these do not fit.
    pub(super) fn fit(
        schema: &PageSchema,
        page_len: usize,
        profile: &PageProfile,
        min_rows: u64,
        min_data: &[u64],
    ) -> Option<Self> {
        let budget = budget(page_len);
        let data = |column: usize, rows: u64| match rows {
            rows if rows == min_rows => min_data[column],
            rows => min_data[column].max(profile.guess(column, rows)),
        };
        let len = |rows: u64| match Self::lens(schema, rows, |column| data(column, rows)) {
            (len, 0) => len,
            _ => u64::MAX,
        };
        let rows = most_rows(min_rows, budget, len)?;
        let spare = budget - len(rows);
        let is_var = |layout: &&ColumnLayout| matches!(layout.values, ValueLayout::Var(_));
        let var_columns = schema.layouts().iter().filter(is_var).count().max(1) as u64;
        let share = spare / var_columns / ALIGNMENT_64 * ALIGNMENT_64;
        let share = |column: usize| if is_var(&&schema.layouts()[column]) { share } else { 0 };
        Some(Self::new(schema, rows, |column| data(column, rows) + share(column)))
    }

    /// Computes regions for one row with the given bytes of data in each column; `None` if it needs
    /// more than `page_len` bytes.
    pub(super) fn of_one_row(schema: &PageSchema, page_len: usize, data: &[u64]) -> Option<Self> {
        let len = Self::len(schema, 1, |column| data[column]);
        (len <= budget(page_len)).then(|| Self::exact(schema, 1, data))
    }

    /// Computes regions for `rows` rows with the given bytes of data in each column.
    pub(super) fn exact(schema: &PageSchema, rows: u64, data: &[u64]) -> Self {
        Self::new(schema, rows, |column| data[column])
    }

    /// Length of a page with regions for `rows` rows and the given bytes of data in each column.
    pub(super) fn len(schema: &PageSchema, rows: u64, data: impl Fn(usize) -> u64) -> u64 {
        let (len, min_len) = Self::lens(schema, rows, data);
        len.max(min_len)
    }

    /// Length of the header and the regions, and smallest length of the page. If the latter is not
    /// 0, the rows belong in several pages: one would have to be filled up with zeros.
    pub(super) fn lens(schema: &PageSchema, rows: u64, data: impl Fn(usize) -> u64) -> (u64, u64) {
        let mut end = header_len(schema) as u64;
        let mut min_len = if schema.layouts().is_empty() { min_len_of(rows) } else { 0 };
        for (index, layout) in schema.layouts().iter().enumerate() {
            let rows = column_rows(schema.layouts(), index, rows, &data);
            if rows >= MAX_ROWS {
                return (u64::MAX, 0);
            }
            if layout.is_bare(index) {
                min_len = min_len.max(min_len_of(rows));
            }
            for len in region_lens(*layout, rows, || data(index)) {
                end = end.saturating_add(len.next_multiple_of(ALIGNMENT_64));
            }
        }
        (end, min_len)
    }

    fn new(schema: &PageSchema, rows: u64, data: impl Fn(usize) -> u64) -> Self {
        let (_, min_len) = Self::lens(schema, rows, &data);
        let mut end = header_len(schema);
        let mut columns = Vec::with_capacity(schema.layouts().len());
        for (index, layout) in schema.layouts().iter().enumerate() {
            let rows = column_rows(schema.layouts(), index, rows, &data);
            let lens = region_lens(*layout, rows, || data(index));
            let is_list = matches!(layout.values, ValueLayout::List(_));
            let elements = if is_list { to_usize(data(index)) } else { 0 };
            let [validity, values, data] = lens.map(|len| {
                let region = Region { start: end, len: to_usize(len) };
                end = region.end().next_multiple_of(ALIGNMENT);
                region
            });
            columns.push(ColumnRegions { validity, values, data, elements });
        }
        Self { rows: to_usize(rows), columns, min_len: to_usize(min_len) }
    }
}

/// Returns the largest number of rows, at least `min_rows`, whose length is within the budget;
/// `None` if the length of `min_rows` rows is not.
///
/// The length is almost linear in the rows, so interpolation comes close to the answer.
fn most_rows(min_rows: u64, budget: u64, len: impl Fn(u64) -> u64) -> Option<u64> {
    let shortest = len(min_rows);
    let spare = budget.checked_sub(shortest)?;
    let grown = (len(min_rows + PROBED_ROWS) - shortest).max(1);
    let more = u128::from(spare) * u128::from(PROBED_ROWS) / u128::from(grown);
    let guess = min_rows.saturating_add(u64::try_from(more).unwrap_or(MAX_ROWS).max(1));
    let (mut rows, mut too_many) = (min_rows, MAX_ROWS);
    let (mut next, mut step) = (guess.min(MAX_ROWS - 1), 1);
    while rows + 1 < too_many {
        if next <= rows || next >= too_many {
            next = rows.midpoint(too_many);
        }
        if len(next) <= budget {
            rows = next;
            next = next.saturating_add(step);
        } else {
            too_many = next;
            next = next.saturating_sub(step);
        }
        step *= 2;
    }
    Some(rows)
}

/// Smallest length of a page with `rows` rows that take no bytes, in one column or without columns.
fn min_len_of(rows: u64) -> u64 {
    if rows <= MAX_BARE_ROWS {
        0
    } else {
        rows.div_ceil(ROWS_PER_BYTE).next_multiple_of(ALIGNMENT_64)
    }
}

/// Largest number of rows of a column, nested or not, in a page of `page_len` bytes.
pub(super) fn max_rows(page_len: usize) -> u64 {
    let by_bytes = (page_len as u64).saturating_mul(ROWS_PER_BYTE);
    by_bytes.clamp(MAX_BARE_ROWS, MAX_ROWS - 1)
}

/// Usable bytes of a page; its numbers are 32 bits wide.
fn budget(page_len: usize) -> u64 {
    (page_len as u64).min(u64::from(u32::MAX)) / ALIGNMENT_64 * ALIGNMENT_64
}

/// Converts a length that is known to fit the page.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("a page in memory holds it")
}

/// Number of rows of a column in a page of `rows` rows.
fn column_rows(
    layouts: &[ColumnLayout],
    column: usize,
    rows: u64,
    data: &impl Fn(usize) -> u64,
) -> u64 {
    match layouts[column].length {
        Length::Page => rows,
        Length::Same(outer) => column_rows(layouts, outer, rows, data),
        Length::Times(outer, times) => {
            column_rows(layouts, outer, rows, data).saturating_mul(times as u64)
        }
        Length::Elements(outer) => data(outer),
    }
}

/// Lengths of validity, values or offsets, and data of one column.
fn region_lens(layout: ColumnLayout, rows: u64, data: impl Fn() -> u64) -> [u64; 3] {
    let validity = if layout.has_validity() { rows.div_ceil(8) } else { 0 };
    let data = match layout.values {
        ValueLayout::Var(width) => data().min(width.max_data()),
        _ => 0,
    };
    [validity, layout.values.values_len(rows), data]
}

const ALIGNMENT_64: u64 = ALIGNMENT as u64;
/// Number of rows from which the length per row is computed, so that rounding does not matter.
const PROBED_ROWS: u64 = 1 << 12;
/// Exclusive limit of the rows of a page.
pub(super) const MAX_ROWS: u64 = 1 << 31;
/// Largest number of rows that a page of any length may have. Rows may take no bytes, so a few bytes
/// could otherwise declare any number, which a reader then decodes or iterates.
const MAX_BARE_ROWS: u64 = 1 << 20;
/// Largest number of rows for each byte of a longer page: a Boolean takes a bit.
const ROWS_PER_BYTE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_most_rows_that_fit_are_found(
            min_rows in 1u64..5000,
            budget in 0u64..1 << 21,
            base in 0u64..4096,
            bits_per_row in 0u64..1 << 14,
            alignment in 1u64..4096,
            jump in (0u64..5000, 0u64..1 << 21),
        ) {
            let len = |rows: u64| match rows {
                MAX_ROWS.. => u64::MAX,
                _ => {
                    let jump = if rows > jump.0 { jump.1 } else { 0 };
                    base + jump + (rows * bits_per_row).div_ceil(8).next_multiple_of(alignment)
                }
            };
            match most_rows(min_rows, budget, len) {
                None => prop_assert!(len(min_rows) > budget),
                Some(rows) => {
                    prop_assert!(rows >= min_rows && len(rows) <= budget);
                    prop_assert!(len(rows + 1) > budget);
                }
            }
        }
    }
}
