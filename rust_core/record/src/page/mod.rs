//! A page: one Arrow record batch inside one buffer.
//!
//! The schema never travels: both ends hold the same [`PageSchema`] and compare its hash when a
//! channel is opened; each page repeats the start of that hash. All integers are little-endian, as
//! Arrow's bodies are.
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
//! | multiple of 64 | | the buffers in their order, each from a multiple of 64, zeros between them |
//!
//! A Null column has no buffers; Boolean and fixed-width columns have validity and values; strings and
//! binaries have validity, offsets (rows + 1 of them, the first is 0) and data; lists and maps have validity
//! and offsets; structs and lists of a fixed size have validity. A buffer of length 0 has offset 0. Validity
//! is there exactly when the column has nulls in this page; the slots of nulls and all bits after the last
//! row are zero, so a page holds nothing but its rows.
//!
//! Columns inside others follow theirs, depth first, and count as columns. How many rows they have follows
//! from the one around them. Dictionaries, run-end encoded columns and views travel as what they stand for.
//!
//! Decisions: ADR 0002, ADR 0011.

mod assembly;
mod bits;
mod body;
mod builder;
mod coalesce;
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
