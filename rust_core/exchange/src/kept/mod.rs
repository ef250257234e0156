//! Partitions that outlived their process: files of pages and of indexes, and who reads them.
//!
//! ```text
//!   KeptPartition --writes--> pages, <pages>.index     (spill/kept.rs, in the producer)
//!   keep_small ---------------> index and pages in one (inline.rs, in the producer)
//!                                  |
//!                               Reading <-- KeptChannel            a consumer on the same host
//!                                       <-- KeptView <-- Serve     a process that serves other hosts
//! ```
//!
//! Decisions: ADR 0022, ADR 0023, ADR 0026.

mod damage;
mod files;
mod inline;
mod reading;
mod served;
mod view;

pub(crate) use damage::Damages;
pub use files::KeptFile;
pub(crate) use inline::with_room;
pub use inline::{SmallLimits, SmallSubpartition, keep_small};
pub(crate) use reading::Reading;
pub(crate) use served::ServedPartition;
