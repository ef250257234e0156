//! State that the partitions of an environment share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use headgate_memory::ForeignMemory;

use crate::copies::Copies;
use crate::metrics::TaskIoMetrics;

/// Counters of the environment, and the list of foreign memory to release.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub(crate) copies: Arc<Copies>,
    pub(crate) compressed: Arc<CompressionCounters>,
    pub(crate) metrics: Arc<TaskIoMetrics>,
    pub(crate) foreign: Arc<ForeignMemory>,
}

/// Sizes of buffers before and after compression.
#[derive(Debug, Default)]
pub(crate) struct CompressionCounters {
    /// Bytes given to the compressor.
    pub(crate) bytes_in: AtomicU64,
    /// Bytes of the same buffers afterwards, those that did not become smaller included.
    pub(crate) bytes_out: AtomicU64,
}
