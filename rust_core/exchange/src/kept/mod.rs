//! Partitions that outlived their process: files of pages and of indexes, and who reads them.
//!
//! ```text
//!   KeptPartition --writes--> pages, <pages>.index     (spill/kept.rs, in the producer)
//!                                  |
//!                               Reading <-- KeptChannel            a consumer on the same host
//!                                       <-- KeptView <-- Serve     a process that serves other hosts
//! ```
//!
//! Decisions: ADR 0022, ADR 0023.

mod files;
mod reading;
mod served;
mod view;

pub use files::KeptFile;
pub(crate) use reading::Reading;
pub(crate) use served::ServedPartition;
