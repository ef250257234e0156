//! Which of the partitions that a process serves are damaged.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use headgate_memory::lock;
use headgate_protocol::PartitionId;

use crate::error::ExchangeError;

/// Partitions whose files were found damaged, until somebody asks for them.
#[derive(Clone, Default)]
pub(crate) struct Damages(Arc<Mutex<Vec<PartitionId>>>);

/// Notes the damage of one partition.
pub(crate) struct DamageReport {
    partition: PartitionId,
    damages: Damages,
}

impl Damages {
    pub(crate) fn of(&self, partition: PartitionId) -> Arc<DamageReport> {
        Arc::new(DamageReport { partition, damages: self.clone() })
    }

    /// Returns each partition that was found damaged since the last call, once.
    pub(crate) fn take(&self) -> Vec<PartitionId> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl DamageReport {
    /// Notes the partition if the error says that its files are others than were written. A process that
    /// lacks descriptors, say, damages no file.
    pub(crate) fn note(&self, error: &ExchangeError) {
        let is_damage = match error {
            ExchangeError::Integrity { .. } => true,
            ExchangeError::KeptFile { source, .. } => {
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
            }
            _ => false,
        };
        let mut found = lock(&self.damages.0);
        if is_damage && !found.contains(&self.partition) {
            found.push(self.partition);
        }
    }
}
