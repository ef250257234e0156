//! Errors of reading a page.

use arrow_schema::ArrowError;

/// The bytes are not a valid page of the schema.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The page has the fingerprint of another schema.
    #[error("the page is of another schema: fingerprint {got:08x}, expected {expected:08x}")]
    OtherSchema {
        /// Fingerprint in the page.
        got: u32,
        /// Fingerprint of the reader's schema.
        expected: u32,
    },
    /// Arrow's validation rejected a column, usually because of text that is not UTF-8.
    #[error("column {column:?} is not valid")]
    InvalidColumn {
        /// Name of the column.
        column: String,
        /// Error of Arrow.
        source: ArrowError,
    },
    /// A buffer is not aligned, overlaps the header, or overlaps the buffer before it.
    #[error("buffer {buffer} starts at {offset}, which is not a multiple of 64 from {earliest}")]
    BufferOffset {
        /// Number of the buffer.
        buffer: usize,
        /// Offset of the buffer.
        offset: u32,
        /// Smallest valid offset.
        earliest: u64,
    },
    /// A buffer extends beyond the page.
    #[error("buffer {buffer} ends at {end}, after the page's {length} bytes")]
    BufferEnd {
        /// Number of the buffer.
        buffer: usize,
        /// End of the buffer.
        end: u64,
        /// Length of the page.
        length: usize,
    },
    /// The length of a buffer does not match the number of rows.
    #[error("{part} of column {column:?} has {got} bytes, expected {expected} for {rows} rows")]
    BufferLength {
        /// Name of the column.
        column: String,
        /// Validity, values or offsets.
        part: &'static str,
        /// Rows of the column.
        rows: usize,
        /// Expected length.
        expected: u64,
        /// Length of the buffer.
        got: usize,
    },
    /// The page has another number of columns or buffers than the schema.
    #[error("the page has {columns} columns and {buffers} buffers, expected {expected:?}")]
    Columns {
        /// Columns of the page.
        columns: u32,
        /// Buffers of the page.
        buffers: u32,
        /// Columns and buffers of the schema.
        expected: (usize, usize),
    },
    /// The offsets of lists do not start at 0 or are not ascending.
    #[error("the offsets of the lists in column {column:?} do not ascend from 0")]
    ListOffsets {
        /// Name of the column.
        column: String,
    },
    /// The length in the header differs from the length of the bytes.
    #[error("the page declares {declared} bytes, it has {got}")]
    Length {
        /// Length in the header.
        declared: u32,
        /// Length of the bytes.
        got: usize,
    },
    /// The bytes do not start with the magic number of a page.
    #[error("the bytes are no page: they start with {got:#010x}")]
    Magic {
        /// First word of the bytes, little-endian.
        got: u32,
    },
    /// The null count does not match the validity or the schema.
    #[error("column {column:?} declares {declared} nulls, it has {got}")]
    NullCount {
        /// Name of the column.
        column: String,
        /// Null count in the header.
        declared: u32,
        /// Nulls in the validity, or allowed by the schema.
        got: usize,
    },
    /// The offsets do not start at 0, are not ascending, or do not end at the end of the data.
    #[error("the offsets of column {column:?} do not ascend from 0 to {data}")]
    Offsets {
        /// Name of the column.
        column: String,
        /// Bytes of data of the column.
        data: usize,
    },
    /// The page or a column has too many rows for the length of the page. Columns without bytes
    /// could otherwise declare any number.
    #[error("a page of {length} bytes has {rows} rows in one column, at most {limit} are possible")]
    TooManyRows {
        /// Rows of the page or of a nested column.
        rows: u64,
        /// Length of the page.
        length: usize,
        /// Largest number of rows of such a page.
        limit: u64,
    },
    /// The bytes end inside the header.
    #[error("a page of {got} bytes is shorter than its header of {header}")]
    TooShort {
        /// Length of the bytes.
        got: usize,
        /// Length of the header.
        header: usize,
    },
    /// A buffer of a page in pieces is not within one piece.
    #[error("bytes {start} to {start} + {len} of the page are not in one piece")]
    Torn {
        /// Offset of the buffer.
        start: usize,
        /// Length of the buffer.
        len: usize,
    },
    /// The version or the flags are not supported.
    #[error("the page has version and flags {got:#010x}, expected {expected:#010x}")]
    Version {
        /// Version and flags of the page.
        got: u32,
        /// Supported version and flags.
        expected: u32,
    },
}
