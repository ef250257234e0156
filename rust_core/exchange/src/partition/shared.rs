//! What the partitions of an environment have in common.

use std::sync::Arc;

use headgate_memory::ForeignMemory;

use crate::copies::Copies;
use crate::metrics::TaskIoMetrics;
use crate::partition::CompressionCounters;

/// Where partitions count, and leave what is not theirs.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub(crate) copies: Arc<Copies>,
    pub(crate) compressed: Arc<CompressionCounters>,
    pub(crate) metrics: Arc<TaskIoMetrics>,
    pub(crate) foreign: Arc<ForeignMemory>,
}
