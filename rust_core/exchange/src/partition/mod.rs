//! Result partitions: what a producer writes, kept for its consumers (spec 4.4, 4.5).
//!
//! ```text
//!   ResultPartition
//!     Output ----------- subpartitions, their store on disk, the progress of their consumers
//!       ^        ^
//!     Segments   BufferFinisher      what a writer fills, and what becomes of a full segment
//! ```
//!
//! Each part imports only the parts it points at. Views hold an `Output` as a `ViewedPartition`.

mod compression;
mod consumers;
mod open_buffers;
mod options;
mod output;
mod pipelined_view;
mod result_partition;
mod segments;
mod shared;
mod task_events;

pub use options::{PartitionKind, PartitionOptions};
pub use result_partition::ResultPartition;
pub use task_events::{TaskEvent, TaskEvents};

pub(crate) use open_buffers::OpenBuffers;
pub(crate) use shared::Shared;
