//! What a partition says of itself in a snapshot.

use crate::partition::ResultPartition;
use crate::stats::{PartitionStats, Usage};

impl ResultPartition {
    pub(crate) fn stats(&self) -> PartitionStats {
        let (size, used) = self.pool.usage();
        PartitionStats {
            id: self.id,
            pool: Usage { used, size },
            times: self.timer.times(),
            subpartitions: self.subpartitions.iter().map(|one| one.stats()).collect(),
        }
    }
}
