//! Which subpartition gets which row.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use crate::hash::{self, HashError};

/// Why no subpartition could be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// There is nothing to select from.
    #[error("a selector needs at least one subpartition")]
    NoSubpartitions,
    /// The key columns cannot be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
}

/// Where the rows of one batch go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All rows to each subpartition.
    All,
    /// All rows to this subpartition.
    One(u32),
    /// Each row to the subpartition named in the ids that were written.
    Rows,
}

/// The rule by which rows are sent to subpartitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every record to every subpartition.
    Broadcast,
    /// Each row by the hash of its key columns, placed as Spark's hash partitioning places it.
    Hash {
        /// Positions of the key columns, in the order in which they are hashed.
        columns: Vec<usize>,
    },
    /// Records in turn: the first to `next`, then the following one, and so on.
    RoundRobin {
        /// The subpartition that gets the next record, modulo their number.
        next: u32,
    },
}

impl Selector {
    /// A hash selector over named columns.
    ///
    /// # Errors
    /// Names that are missing or ambiguous, and columns whose type cannot be hashed.
    pub fn hash_by_name<S: AsRef<str>>(schema: &Schema, names: &[S]) -> Result<Self, HashError> {
        let columns = hash::resolve_columns(schema, names)?;
        Ok(Self::Hash { columns })
    }

    /// Selects for one batch and `n` subpartitions.
    ///
    /// `ids` is overwritten with one id per row exactly when the answer is [`Selection::Rows`].
    ///
    /// # Errors
    /// `n` is 0, or the key columns are missing or of a type that cannot be hashed.
    pub fn select(
        &mut self,
        batch: &RecordBatch,
        n: u32,
        ids: &mut Vec<u32>,
    ) -> Result<Selection, SelectError> {
        if n == 0 {
            return Err(SelectError::NoSubpartitions);
        }
        match self {
            Self::Broadcast => Ok(Selection::All),
            Self::Hash { columns } => {
                hash::partition_ids(batch, columns, n, ids)?;
                Ok(Selection::Rows)
            }
            Self::RoundRobin { next } => {
                let one = *next % n;
                *next = (one + 1) % n;
                Ok(Selection::One(one))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch};

    use super::*;

    fn batch() -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 1]));
        RecordBatch::try_from_iter([("k", keys)]).unwrap()
    }

    #[test]
    fn round_robin_goes_on_by_one_from_its_start() {
        let mut ids = vec![7];
        for (start, expected) in [(0, [0, 1, 2, 0]), (2, [2, 0, 1, 2]), (7, [1, 2, 0, 1])] {
            let mut selector = Selector::RoundRobin { next: start };
            for one in expected {
                let selection = selector.select(&batch(), 3, &mut ids).unwrap();
                assert_eq!(selection, Selection::One(one));
            }
        }
        assert_eq!(ids, [7]);
    }

    #[test]
    fn broadcast_selects_all() {
        let selection = Selector::Broadcast.select(&batch(), 3, &mut Vec::new()).unwrap();
        assert_eq!(selection, Selection::All);
    }

    #[test]
    fn hash_gives_one_id_per_row() {
        let batch = batch();
        let mut ids = vec![9; 9];
        let mut selector = Selector::hash_by_name(&batch.schema(), &["k"]).unwrap();
        let selection = selector.select(&batch, 5, &mut ids).unwrap();
        assert_eq!(selection, Selection::Rows);
        assert_eq!(ids.len(), 4);
        assert_eq!(ids[0], ids[3]);
        let empty = batch.slice(0, 0);
        selector.select(&empty, 5, &mut ids).unwrap();
        assert!(ids.is_empty());
    }

    #[test]
    fn no_subpartitions_is_an_error() {
        for mut selector in [
            Selector::Broadcast,
            Selector::Hash { columns: vec![0] },
            Selector::RoundRobin { next: 0 },
        ] {
            let error = selector.select(&batch(), 0, &mut Vec::new()).unwrap_err();
            assert_eq!(error, SelectError::NoSubpartitions);
        }
    }
}
