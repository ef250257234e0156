//! Routing records to subpartitions (spec 5).
//!
//! | file | is |
//! |---|---|
//! | `arrow`, `bytes` | the two writers: of record batches, and of bytes |
//! | `pages`, `lane` | the open pages of an [`ArrowWriter`]; the subpartitions of a page |
//! | `stream` | the open buffers of records that may span buffers |
//! | `timeout`, `state` | sending incomplete buffers by time; the writer's life up to its end |
//! | `barriers` | barriers of checkpoints, and the data that they overtook |
//! | `emitted` | a batch with the size of the memory that it keeps alive |
//!
//! Decisions: ADR 0015, ADR 0021.

mod arrow;
mod barriers;
mod bytes;
mod emitted;
mod lane;
mod pages;
mod state;
mod stream;
mod timeout;

pub use arrow::ArrowWriter;
pub use bytes::BytesWriter;
pub use emitted::Emitted;
pub use timeout::BufferTimeout;
