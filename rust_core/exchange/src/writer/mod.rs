//! Routing records to subpartitions (spec 5).
//!
//! Decisions: ADR 0015, ADR 0021.

mod arrow;
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
