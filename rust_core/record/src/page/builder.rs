//! Gathers rows into the columns of an open page.

use std::sync::Arc;

use super::ALIGNMENT;
use super::columns::{ColumnState, OpenColumns, Room, count_elements, data_lens};
use super::header::{HeaderWriter, header_len, to_u32};
use super::layout::{ColumnRegions, Layout, PageProfile, Region};
use super::rows::{Contiguous, RowSet};
use super::schema::PageSchema;
use super::source::Source;

/// Content of an open page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Rows written so far.
    pub rows: usize,
    /// Bytes of the page if it were finished now; at most the length of the target.
    pub bytes: usize,
}

/// An open page. Appends rows until it is full, and returns the target with the page at its front.
///
/// ```text
/// target  | header | validity  values ... | offsets  data ... |   regions for the expected number
///                    ^^^^^^^    ^^^^^         ^^^^^    ^^^        of rows, filled side by side
/// finish  | header | validity | values | offsets | data | 0 |   the same, without the gaps
/// ```
///
/// A page that is nearly full keeps the gaps between its regions and fills them with zeros: a few
/// percent more bytes cost less than a second copy of the page.
///
/// For columns of fixed width the capacity determines the number of rows. For strings the builder
/// estimates it from a [`PageProfile`] and the rows to append, and computes a new layout if the
/// estimate was wrong.
#[derive(Debug)]
pub struct PageBuilder<T> {
    schema: Arc<PageSchema>,
    target: T,
    /// Maximum bytes of the page, unless its first row alone needs more; at most the length of the
    /// target.
    capacity: usize,
    profile: PageProfile,
    layout: Option<Layout>,
    columns: Vec<ColumnState>,
    rows: usize,
    relayouts: u32,
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> PageBuilder<T> {
    /// Creates an empty page in `target`, which must always return the same slice.
    #[must_use]
    pub fn new(schema: Arc<PageSchema>, target: T, profile: &PageProfile) -> Self {
        let columns = vec![ColumnState::default(); schema.layouts().len()];
        let (capacity, profile) = (target.as_ref().len(), profile.clone());
        Self { schema, target, capacity, profile, layout: None, columns, rows: 0, relayouts: 0 }
    }

    /// Limits an empty page to `capacity` bytes. A larger first row is accepted if it fits the
    /// target; it is the only row then.
    #[must_use]
    pub fn with_capacity(mut self, capacity: usize) -> Self {
        debug_assert!(self.is_empty(), "rows are laid out already");
        self.capacity = capacity.min(self.target.as_ref().len());
        self
    }

    /// Creates an empty page with a given layout.
    pub(super) fn with_layout(schema: Arc<PageSchema>, target: T, layout: Layout) -> Self {
        let layout = Some(layout);
        Self { layout, relayouts: MAX_RELAYOUTS, ..Self::new(schema, target, &PageProfile::new()) }
    }

    /// Appends as many of `rows` as fit, in order, and returns their number. The rest belongs to
    /// the next page.
    ///
    /// If an empty page returns 0, the first row does not fit such a target; use
    /// [`encode_rows`](super::encode_rows).
    ///
    /// # Panics
    /// If a row number is beyond `source`, or `source` was resolved for another schema.
    pub fn append(&mut self, source: &Source, rows: &[u32]) -> usize {
        self.append_rows(source, rows)
    }

    /// Like [`append`](Self::append), for the rows `start..start + len`.
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

    /// True until a row is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the current content.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        PageStats { rows: self.rows, bytes: self.length().0 }
    }

    /// Adds the row widths of this page to `profile`, for later pages.
    pub fn teach(&self, profile: &mut PageProfile) {
        profile.add(self.rows, self.columns.iter().map(|state| state.data_len as u64));
    }

