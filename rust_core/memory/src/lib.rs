//! Memory of the exchange: fixed-size segments, the pools that bound them, and counted buffers.
//!
//! ```text
//!   GlobalPool (byte budget, N segments, committed lazily)
//!      |  try_request                      ^  recycled exactly once, on the last drop
//!      v                                   |
//!   LocalPool (min .. size .. max) --> PooledSegment --freeze--> Buffer --slice--> Buffer
//!                                          |
//!                                          +--into_builder--> BufferBuilder --> BufferConsumer
//! ```
//!
//! A [`PooledSegment`] has one owner who may write all of it. A [`BufferBuilder`] shares it with a
//! [`BufferConsumer`] while it still grows: the builder publishes a write position, the consumer
//! sees what lies below it. A [`Buffer`] is a read-only, counted view.
//!
//! A pool that is [shared](GlobalPool::share) cuts its segments from [regions](RegionFile) that another
//! process can map to read; there they are a [`PeerRegion`], and what was lent of it is a [`Buffer`] again.
//!
//! A [`Buffer`] may also be made of pieces of [`ForeignMemory`], for which a [`Charge`] of segments stands
//! meanwhile; this crate never lets go of such memory by itself.
//!
//! Raw pointers stay inside `region.rs`, `peer_region.rs`, `segment.rs`, `block.rs` and `process.rs`; the
//! invariants M1 to M5 and F1 they rest on are spelled out in `SAFETY.md`.
//!
//! Decisions: ADR 0004, ADR 0013.

mod asan;
mod block;
mod buffer;
mod builder;
mod channels;
mod consumer;
mod error;
mod foreign;
mod ledger;
mod listener;
mod local;
mod local_pool;
#[cfg(all(test, loom))]
mod model;
mod options;
mod peer_region;
mod pool;
mod pooled_segment;
mod position;
mod process;
mod region;
mod segment;
mod shared;
mod state;
mod sync;
mod unpooled;

pub use buffer::{Buffer, Chunks};
pub use builder::BufferBuilder;
pub use consumer::BufferConsumer;
pub use error::{PoolTooSmall, RequestError, UnpooledError};
pub use foreign::{Charge, ForeignMemory};
pub use listener::SegmentListener;
pub use local_pool::LocalPool;
pub use options::LocalPoolOptions;
pub use peer_region::{PeerReadError, PeerRegion, PeerRegionError};
pub use pool::{GlobalPool, PoolStats};
pub use pooled_segment::PooledSegment;
pub use process::process_id;
pub use region::RegionFile;
pub use segment::SEGMENT_ALIGNMENT;
