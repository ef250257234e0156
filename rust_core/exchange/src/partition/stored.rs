//! What a partition does with what it has on disk.

use std::sync::Arc;

use crate::error::{ExchangeError, Result};
use crate::partition::collector::Collector;
use crate::partition::{PartitionKind, ResultPartition};
use crate::spill::Store;

impl ResultPartition {
    /// Sends what the writer writes to the disk instead of to readers.
    pub(super) fn collect_all(self: &Arc<Self>, wanted: &[bool]) -> Result<()> {
        let built = self.subpartitions.iter().zip(wanted).enumerate();
        for (index, (subpartition, _)) in built.filter(|(_, (_, wanted))| **wanted) {
            let partition = Arc::downgrade(self);
            subpartition.attach(Arc::new(Collector { partition, index }))?;
        }
        Ok(())
    }

    /// Whether a blocking partition has all there is to read of a subpartition.
    pub(super) fn check_readable(&self, index: usize) -> Result<()> {
        self.check()?;
        let why = if self.subpartitions[index].is_released() {
            "is not built, or was released"
        } else if !self.store.as_ref().is_some_and(|store| store.is_complete()) {
            "cannot be read before its writer has finished: it is a blocking one"
        } else {
            return Ok(());
        };
        let detail = format!("subpartition {index} of partition {} {why}", self.id);
        Err(ExchangeError::PartitionNotFound { peer: "this process".to_owned(), detail })
    }

    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Ends every subpartition; a blocking one can be read from now on.
    ///
    /// # Errors
    /// A disk that cannot be written; the partition has failed then.
    pub(crate) fn finish(&self) -> Result<()> {
        for subpartition in &self.subpartitions {
            subpartition.finish();
        }
        let Some(store) = &self.store else {
            return Ok(());
        };
        store.settle().inspect_err(|error| self.fail(error))?;
        if self.kind == PartitionKind::Blocking {
            store.complete();
        }
        // The writer needs none any more; what waits in memory goes home as it is read.
        let lowered = self.pool.set_minimum(0, 0, 0);
        debug_assert!(lowered.is_ok(), "less is always granted");
        Ok(())
    }

    /// Whether something went to disk, so that a segment may be free.
    pub(super) fn make_room(&self) -> Result<bool> {
        let made = self.store.as_ref().map_or(Ok(false), |store| store.make_room());
        made.inspect_err(|error| self.fail(error))
    }

    /// Whether what is queued can go to disk.
    pub(super) fn has_room_on_disk(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.has_room())
    }

    /// What is on disk for a subpartition is not needed any more.
    pub(super) fn drop_stored(&self, index: usize) {
        if let Some(store) = &self.store {
            store.release(index);
        }
    }

    /// Like [`close`](Self::close), and ends the readers of a blocking one too.
    pub(crate) fn shut_down(&self) {
        self.close();
        if let Some(store) = &self.store {
            store.shut_down();
        }
    }
}