    /// Finishes the page; returns the target and the length of the page at its front.
    ///
    /// The bytes after the page are unspecified.
    ///
    /// # Panics
    /// If the target is too small for the header of an empty page.
    #[must_use]
    pub fn finish(mut self) -> (T, usize) {
        let (_, stay) = self.length();
        let (regions, end) = self.settle(stay);
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

    /// Computes the layout of the empty page; false if not even the first row fits.
    fn lay_out<R: RowSet>(&mut self, source: &Source, rows: R) -> bool {
        let layouts = self.schema.layouts();
        // Sample at most as many rows as the page could hold offsets for.
        let max_sample = MAX_SAMPLE.min(self.capacity / OFFSET_LEN).max(1);
        let mut sample = rows.head(rows.len().min(max_sample));
        while sample.len() > 1 && count_elements(layouts, source.columns(), sample) > max_sample {
            sample = sample.head(sample.len() / 2);
        }
        let mut profile = self.profile.clone();
        profile.add(sample.len(), data_lens(layouts, source.columns(), sample).into_iter());
        let first = data_lens(layouts, source.columns(), rows.head(1));
        let target_len = self.target.as_ref().len();
        self.layout = Layout::fit(&self.schema, self.capacity, &profile, 1, &first)
            .or_else(|| Layout::of_one_row(&self.schema, target_len, &first));
        self.layout.is_some()
    }

    /// Computes a new layout from the rows written so far and moves the regions; false if it would
    /// gain too few rows.
    fn lay_out_anew<R: RowSet>(&mut self, source: &Source, rows: R) -> bool {
        let layouts = self.schema.layouts();
        let varies = layouts.iter().any(|layout| layout.values.varies());
        if self.relayouts == MAX_RELAYOUTS || !varies {
            return false;
        }
        let mut profile = PageProfile::new();
        self.teach(&mut profile);
        let next = data_lens(layouts, source.columns(), rows.head(1));
        let needed: Vec<u64> = next
            .iter()
            .zip(&self.columns)
            .map(|(next, state)| next + state.data_len as u64)
            .collect();
        let min_rows = self.rows as u64 + 1;
        let fitted = Layout::fit(&self.schema, self.capacity, &profile, min_rows, &needed);
        let Some(layout) = fitted else {
            return false;
        };
        if layout.rows - self.rows < self.rows / MIN_GAIN {
            return false;
        }
        self.relayouts += 1;
        let (compact, _) = self.settle(false);
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
        let rows = rows.head(rows.len().min(layout.rows - self.rows));
        let room = Room {
            layouts: self.schema.layouts(),
            source: source.columns(),
            states: &self.columns,
            regions: &layout.columns,
        };
        room.count_fitting(rows)
    }

    fn write<R: RowSet>(&mut self, source: &Source, rows: R) {
        let Some(layout) = &self.layout else { return };
        let mut columns = OpenColumns {
            layouts: self.schema.layouts(),
            source: source.columns(),
            states: &mut self.columns,
            regions: &layout.columns,
            target: self.target.as_mut(),
        };
        columns.append(rows);
        self.rows += rows.len();
    }

    /// Returns the length of the page if it were finished now, and true if its regions stay in
    /// place because closing the gaps would save little.
    fn length(&self) -> (usize, bool) {
        let mut compact = header_len(&self.schema);
        let Some(layout) = &self.layout else { return (compact, true) };
        let mut end = compact;
        let columns = self.columns.iter().zip(self.schema.layouts()).zip(&layout.columns);
        for ((state, layout), regions) in columns {
            for (used, region) in state.used(*layout).into_iter().zip(regions.all()) {
                compact += used.next_multiple_of(ALIGNMENT);
                if used > 0 {
                    end = (region.start + used).next_multiple_of(ALIGNMENT);
                }
            }
        }
        let stays = end - compact <= compact / MIN_SAVED;
        ((if stays { end } else { compact }).max(layout.min_len), stays)
    }

    /// Closes the gaps between the regions unless they `stay`, and zeros what is left of the gaps;
    /// returns the regions and the end of the last one.
    fn settle(&mut self, stay: bool) -> (Vec<ColumnRegions>, usize) {
        let mut end = header_len(&self.schema);
        let mut columns = vec![ColumnRegions::default(); self.columns.len()];
        let Some(layout) = &self.layout else {
            return (columns, end);
        };
        let target = self.target.as_mut();
        let mut settle = |from: Region, used: usize| {
            let start = if stay && used > 0 { from.start } else { end };
            if start != from.start {
                target.copy_within(from.start..from.start + used, start);
            }
            target[end..start].fill(0);
            let to = Region { start, len: used };
            end = to.end().next_multiple_of(ALIGNMENT);
            target[to.end()..end].fill(0);
            to
        };
        for (((settled, regions), layout), state) in
            columns.iter_mut().zip(&layout.columns).zip(self.schema.layouts()).zip(&self.columns)
        {
            let [validity, values, data] = state.used(*layout);
            settled.validity = settle(regions.validity, validity);
            settled.values = settle(regions.values, values);
            settled.data = settle(regions.data, data);
        }
        let min_len = layout.min_len.max(end);
        target[end..min_len].fill(0);
        (columns, min_len)
    }
}

/// Bytes of the smallest offset; each row of a string column has one.
const OFFSET_LEN: usize = 4;
/// Maximum rows, or elements of lists, to sample for the estimate of row widths.
const MAX_SAMPLE: usize = 1 << 10;
/// Gaps are closed if that saves more than one byte in this many.
const MIN_SAVED: usize = 32;
/// A new layout must gain at least one row in this many.
const MIN_GAIN: usize = 16;
/// Maximum new layouts per page; each can copy the whole page.
const MAX_RELAYOUTS: u32 = 8;
