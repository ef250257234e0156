//! The reader of the subpartitions of a blocking partition: takes everything for the disk.

use std::sync::Weak;

use crate::partition::ResultPartition;
use crate::view::DataListener;

/// Takes what a subpartition has as soon as it could be read, on the thread that wrote it.
pub(super) struct Collector {
    pub(super) partition: Weak<ResultPartition>,
    pub(super) index: usize,
}

impl DataListener for Collector {
    fn data_available(&self) {
        if let Some(partition) = self.partition.upgrade()
            && let Some(store) = partition.store()
        {
            store.collect(self.index);
        }
    }
}
