//! Gathers rows straight into the columns of an open page.

use std::sync::Arc;

use super::gather::{self, VarTarget};
use super::header::{HeaderWriter, header_len, to_u32};
use super::layout::{ColumnRegions, Layout, PageProfile, Region};
use super::rows::{Contiguous, RowSet};
use super::schema::{ColumnLayout, PageSchema, ValueLayout};
use super::source::{Source, SourceColumn, Values};
use super::{ALIGNMENT, bits};

/// What an open page holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Rows written so far.
    pub rows: usize,
    /// Bytes the page would have if it were finished now; at most the target's.
    pub bytes: usize,
}

/// An open page: appends rows until it is full, then gives the target back with the page in front.
///
/// ```text
/// target  | header | validity  values ... | offsets  data ... |   regions for as many rows as are
///                    ^^^^^^^    ^^^^^         ^^^^^    ^^^        expected to fit, filled side by side
/// finish  | header | validity | values | offsets | data | 0 |   the same, moved together
/// ```
///
/// The rows that fit follow from the target's length for fixed columns. For strings they are guessed
/// from a [`PageProfile`] and the rows at hand; where the guess was wrong the regions are laid out anew.
#[derive(Debug)]
pub struct PageBuilder<T> {
    schema: Arc<PageSchema>,
    target: T,
    profile: PageProfile,
    layout: Option<Layout>,
    columns: Vec<ColumnState>,
    rows: usize,
    relayouts: u32,
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> PageBuilder<T> {
    /// An empty page in `target`, whose slices must always be the same bytes.
    #[must_use]
    pub fn new(schema: Arc<PageSchema>, target: T, profile: &PageProfile) -> Self {
        let columns = vec![ColumnState::default(); schema.layouts().len()];
        let profile = profile.clone();
        Self { schema, target, profile, layout: None, columns, rows: 0, relayouts: 0 }
    }

    /// A page of known content.
    pub(super) fn with_layout(schema: Arc<PageSchema>, target: T, layout: Layout) -> Self {
        let layout = Some(layout);
        Self { layout, relayouts: MAX_RELAYOUTS, ..Self::new(schema, target, &PageProfile::new()) }
    }

    /// Appends as many of `rows` as fit, in their order, and returns how many; the rest goes to the
    /// next page.
    ///
    /// 0 of an empty page means that the first row never fits into such a target: see
    /// [`encode_rows`](super::encode_rows).
    ///
    /// # Panics
    /// If a row is not in `source`, or `source` was resolved for another schema.
    pub fn append(&mut self, source: &Source, rows: &[u32]) -> usize {
        self.append_rows(source, rows)
    }

    /// Appends as many of the rows `start..start + len` as fit, as [`append`](Self::append) does.
    ///
    /// # Panics
    /// As [`append`](Self::append).
    pub fn append_range(&mut self, source: &Source, start: usize, len: usize) -> usize {
        self.append_rows(source, Contiguous { start, len })
    }

    /// Rows written so far.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Whether no row was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// What the page holds.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        let mut bytes = header_len(&self.schema);
        for (layout, state) in self.schema.layouts().iter().zip(&self.columns) {
            for len in state.used(*layout, self.rows) {
                bytes += len.next_multiple_of(ALIGNMENT);
            }
        }
        PageStats { rows: self.rows, bytes }
    }

    /// Adds what this page has learnt about row widths to `profile`, for the pages after it.
    pub fn teach(&self, profile: &mut PageProfile) {
        profile.add(self.rows, self.columns.iter().map(|state| state.data_len));
    }

