//! What a partition says of itself in a snapshot.

use std::sync::Arc;

use crate::partition::ResultPartition;
use crate::stats::SubpartitionStats;
use crate::subpartition::Subpartition;

impl ResultPartition {
    pub(crate) fn stats(&self) -> Vec<SubpartitionStats> {
        let usage = |subpartition: &Arc<Subpartition>| {
            let (queued, totals) = subpartition.usage();
            let (rows, bytes, buffers) = (totals.rows, totals.bytes, totals.buffers);
            SubpartitionStats { queued, rows, bytes, buffers }
        };
        self.subpartitions.iter().map(usage).collect()
    }
}
