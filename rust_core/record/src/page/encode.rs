//! Pages on the heap, of exactly the size that their rows need.

use std::sync::Arc;

use super::builder::PageBuilder;
use super::column_layout::ValueLayout;
use super::columns::data_lens;
use super::layout::{Layout, MAX_ROWS};
use super::schema::PageSchema;
use super::source::Source;

/// The rows exceed the limits of a page of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The data or the list elements of the column exceed the range of its offsets.
    #[error(
        "column number {column} has {bytes} bytes of data or elements, its offsets reach {max} only"
    )]
    DataTooLarge {
        /// Position of the column.
        column: usize,
        /// Bytes of data, or elements, in these rows.
        bytes: u64,
        /// Largest offset of the type.
        max: u64,
    },
    /// The page exceeds the 32-bit lengths of the format.
    #[error("a page of {bytes} bytes is too large, at most {} are possible", u32::MAX)]
    PageTooLarge {
        /// Bytes of the page.
        bytes: u64,
    },
}

/// Upper bound of the bytes that [`encode_rows`] writes.
///
/// # Panics
/// If a row number is beyond `source`.
#[must_use]
pub fn encoded_len(schema: &PageSchema, source: &Source, rows: &[u32]) -> u64 {
    let data = data_lens(schema.layouts(), source.columns(), rows);
    Layout::len(schema, rows.len() as u64, |column| data[column])
}

/// Encodes `rows` as one page of the size they need, for rows that do not fit a segment.
///
/// # Errors
/// The page or a column exceeds the limits of the format.
///
/// # Panics
/// If a row number is beyond `source`, or `source` was resolved for another schema.
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
