//! Selection of a subpartition for each row (spec 5.3).

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use fastrand::Rng;

use crate::hash::{self, HashError, KeyColumn};
use crate::key_group::{Key, operator_index};

/// Failures of a selection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// There are no subpartitions.
    #[error("a selector needs at least one subpartition")]
    NoSubpartitions,
    /// The key columns cannot be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// A selector by columns was applied to a record of bytes.
    #[error("records of bytes have no columns to hash")]
    NoColumns,
    /// A selected subpartition does not exist.
    #[error("subpartition {index} is selected, there are {n}")]
    OutOfRange {
        /// Selected subpartition.
        index: u32,
        /// Number of subpartitions.
        n: u32,
    },
    /// There are fewer key groups than subpartitions.
    #[error("{n} subpartitions are more than max_parallelism={max_parallelism} key groups")]
    TooFewKeyGroups {
        /// Number of key groups.
        max_parallelism: u32,
        /// Number of subpartitions.
        n: u32,
    },
}

/// Destination of the rows of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All rows to each subpartition.
    All,
    /// All rows to this subpartition.
    One(u32),
    /// Each row to the subpartition in the written ids.
    Rows,
}

/// Rule that assigns records to subpartitions. A record is a batch, a row of a batch (with
/// `by_rows`), or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every record to every subpartition.
    Broadcast,
    /// Each row by the hash of its key columns, as in Spark's hash partitioning.
    Hash {
        /// The key columns, in hash order.
        columns: Vec<KeyColumn>,
    },
    /// Each row by the key group of its key, as in Flink.
    KeyGroup {
        /// The key columns.
        key: Key,
        /// Number of key groups, at least the number of subpartitions.
        max_parallelism: u32,
    },
    /// Each record to the subpartition with the least load; of equal ones to the next in turn.
    LeastLoaded {
        /// The first in turn for the next record, modulo the number of subpartitions.
        next: u32,
    },
    /// Every record to this subpartition.
    One(u32),
    /// Records to the subpartitions in turn, starting with `next`.
    RoundRobin {
        /// Subpartition of the next record, relative to the start of the group and modulo its
        /// length.
        next: u32,
        /// Subpartitions that take part; `None` for all.
        group: Option<Range<u32>>,
        /// True if each row is a record.
        by_rows: bool,
    },
    /// Each record to a random subpartition, all equally likely.
    Shuffle {
        /// Source of the choices. Equal seeds give equal choices with the same version of fastrand,
        /// which is enough for a task that is computed again.
        random: Rng,
        /// True if each row is a record.
        by_rows: bool,
    },
}

impl Selector {
    /// Creates a shuffle selector whose choices follow from `seed`.
    #[must_use]
    pub fn shuffle(seed: u64, by_rows: bool) -> Self {
        Self::Shuffle { random: Rng::with_seed(seed), by_rows }
    }

    /// Creates a hash selector over named columns, or fields of columns.
    ///
    /// # Errors
    /// A name is missing or ambiguous, or the type of a column cannot be hashed.
    pub fn hash_by_name<S: AsRef<str>>(
        schema: &Schema,
        names: &[impl AsRef<[S]>],
    ) -> Result<Self, HashError> {
        let columns = hash::resolve_columns(schema, names)?;
        Ok(Self::Hash { columns })
    }

    /// Selects subpartitions of `n` for the rows of one batch.
    ///
    /// Writes one id per row to `ids` if the result is [`Selection::Rows`], and leaves `ids` alone
    /// otherwise.
    ///
    /// # Errors
    /// `n` is 0, exceeds the number of key groups, or does not include a selected subpartition; or
    /// a key column is missing, cannot be hashed, or has a null in a key group selector.
    pub fn select(
        &mut self,
        batch: &RecordBatch,
        n: u32,
        ids: &mut Vec<u32>,
    ) -> Result<Selection, SelectError> {
        let rows = batch.num_rows();
        match self {
            Self::Hash { columns } if n > 0 => {
                hash::partition_ids(batch, columns, n, ids)?;
                Ok(Selection::Rows)
            }
            Self::KeyGroup { key, max_parallelism } if n > 0 => {
                let groups = *max_parallelism;
                if n > groups {
                    return Err(SelectError::TooFewKeyGroups { max_parallelism: groups, n });
                }
                key.groups(batch, groups, ids)?;
                for id in ids {
                    *id = operator_index(*id, n, groups);
                }
                Ok(Selection::Rows)
            }
            Self::RoundRobin { by_rows: true, .. } | Self::Shuffle { by_rows: true, .. } => {
                ids.clear();
                for _ in 0..rows {
                    ids.push(self.next(n)?);
                }
                Ok(Selection::Rows)
            }
            _ => self.select_record(n),
        }
    }

