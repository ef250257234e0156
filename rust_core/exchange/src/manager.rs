//! The partitions of a process by name (spec 4.8).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use headgate_protocol::PartitionId;

use crate::error::ExchangeError;
use crate::lock::lock;
use crate::partition::ResultPartition;

/// Where consumers find the partitions of this process.
#[derive(Default)]
pub(crate) struct PartitionManager(Mutex<HashMap<PartitionId, Arc<ResultPartition>>>);

impl PartitionManager {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartitionId, Arc<ResultPartition>>> {
        lock(&self.0)
    }

    pub(crate) fn register(&self, partition: &Arc<ResultPartition>) {
        self.lock().insert(partition.id(), Arc::clone(partition));
    }

    pub(crate) fn find(&self, id: PartitionId) -> Option<Arc<ResultPartition>> {
        self.lock().get(&id).cloned()
    }

    pub(crate) fn release(&self, id: PartitionId) {
        let partition = self.lock().remove(&id);
        if let Some(partition) = partition {
            partition.close();
        }
    }

    pub(crate) fn fail_all(&self, cause: &ExchangeError) {
        let partitions: Vec<_> = self.lock().values().cloned().collect();
        for partition in partitions {
            partition.fail(cause);
        }
    }

    pub(crate) fn close_all(&self) {
        let partitions: Vec<_> = self.lock().drain().map(|(_, partition)| partition).collect();
        for partition in partitions {
            partition.shut_down();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ResultPartition>> {
        self.lock().values().cloned().collect()
    }
}
