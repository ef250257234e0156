//! Where the columns of an open page lie: regions for so many rows.

use super::ALIGNMENT;
use super::header::header_len;
use super::schema::{ColumnLayout, Length, PageSchema, ValueLayout};

/// What the pages written so far tell about the next one: bytes per row of each string column, elements
/// per row of each list.
///
/// Keep one per subpartition, or one per partition; it only decides how full pages get.
#[derive(Clone, Debug, Default)]
pub struct PageProfile {
    rows: u64,
    data_bytes: Vec<u64>,
}

impl PageProfile {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `rows` rows whose columns have so many bytes of data, or elements; older rows count for less and less.
    pub(super) fn add(&mut self, rows: usize, data_bytes: impl ExactSizeIterator<Item = u64>) {
        self.data_bytes.resize(data_bytes.len(), 0);
        self.rows = self.rows / 2 + rows as u64;
        for (sum, bytes) in self.data_bytes.iter_mut().zip(data_bytes) {
            *sum = *sum / 2 + bytes;
        }
    }

    /// Bytes of data, or elements, of a column in so many rows, at a guess.
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

/// The regions of one column; those that it does not have are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnRegions {
    pub(super) validity: Region,
    /// Values, or offsets.
    pub(super) values: Region,
    pub(super) data: Region,
    /// How many elements of lists the columns inside have room for.
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
    /// How many rows fit, as far as all but data is concerned.
    pub(super) rows: usize,
    pub(super) columns: Vec<ColumnRegions>,
}

impl Layout {
    /// Regions for as many rows as `page_len` bytes hold if `profile` guesses right.
    ///
    /// There is room for `min_rows` rows with `min_data` bytes in each column in any case; none if
    /// that does not fit.
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
        let len = |rows: u64| Self::len(schema, rows, |column| data(column, rows));
        let rows = most_rows(min_rows, budget, len)?;
        let spare = budget - len(rows);
        let is_var = |layout: &&ColumnLayout| matches!(layout.values, ValueLayout::Var(_));
        let var_columns = schema.layouts().iter().filter(is_var).count().max(1) as u64;
        let share = spare / var_columns / ALIGNMENT_64 * ALIGNMENT_64;
        let share = |column: usize| if is_var(&&schema.layouts()[column]) { share } else { 0 };
        Some(Self::new(schema, rows, |column| data(column, rows) + share(column)))
    }

    /// Regions for one row with exactly so many bytes of data in each column; none if it needs more
    /// than `page_len` bytes.
    pub(super) fn of_one_row(schema: &PageSchema, page_len: usize, data: &[u64]) -> Option<Self> {
        let len = Self::len(schema, 1, |column| data[column]);
        (len <= budget(page_len)).then(|| Self::exact(schema, 1, data))
    }

    /// Regions for exactly `rows` rows with exactly so many bytes of data in each column.
    pub(super) fn exact(schema: &PageSchema, rows: u64, data: &[u64]) -> Self {
        Self::new(schema, rows, |column| data[column])
    }

    /// The length of a page with regions for so many rows and so many bytes of data in each column.
    pub(super) fn len(schema: &PageSchema, rows: u64, data: impl Fn(usize) -> u64) -> u64 {
        let mut end = header_len(schema) as u64;
        for (index, layout) in schema.layouts().iter().enumerate() {
            let rows = column_rows(schema.layouts(), index, rows, &data);
            if rows >= MAX_ROWS {
                return u64::MAX;
            }
            for len in region_lens(*layout, rows, || data(index)) {
                end = end.saturating_add(len.next_multiple_of(ALIGNMENT_64));
            }
        }
        end
    }

    fn new(schema: &PageSchema, rows: u64, data: impl Fn(usize) -> u64) -> Self {
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
        Self { rows: to_usize(rows), columns }
    }
}

/// The most rows, of at least so many, whose length is within the budget; none if not even those are.
///
/// Lengths grow almost evenly with the rows, so a straight line leads close to the answer.
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

/// Bytes that a page of so many may use: its numbers are 32 bits wide.
fn budget(page_len: usize) -> u64 {
    (page_len as u64).min(u64::from(u32::MAX)) / ALIGNMENT_64 * ALIGNMENT_64
}

/// Lengths of a page that was checked to hold them.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("a page in memory holds it")
}

/// How many rows a column has in a page of so many rows.
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
/// So many rows show how long a row is, whatever is rounded up.
const PROBED_ROWS: u64 = 1 << 12;
/// No page has more rows than this, or as many.
pub(super) const MAX_ROWS: u64 = 1 << 31;

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
