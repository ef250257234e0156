//! Memory of the exchange: fixed-size segments, the pools that limit them, and reference-counted
//! buffers.
//!
//! ```text
//!   GlobalPool (byte budget, N segments, committed lazily)
//!      |  try_request                      ^  recycled exactly once, by the last drop
//!      v                                   |
//!   LocalPool (min .. size .. max) --> PooledSegment --freeze--> Buffer --slice--> Buffer
//!                                          |
//!                                          +--into_builder--> BufferBuilder --> BufferConsumer
//! ```
//!
//! A [`PooledSegment`] has one owner, which may write all of it. A [`BufferBuilder`] shares it with
//! a [`BufferConsumer`] while the buffer grows: the builder publishes a write position, and the
//! consumer reads below it. A [`Buffer`] is a read-only, reference-counted view.
//!
//! A [shared](GlobalPool::share) pool cuts its segments from [regions](RegionFile) that another
//! process can map read-only. That process opens a region as a [`PeerRegion`] and reads the lent
//! bytes as a [`Buffer`].
//!
//! A [`Buffer`] can also consist of pieces of [`ForeignMemory`], whose size is charged to the pool
//! as a [`Charge`]. This crate frees such memory only when its owner calls
//! [`ForeignMemory::release`].
//!
//! Keyed state takes its memory from a [`StateMemory`].
//!
//! Raw pointers stay inside `asan.rs`, `block.rs`, `fork.rs`, `kept.rs`, `mapped_file.rs`,
//! `peer_region.rs`, `process.rs`, `region.rs`, `segment.rs`, `state_memory.rs` and `tcp_times.rs`.
//! `SAFETY.md` lists the invariants M1 to M7, F1, F2 and K1 that they rely on.

mod account;
mod asan;
mod block;
mod buffer;
mod builder;
mod consumer;
mod error;
mod foreign;
mod fork;
mod kept;
mod ledger;
mod listener;
mod local_pool;
mod lock;
mod mapped_file;
#[cfg(all(test, loom))]
mod model;
mod options;
mod peer_region;
mod pool;
mod pool_inner;
mod pooled_segment;
mod position;
mod process;
mod recent_pages;
mod region;
mod segment;
mod state;
mod state_memory;
mod subpartition_counts;
mod sync;
mod tcp_times;

pub use buffer::{Buffer, Chunks};
pub use builder::BufferBuilder;
pub use consumer::BufferConsumer;
pub use error::{PoolTooSmall, RequestError, Unmapped, UnpooledError};
pub use foreign::{Charge, ForeignMemory};
pub use fork::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use listener::SegmentListener;
pub use local_pool::LocalPool;
pub use lock::lock;
pub use mapped_file::MappedFile;
pub use options::LocalPoolOptions;
pub use peer_region::{PeerReadError, PeerRegion, PeerRegionError};
pub use pool::{GlobalPool, PoolStats};
pub use pooled_segment::PooledSegment;
pub use process::Process;
pub use region::RegionFile;
pub use segment::SEGMENT_ALIGNMENT;
pub use state_memory::{ReadAhead, Reserved, StateMemory, Usage};
pub use tcp_times::TcpTimes;
