//! Groups row numbers by partition: a stable counting sort over one block of partition ids. A
//! partition is here what the exchange calls a subpartition: the rows of one consumer.

/// A partition id is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row} is sent to partition {id}, but there are {partitions} partitions")]
pub struct PartitionOutOfRange {
    /// Row number.
    pub row: u32,
    /// Partition id.
    pub id: u32,
    /// Number of partitions.
    pub partitions: u32,
}

/// Row numbers grouped by partition. Its memory is reused for each block.
#[derive(Debug, Default)]
pub struct Scatter {
    rows: Vec<u32>,
    /// Partition `p` owns `rows[starts[p]..starts[p + 1]]`.
    starts: Vec<u32>,
    cursors: Vec<u32>,
}

impl Scatter {
    /// Creates an empty grouping.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of rows to group at a time. The columns of such a block stay in the cache
    /// while each partition gathers its rows.
    #[must_use]
    pub fn block_rows(partitions: u32) -> usize {
        (partitions as usize * MIN_ROWS_PER_GROUP).clamp(MIN_BLOCK_ROWS, MAX_BLOCK_ROWS)
    }

    /// Groups the rows `first_row..first_row + ids.len()`, whose partition ids are `ids`.
    ///
    /// Rows of one partition keep their order. Replaces the previous grouping.
    ///
    /// # Errors
    /// [`PartitionOutOfRange`] for the first id that is not below `partitions`; the grouping is
    /// empty then.
    pub fn group(
        &mut self,
        ids: &[u32],
        first_row: u32,
        partitions: u32,
    ) -> Result<(), PartitionOutOfRange> {
        self.rows.clear();
        self.starts.clear();
        self.starts.resize(partitions as usize + 1, 0);
        let counts = &mut self.starts[1..];
        for (&id, row) in ids.iter().zip(first_row..) {
            match counts.get_mut(id as usize) {
                Some(count) => *count += 1,
                None => {
                    self.starts.clear();
                    return Err(PartitionOutOfRange { row, id, partitions });
                }
            }
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.cursors.clear();
        self.cursors.extend_from_slice(&self.starts[..partitions as usize]);
        self.rows.resize(ids.len(), 0);
        for (&id, row) in ids.iter().zip(first_row..) {
            let cursor = &mut self.cursors[id as usize];
            self.rows[*cursor as usize] = row;
            *cursor += 1;
        }
        Ok(())
    }

    /// Returns the rows of one partition in order; empty for an unknown partition.
    #[must_use]
    pub fn rows(&self, partition: u32) -> &[u32] {
        let partition = partition as usize;
        match self.starts.get(partition..partition + 2) {
            Some(bounds) => &self.rows[bounds[0] as usize..bounds[1] as usize],
            None => &[],
        }
    }

    /// Iterates over the partitions with at least one row, in ascending order, and their rows.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &[u32])> {
        (0..).zip(self.starts.windows(2)).filter_map(|(partition, bounds)| {
            let rows = &self.rows[bounds[0] as usize..bounds[1] as usize];
            (!rows.is_empty()).then_some((partition, rows))
        })
    }
}

const MIN_ROWS_PER_GROUP: usize = 1 << 9;
const MIN_BLOCK_ROWS: usize = 1 << 13;
const MAX_BLOCK_ROWS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_that_names_no_partition_is_refused() {
        let mut scatter = Scatter::new();
        let error = scatter.group(&[0, 1, 3, 9], 10, 3).unwrap_err();
        assert_eq!(error, PartitionOutOfRange { row: 12, id: 3, partitions: 3 });
        assert_eq!(scatter.groups().count(), 0);
        assert!(scatter.rows(0).is_empty());
        assert!(scatter.group(&[0], 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn groups_equal_a_stable_filter(
            ids in prop::collection::vec(0u32..7, 0..300),
            first_row in 0u32..1000,
        ) {
            let mut scatter = Scatter::new();
            scatter.group(&[6, 6, 6], 0, 7).unwrap();
            scatter.group(&ids, first_row, 7).unwrap();
            let mut seen = 0;
            for partition in 0..7 {
                let expected: Vec<u32> = (first_row..)
                    .zip(&ids)
                    .filter_map(|(row, &id)| (id == partition).then_some(row))
                    .collect();
                prop_assert_eq!(scatter.rows(partition), expected.as_slice());
                seen += expected.len();
            }
            prop_assert_eq!(seen, scatter.groups().map(|(_, rows)| rows.len()).sum::<usize>());
            prop_assert!(scatter.rows(7).is_empty());
        }
    }
}
