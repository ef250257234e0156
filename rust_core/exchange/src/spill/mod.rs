//! Partitions on disk: buffers that wait for a reader longer than memory can hold them (spec 4.6,
//! 4.7).
//!
//! ```text
//!   Subpartition --collect--> Index --spill, when segments run short--> SpillFile   (writer's thread)
//!                               |                                           |
//!                               +--> StoredView <-- segments of the store --+        (ReadThread)
//! ```
//!
//! Each partition has one nameless file. One write to it is a region: the buffers that every
//! subpartition has in memory, in the order of the subpartitions, so that those of one subpartition
//! lie side by side. The index (offset, length, type, CRC and uncompressed length of each block)
//! stays in memory.
//!
//! One thread per environment reads blocks, a few ahead of each reader. The I/O thread never waits
//! for a disk.
//!
//! Decision: ADR 0014.

mod file;
mod index;
mod kept;
mod manager;
mod read_thread;
mod store;
mod target;
mod view;

pub use kept::KeptPartition;
pub(crate) use manager::SpillManager;
pub(crate) use store::Store;
pub(crate) use view::StoredView;
