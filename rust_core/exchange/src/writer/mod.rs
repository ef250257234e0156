//! Routing records to subpartitions (spec 5).
//!
//! | file | is |
//! |---|---|
//! | `record_writer`, `records` | [`RecordWriter`], and what it asks of a kind of records |
//! | `arrow`, `pages` | record batches, and their open pages |
//! | `stream` | records of bytes, and their open buffers, which they may span |
//! | `lane`, `timeout` | the subpartitions of a buffer; sending incomplete buffers by time |
//! | `barriers` | barriers of checkpoints, and the data that they overtook |
//! | `emitted` | a batch with the size of the memory that it keeps alive |
//!
//! Decisions: ADR 0015, ADR 0021.

mod arrow;
mod barriers;
mod emitted;
mod lane;
mod pages;
mod record_writer;
mod records;
mod stream;
mod timeout;

pub use emitted::Emitted;
pub use record_writer::{ArrowWriter, BytesWriter, RecordWriter};
pub use timeout::BufferTimeout;