    /// Closes the page: returns the target and the page's length, from the target's front.
    ///
    /// The bytes after the page are not defined.
    ///
    /// # Panics
    /// If the target is too small for the header of an empty page.
    #[must_use]
    pub fn finish(mut self) -> (T, usize) {
        let (regions, end) = self.compact();
        let rows = to_u32(self.rows);
        let target = self.target.as_mut();
        let header = &mut target[..header_len(&self.schema)];
        let mut header = HeaderWriter::new(header, rows, &self.schema, to_u32(end));
        for state in &self.columns {
            header.put(to_u32(state.nulls));
        }
        for (layout, column) in self.schema.layouts().iter().zip(&regions) {
            let regions = column.all();
            for region in &regions[..layout.values.num_buffers()] {
                header.put(if region.len == 0 { 0 } else { to_u32(region.start) });
                header.put(to_u32(region.len));
            }
        }
        header.finish();
        (self.target, end)
    }

    fn append_rows<R: RowSet>(&mut self, source: &Source, rows: R) -> usize {
        assert_eq!(source.columns().len(), self.columns.len(), "the source has another schema");
        if rows.len() == 0 || (self.layout.is_none() && !self.lay_out(source, rows)) {
            return 0;
        }
        let mut done = 0;
        loop {
            let rest = rows.tail(done);
            let count = self.count_fitting(source, rest);
            if count > 0 {
                self.write(source, rest.head(count));
                done += count;
            }
            if done == rows.len() || !self.lay_out_anew(source, rows.tail(done)) {
                return done;
            }
        }
    }

    /// Lays out the empty page; false if not even the first row fits.
    fn lay_out<R: RowSet>(&mut self, source: &Source, rows: R) -> bool {
        let sample = rows.head(rows.len().min(MAX_SAMPLE));
        let lens = source.columns().iter().map(|column| gather::data_len(column, sample));
        let mut profile = self.profile.clone();
        profile.add(sample.len(), lens);
        let first: Vec<u64> = source
            .columns()
            .iter()
            .map(|column| gather::data_len(column, rows.head(1)) as u64)
            .collect();
        let page_len = self.target.as_ref().len();
        self.layout = Layout::fit(&self.schema, page_len, &profile, 1, &first);
        self.layout.is_some()
    }

    /// Moves the regions to where the rows written so far would have them; false if little is gained.
    fn lay_out_anew<R: RowSet>(&mut self, source: &Source, rows: R) -> bool {
        let is_var = |layout: &ColumnLayout| matches!(layout.values, ValueLayout::Var(_));
        if self.relayouts == MAX_RELAYOUTS || !self.schema.layouts().iter().any(is_var) {
            return false;
        }
        let mut profile = PageProfile::new();
        self.teach(&mut profile);
        let needed: Vec<u64> = source
            .columns()
            .iter()
            .zip(&self.columns)
            .map(|(column, state)| (state.data_len + gather::data_len(column, rows.head(1))) as u64)
            .collect();
        let min_rows = self.rows as u64 + 1;
        let page_len = self.target.as_ref().len();
        let Some(layout) = Layout::fit(&self.schema, page_len, &profile, min_rows, &needed) else {
            return false;
        };
        if layout.rows - self.rows < self.rows / MIN_GAIN {
            return false;
        }
        self.relayouts += 1;
        let (compact, _) = self.compact();
        let target = self.target.as_mut();
        for (from, to) in compact.iter().zip(&layout.columns).rev() {
            for (from, to) in from.all().into_iter().zip(to.all()).rev() {
                target.copy_within(from.start..from.end(), to.start);
            }
        }
        self.layout = Some(layout);
        true
    }

