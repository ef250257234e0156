//! Flink's network metrics: counters where a buffer passes, timers where a thread waits (spec 12.2).
//!
//! All other metrics are gauges, computed when a [snapshot](crate::stats) is taken.
//!
//! Decision: ADR 0017.

mod activity;
mod idle;
mod passed;
mod task_io;
mod timer;
mod waits;

pub(crate) use activity::Activity;
pub use activity::{TaskTimes, Times};
pub(crate) use idle::Idle;
pub use passed::Passed;
pub(crate) use task_io::TaskIoMetrics;
pub(crate) use timer::{Timer, Wait};
pub(crate) use waits::{DiskWait, MemoryWait, WaitTimes};
