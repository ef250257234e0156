//! A page: one Arrow record batch in one buffer.
//!
//! Decisions: ADR 0002, ADR 0011.
//!
//! The schema is not sent: both ends have the same [`PageSchema`] and compare its hash when a
//! channel is opened. Each page repeats the start of that hash. All integers are little-endian, as
//! in Arrow.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic, `HDGP` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | flags, 0 |
//! | 8 | 4 | rows |
//! | 12 | 4 | columns `c` |
//! | 16 | 4 | buffers `b` |
//! | 20 | 4 | length of the page |
//! | 24 | 4 | first four bytes of the schema's hash |
//! | 28 | 4 `c` | null count of each column |
//! | 28 + 4 `c` | 8 `b` | offset from the page's start and length of each buffer |
//! | multiple of 64 | | the buffers in order, each at a multiple of 64, with zeros between them |
//!
//! A Null column has no buffers; Boolean and fixed-width columns have validity and values; strings
//! and binaries have validity, offsets (rows + 1 of them, the first is 0) and data; lists and maps
//! have validity and offsets; structs and lists of a fixed size have validity. A buffer of length 0
//! has offset 0. A column has validity exactly if it has nulls in this page. The slots of nulls and
//! all bits after the last row are zero, so a page contains nothing but its rows.
//!
//! Nested columns follow their parent, depth first, and count as columns. The parent determines
//! their number of rows. Dictionaries, run-end encoded columns and views are sent decoded.
//!
//! Rows of a Null column, of a struct without fields, and of a page without columns take no bytes. So
//! that a few bytes cannot declare any number of rows, no column has more than 2^20 rows, or 8 for
//! each byte of a longer page. A writer uses several pages, and fills a page with one list of more
//! such elements up with zeros.

mod assembly;
mod bits;
mod body;
mod builder;
mod coalesce;
mod column_layout;
mod columns;
mod encode;
mod error;
mod gather;
mod header;
mod layout;
mod pieces;
mod reader;
mod rows;
mod schema;
mod source;
mod typed;
mod types;

pub use builder::{PageBuilder, PageStats};
pub use coalesce::{BatchCoalescer, CoalesceError};
pub use encode::{EncodeError, encode_rows, encoded_len};
pub use error::PageError;
pub use layout::PageProfile;
pub use pieces::{PiecedPage, Pieces};
pub use reader::{is_page_aligned, read_page, read_pieces};
pub use schema::{PageSchema, UnsupportedType};
pub use source::{Source, SourceError};
pub(crate) use types::plain_type;

/// Alignment of each buffer, relative to the page's start.
const ALIGNMENT: usize = 64;
