//! A lane is the target of a record or buffer: one subpartition, or all of them at once.

use std::ops::Range;
use std::sync::Arc;

use headgate_record::Selection;

use crate::partition::ResultPartition;
use crate::subpartition::Subpartition;

/// The subpartitions that a record or buffer goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// One, by its index.
    One(usize),
    /// Each.
    All,
}

impl Lane {
    /// The lane of a selection, unless that names a subpartition for each row.
    pub(super) fn of(selection: Selection) -> Option<Self> {
        match selection {
            Selection::All => Some(Self::All),
            Selection::One(index) => Some(Self::One(index as usize)),
            Selection::Rows => None,
        }
    }

    /// The subpartition whose limit counts the lane's segments; `None` for segments that all
    /// subpartitions share.
    pub(super) fn subpartition(self) -> Option<usize> {
        match self {
            Self::One(index) => Some(index),
            Self::All => None,
        }
    }

    /// The range of its subpartitions.
    pub(super) fn targets(self, partition: &ResultPartition) -> Range<usize> {
        match self {
            Self::One(index) => index..index + 1,
            Self::All => 0..partition.num_subpartitions(),
        }
    }

    /// The index of the lane's open buffer in a writer. The buffer for all subpartitions comes
    /// after those for single ones.
    pub(super) fn slot(self, partition: &ResultPartition) -> usize {
        match self {
            Self::One(index) => index,
            Self::All => partition.num_subpartitions(),
        }
    }

    /// True while a consumer may still read its subpartitions.
    pub(super) fn is_wanted(self, partition: &ResultPartition) -> bool {
        let mut targets = partition.subpartitions()[self.targets(partition)].iter();
        targets.any(|subpartition| !subpartition.is_released())
    }
}

/// Returns the size in bytes of a new buffer for these subpartitions: the smallest size that one of
/// their consumers announced.
pub(super) fn buffer_size(targets: &[Arc<Subpartition>]) -> usize {
    targets.iter().map(|target| target.buffer_size()).min().unwrap_or(usize::MAX)
}