    /// Selects subpartitions of `n` for one record of bytes, which counts as one row.
    ///
    /// # Errors
    /// As [`select`](Self::select), or the selector uses columns.
    pub fn select_record(&mut self, n: u32) -> Result<Selection, SelectError> {
        if n == 0 {
            return Err(SelectError::NoSubpartitions);
        }
        match self {
            Self::Broadcast => Ok(Selection::All),
            _ => self.next(n).map(Selection::One),
        }
    }

    /// Selects for one record by the loads of the subpartitions, if the selector goes by them.
    pub fn select_by_load(&mut self, loads: impl FnOnce() -> Vec<usize>) -> Option<u32> {
        let Self::LeastLoaded { next } = self else {
            return None;
        };
        let loads = loads();
        let n = u32::try_from(loads.len()).expect("there are at most u32::MAX subpartitions");
        let in_turn = (0..n).map(|step| (*next % n + step) % n);
        // Of equal ones it is the first.
        let index = in_turn.min_by_key(|index| loads[*index as usize])?;
        *next = index + 1;
        Some(index)
    }

    /// Returns the subpartition of the next record. Without loads all of them are equal.
    fn next(&mut self, n: u32) -> Result<u32, SelectError> {
        match self {
            Self::Broadcast | Self::Hash { .. } | Self::KeyGroup { .. } => {
                Err(SelectError::NoColumns)
            }
            Self::One(index) if *index < n => Ok(*index),
            Self::One(index) => Err(SelectError::OutOfRange { index: *index, n }),
            Self::LeastLoaded { .. } => {
                let index = self.select_by_load(|| vec![0; n as usize]);
                index.ok_or(SelectError::NoSubpartitions)
            }
            Self::RoundRobin { next, group, .. } => {
                let group = group.clone().unwrap_or(0..n);
                if group.is_empty() || group.end > n {
                    return Err(SelectError::OutOfRange { index: group.end.max(1) - 1, n });
                }
                let one = *next % (group.end - group.start);
                *next = (one + 1) % (group.end - group.start);
                Ok(group.start + one)
            }
            Self::Shuffle { random, .. } => {
                if n == 0 {
                    Err(SelectError::NoSubpartitions)
                } else {
                    Ok(random.u32(..n))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch};
    use proptest::collection::vec;
    use proptest::strategy::Strategy;
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    fn batch() -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 1]));
        RecordBatch::try_from_iter([("k", keys)]).unwrap()
    }

    fn round_robin(next: u32, group: Option<Range<u32>>) -> Selector {
        Selector::RoundRobin { next, group, by_rows: false }
    }

    /// Selections for `count` batches of four rows.
    fn selected(mut selector: Selector, n: u32, count: usize) -> Vec<Selection> {
        let mut ids = vec![7];
        let all = (0..count).map(|_| selector.select(&batch(), n, &mut ids).unwrap()).collect();
        assert_eq!(ids, [7], "no ids but for rows");
        all
    }

    #[test]
    fn spec_5_08_round_robin_goes_on_by_one_from_its_start() {
        for (start, expected) in [(0, [0, 1, 2, 0]), (2, [2, 0, 1, 2]), (7, [1, 2, 0, 1])] {
            assert_eq!(selected(round_robin(start, None), 3, 4), expected.map(Selection::One));
        }
    }

    #[test]
    fn spec_5_08_rescale_stays_in_its_group() {
        assert_eq!(selected(round_robin(0, Some(0..3)), 3, 4), [0, 1, 2, 0].map(Selection::One));
        assert_eq!(selected(round_robin(0, Some(4..6)), 9, 4), [4, 5, 4, 5].map(Selection::One));
        let error = round_robin(0, Some(4..6)).select_record(5).unwrap_err();
        assert_eq!(error, SelectError::OutOfRange { index: 5, n: 5 });
        round_robin(0, Some(2..2)).select_record(5).unwrap_err();
    }

    #[test]
    fn spec_5_08_forward_and_global_are_always_the_first() {
        assert_eq!(selected(Selector::One(0), 3, 4), [Selection::One(0); 4]);
        let error = Selector::One(3).select_record(3).unwrap_err();
        assert_eq!(error, SelectError::OutOfRange { index: 3, n: 3 });
    }

    #[test]
    fn spec_5_08_broadcast_selects_all_and_no_one() {
        assert_eq!(selected(Selector::Broadcast, 3, 2), [Selection::All; 2]);
        assert_eq!(Selector::Broadcast.next(3).unwrap_err(), SelectError::NoColumns);
    }

    #[test]
    fn shuffle_reaches_all_and_repeats_with_its_seed() {
        let shuffle = |seed| Selector::shuffle(seed, false);
        let first = selected(shuffle(3), 5, 100);
        assert_eq!(first, selected(shuffle(3), 5, 100));
        assert_ne!(first, selected(shuffle(4), 5, 100));
        assert!((0..5).all(|index| first.contains(&Selection::One(index))));
    }

    /// The least loaded subpartitions, in turn from `next`: what a selector may choose, best first.
    fn candidates(loads: &[usize], next: usize) -> Vec<usize> {
        let least = loads.iter().copied().fold(usize::MAX, usize::min);
        let mut all: Vec<_> = (0..loads.len()).filter(|index| loads[*index] == least).collect();
        all.sort_by_key(|index| (index + loads.len() - next % loads.len()) % loads.len());
        all
    }

    proptest! {
        #[test]
        fn the_least_loaded_is_selected_and_equal_ones_in_turn(
            start in 0_u32..9,
            all_loads in (1_usize..6).prop_flat_map(|n| {
                vec(vec(0_usize..4, n), 1..40)
            }),
        ) {
            let mut selector = Selector::LeastLoaded { next: start };
            let mut next = start as usize;
            for loads in all_loads {
                let selected = selector.select_by_load(|| loads.clone()).unwrap() as usize;
                prop_assert_eq!(selected, candidates(&loads, next)[0], "{:?} from {}", loads, next);
                next = selected + 1;
            }
        }
    }

    #[test]
    fn equal_loads_are_selected_in_turn_and_other_selectors_ask_for_none() {
        let least_loaded = Selector::LeastLoaded { next: 2 };
        assert_eq!(selected(least_loaded, 3, 4), [2, 0, 1, 2].map(Selection::One));
        for mut selector in [round_robin(0, None), Selector::One(0), Selector::shuffle(1, true)] {
            assert_eq!(selector.select_by_load(|| unreachable!("it goes by no load")), None);
        }
    }

    #[test]
    fn by_rows_each_row_is_a_record() {
        let mut ids = vec![7];
        let mut selector = Selector::RoundRobin { next: 1, group: None, by_rows: true };
        assert_eq!(selector.select(&batch(), 3, &mut ids).unwrap(), Selection::Rows);
        assert_eq!(ids, [1, 2, 0, 1]);
        selector.select(&batch(), 3, &mut ids).unwrap();
        assert_eq!(ids, [2, 0, 1, 2]);
        assert_eq!(selector.select_record(3).unwrap(), Selection::One(0));
        let mut selector = Selector::shuffle(1, true);
        assert_eq!(selector.select(&batch(), 2, &mut ids).unwrap(), Selection::Rows);
        let mut random = Rng::with_seed(1);
        assert_eq!(ids, [0; 4].map(|_| random.u32(..2)));
    }

    #[test]
    fn hash_gives_one_id_per_row() {
        let batch = batch();
        let mut ids = vec![9; 9];
        let mut selector = Selector::hash_by_name(&batch.schema(), &[["k"]]).unwrap();
        let selection = selector.select(&batch, 5, &mut ids).unwrap();
        assert_eq!(selection, Selection::Rows);
        assert_eq!(ids.len(), 4);
        assert_eq!(ids[0], ids[3]);
        let empty = batch.slice(0, 0);
        selector.select(&empty, 5, &mut ids).unwrap();
        assert!(ids.is_empty());
        assert_eq!(selector.select_record(5).unwrap_err(), SelectError::NoColumns);
    }

    #[test]
    fn key_groups_go_to_the_operator_that_owns_them() {
        let batch = batch();
        let mut ids = Vec::new();
        let key = Key::flink(&batch.schema(), "k").unwrap();
        let mut selector = Selector::KeyGroup { key, max_parallelism: 128 };
        // The groups of 1, 2, 3 are 86, 127, 113; 42 and a bit belong to each of three.
        assert_eq!(selector.select(&batch, 3, &mut ids).unwrap(), Selection::Rows);
        assert_eq!(ids, [2, 2, 2, 2]);
        selector.select(&batch, 8, &mut ids).unwrap();
        assert_eq!(ids, [5, 7, 7, 5]);
        let error = selector.select(&batch, 129, &mut ids).unwrap_err();
        assert_eq!(error, SelectError::TooFewKeyGroups { max_parallelism: 128, n: 129 });
    }

    #[test]
    fn no_subpartitions_is_an_error() {
        for mut selector in [
            Selector::Broadcast,
            Selector::Hash { columns: vec![0.into()] },
            Selector::KeyGroup { key: Key::Hash(vec![0.into()]), max_parallelism: 128 },
            Selector::LeastLoaded { next: 0 },
            Selector::One(0),
            round_robin(0, None),
            Selector::shuffle(0, false),
            Selector::shuffle(0, true),
        ] {
            let error = selector.select(&batch(), 0, &mut Vec::new()).unwrap_err();
            assert_eq!(error, SelectError::NoSubpartitions);
        }
    }
}