    fn count_fitting<R: RowSet>(&self, source: &Source, rows: R) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        let mut count = rows.len().min(layout.rows - self.rows);
        for ((column, state), regions) in
            source.columns().iter().zip(&self.columns).zip(&layout.columns)
        {
            let room = regions.data.len - state.data_len;
            count = gather::count_fitting(column, rows.head(count), room);
        }
        count
    }

    fn write<R: RowSet>(&mut self, source: &Source, rows: R) {
        let Some(layout) = &self.layout else { return };
        let target = self.target.as_mut();
        for (((column, state), regions), layout) in source
            .columns()
            .iter()
            .zip(&mut self.columns)
            .zip(&layout.columns)
            .zip(self.schema.layouts())
        {
            state.append(target, layout.values, *regions, self.rows, column, rows);
        }
        self.rows += rows.len();
    }

    /// Moves what was written towards the front and zeros the padding; returns where it is and ends.
    fn compact(&mut self) -> (Vec<ColumnRegions>, usize) {
        let mut end = header_len(&self.schema);
        let mut columns = vec![ColumnRegions::default(); self.columns.len()];
        let Some(layout) = &self.layout else {
            return (columns, end);
        };
        let target = self.target.as_mut();
        let mut move_to_front = |from: Region, used: usize| {
            let to = Region { start: end, len: used };
            target.copy_within(from.start..from.start + used, to.start);
            end = to.end().next_multiple_of(ALIGNMENT);
            target[to.end()..end].fill(0);
            to
        };
        for (((compact, regions), layout), state) in
            columns.iter_mut().zip(&layout.columns).zip(self.schema.layouts()).zip(&self.columns)
        {
            let [validity, values, data] = state.used(*layout, self.rows);
            compact.validity = move_to_front(regions.validity, validity);
            compact.values = move_to_front(regions.values, values);
            compact.data = move_to_front(regions.data, data);
        }
        (columns, end)
    }
}

/// What was written of one column.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnState {
    nulls: usize,
    data_len: usize,
}

impl ColumnState {
    /// Bytes of validity, values or offsets, and data.
    fn used(self, layout: ColumnLayout, rows: usize) -> [usize; 3] {
        let validity = if self.nulls == 0 { 0 } else { rows.div_ceil(8) };
        let values = layout.values.values_len(rows as u64);
        let values = usize::try_from(values).expect("values were written to memory");
        [validity, values, self.data_len]
    }

    fn append<R: RowSet>(
        &mut self,
        target: &mut [u8],
        layout: ValueLayout,
        regions: ColumnRegions,
        rows_before: usize,
        column: &SourceColumn,
        rows: R,
    ) {
        let nulls = self.append_validity(target, regions, rows_before, column, rows);
        let values = regions.values;
        match layout {
            ValueLayout::Null => {}
            ValueLayout::Bits => {
                let target = &mut target[values.start..values.end()];
                gather::booleans(target, rows_before, column, rows);
            }
            ValueLayout::Fixed(width) => {
                let Values::Fixed(source) = &column.values else {
                    unreachable!("a source is resolved for the schema of its pages");
                };
                let start = values.start + rows_before * width;
                let target = &mut target[start..start + rows.len() * width];
                let nulls = column.nulls.as_ref().filter(|_| nulls > 0);
                gather::fixed(target, width, source, nulls, rows);
            }
            ValueLayout::Var(width) => {
                let (front, back) = target.split_at_mut(regions.data.start);
                let target = VarTarget {
                    offsets: &mut front[values.start..values.end()],
                    width,
                    data: &mut back[..regions.data.len],
                    rows: rows_before,
                    data_len: self.data_len,
                };
                self.data_len = target.append(column, rows);
            }
        }
    }

    /// Writes validity once a null has shown up; returns how many of `rows` are null.
    fn append_validity<R: RowSet>(
        &mut self,
        target: &mut [u8],
        regions: ColumnRegions,
        rows_before: usize,
        column: &SourceColumn,
        rows: R,
    ) -> usize {
        let target = &mut target[regions.validity.start..regions.validity.end()];
        let Some(nulls) = &column.nulls else {
            if self.nulls > 0 {
                bits::set(target, rows_before, rows.len());
            }
            return 0;
        };
        let nulls = gather::validity(target, rows_before, nulls, rows);
        if self.nulls == 0 && nulls > 0 {
            bits::set_front(target, rows_before);
        }
        self.nulls += nulls;
        nulls
    }
}

/// Rows looked at to guess how wide the rows of a page will be.
const MAX_SAMPLE: usize = 1 << 10;
/// A new layout is worth its copy from one row in so many.
const MIN_GAIN: usize = 16;
/// New layouts per page: each may copy the whole page once.
const MAX_RELAYOUTS: u32 = 8;
