//! What a partition keeps on disk: pages that wait for a reader longer than memory can (spec 4.6, 4.7).
//!
//! ```text
//!   Subpartition --collect--> Index --spill, when segments run short--> SpillFile   (writer's thread)
//!                               |                                           |
//!                               +--> StoredView <-- segments of the store --+        (ReadThread)
//! ```
//!
//! One file per partition, without a name. Each write to it is a region: what every subpartition has in
//! memory, in the order of the subpartitions, so that the part of one subpartition is one run. The index
//! (offset, length, type and CRC of each block, and what a compressed one stands for) stays in memory.
//!
//! Blocks are read by one thread per environment, a few ahead of each reader: so that a disk never stops
//! the I/O thread, and neither does a reader that only asks whether something is there.
//!
//! Decision: ADR 0014.

mod file;
mod index;
mod manager;
mod read_thread;
mod store;
mod target;
mod view;

pub(crate) use manager::SpillManager;
pub(crate) use store::Store;
pub(crate) use view::StoredView;
