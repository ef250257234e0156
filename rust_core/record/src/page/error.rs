//! What can be wrong with the bytes of a page.

use arrow_schema::ArrowError;

/// Why bytes are not a page of a schema.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The page was written for another schema than the reader expects.
    #[error("the page is of another schema: fingerprint {got:08x}, expected {expected:08x}")]
    OtherSchema {
        /// What the page says.
        got: u32,
        /// What the reader's schema has.
        expected: u32,
    },
    /// Arrow's own validation refused a column: text that is not UTF-8, above all.
    #[error("column {column:?} is not valid")]
    InvalidColumn {
        /// Name of the column.
        column: String,
        /// What Arrow says.
        source: ArrowError,
    },
    /// A buffer starts where none may start: not aligned, in the header, or before its predecessor's end.
    #[error("buffer {buffer} starts at {offset}, which is not a multiple of 64 from {earliest}")]
    BufferOffset {
        /// Number of the buffer.
        buffer: usize,
        /// Its offset.
        offset: u32,
        /// The first offset it may have.
        earliest: u64,
    },
    /// A buffer ends after the page.
    #[error("buffer {buffer} ends at {end}, after the page's {length} bytes")]
    BufferEnd {
        /// Number of the buffer.
        buffer: usize,
        /// Where it ends.
        end: u64,
        /// Length of the page.
        length: usize,
    },
    /// A buffer is not as long as the rows make it.
    #[error("{part} of column {column:?} has {got} bytes, expected {expected} for {rows} rows")]
    BufferLength {
        /// Name of the column.
        column: String,
        /// Validity, values or offsets.
        part: &'static str,
        /// Rows of the column.
        rows: usize,
        /// Length that follows from them.
        expected: u64,
        /// Length of the buffer.
        got: usize,
    },
    /// The page was written for another schema.
    #[error("the page has {columns} columns and {buffers} buffers, expected {expected:?}")]
    Columns {
        /// Columns of the page.
        columns: u32,
        /// Buffers of the page.
        buffers: u32,
        /// Both, of the schema.
        expected: (usize, usize),
    },
    /// Offsets of lists do not start at 0, or do not ascend.
    #[error("the offsets of the lists in column {column:?} do not ascend from 0")]
    ListOffsets {
        /// Name of the column.
        column: String,
    },
    /// The page says that it has another length than it has.
    #[error("the page says it has {said} bytes, it has {got}")]
    Length {
        /// Length in the header.
        said: u32,
        /// Length of the bytes.
        got: usize,
    },
    /// The first word is not a page's.
    #[error("the bytes are no page: they start with {got:#010x}")]
    Magic {
        /// First word of the bytes, little-endian.
        got: u32,
    },
    /// Validity and null count do not agree with each other or with the schema.
    #[error("column {column:?} is said to have {said} nulls, it has {got}")]
    NullCount {
        /// Name of the column.
        column: String,
        /// Null count in the header.
        said: u32,
        /// Nulls that there are, or that there may be.
        got: usize,
    },
    /// Offsets do not start at 0, do not ascend, or do not end with the data.
    #[error("the offsets of column {column:?} do not ascend from 0 to {data}")]
    Offsets {
        /// Name of the column.
        column: String,
        /// Bytes of data of the column.
        data: usize,
    },
    /// More rows than any page has; columns that take no bytes could claim any number.
    #[error("a column of {rows} rows is too long, there are always fewer than {limit}")]
    TooManyRows {
        /// Rows of the page, or of a column inside another.
        rows: u64,
        /// Columns have fewer.
        limit: u64,
    },
    /// The bytes end within the header.
    #[error("a page of {got} bytes is shorter than its header of {header}")]
    TooShort {
        /// Length of the bytes.
        got: usize,
        /// Length of the header.
        header: usize,
    },
    /// A buffer of a page in pieces is not in one of them.
    #[error("bytes {start} to {start} + {len} of the page are not in one piece")]
    Torn {
        /// Where the buffer starts.
        start: usize,
        /// Its length.
        len: usize,
    },
    /// The page is of another version, or has flags that this one does not know.
    #[error("the page has version and flags {got:#010x}, expected {expected:#010x}")]
    Version {
        /// Both, of the page.
        got: u32,
        /// Both, of this version.
        expected: u32,
    },
}
