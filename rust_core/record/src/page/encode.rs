//! Pages of exactly the size that some rows need, on the heap.

use std::sync::Arc;

use super::builder::PageBuilder;
use super::columns::data_lens;
use super::layout::{Layout, MAX_ROWS};
use super::schema::{PageSchema, ValueLayout};
use super::source::Source;

/// Rows that no page can hold, however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Offsets of the column are too narrow for its data, or for the elements of its lists.
    #[error(
        "column number {column} has {bytes} bytes of data or elements, its offsets reach {max} only"
    )]
    DataTooLarge {
        /// Position of the column.
        column: usize,
        /// Bytes of data, or elements, of these rows.
        bytes: u64,
        /// What the offsets of its type reach.
        max: u64,
    },
    /// Lengths in a page are 32 bits wide.
    #[error("a page of {bytes} bytes is too large, at most {} are possible", u32::MAX)]
    PageTooLarge {
        /// Bytes that the page would have.
        bytes: u64,
    },
}

/// At most how many bytes [`encode_rows`] would write.
///
/// # Panics
/// If a row is not in `source`.
#[must_use]
pub fn encoded_len(schema: &PageSchema, source: &Source, rows: &[u32]) -> u64 {
    let data = data_lens(schema.layouts(), source.columns(), rows);
    Layout::len(schema, rows.len() as u64, |column| data[column])
}

/// Writes `rows` as one page of the size they need, for rows that no segment can hold.
///
/// # Errors
/// A page or a column in it would be too large for its own numbers.
///
/// # Panics
/// If a row is not in `source`, or `source` was resolved for another schema.
pub fn encode_rows(
    schema: &Arc<PageSchema>,
    source: &Source,
    rows: &[u32],
) -> Result<Vec<u8>, EncodeError> {
    let data = data_lens(schema.layouts(), source.columns(), rows);
    for (column, (layout, &bytes)) in schema.layouts().iter().zip(&data).enumerate() {
        let max = match layout.values {
            ValueLayout::Var(width) => width.max_data(),
            _ => MAX_ROWS - 1,
        };
        if bytes > max {
            return Err(EncodeError::DataTooLarge { column, bytes, max });
        }
    }
    let bytes = Layout::len(schema, rows.len() as u64, |column| data[column]);
    let Ok(length) = u32::try_from(bytes) else {
        return Err(EncodeError::PageTooLarge { bytes });
    };
    let layout = Layout::exact(schema, rows.len() as u64, &data);
    let target = vec![0; length as usize];
    let mut builder = PageBuilder::with_layout(Arc::clone(schema), target, layout);
    let written = builder.append(source, rows);
    assert_eq!(written, rows.len(), "the layout is exact");
    let (mut target, length) = builder.finish();
    target.truncate(length);
    Ok(target)
}
