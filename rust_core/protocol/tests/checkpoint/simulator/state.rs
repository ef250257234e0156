//! The state that tasks compute, and a run of it without tasks.

use std::collections::BTreeMap;
use std::ops::Range;

/// Number of key groups.
pub(super) const GROUPS: usize = 4;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Record {
    pub(super) split: usize,
    pub(super) number: u32,
}

impl Record {
    /// The key group of this record at a keyed stage. Stage 1 follows the source.
    pub(super) fn key_group(self, stage: usize) -> usize {
        // Records of the same groups at both stages are close to each other, so that they are in flight together.
        let key = self.number / if stage == 1 { 1 } else { 8 };
        (key as usize + self.split) % GROUPS
    }
}

/// State of one task of a keyed stage.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct State {
    /// How often each record was counted.
    pub(super) counts: BTreeMap<Record, u32>,
}

impl State {
    pub(super) fn count(&mut self, record: Record) {
        // Records of a split with the same groups at both stages take one way, also across restarts.
        let groups = |of: Record| (of.key_group(1), of.key_group(2));
        let counted = self.counts.range(record..).map(|(counted, _)| *counted);
        let mut of_split = counted.take_while(|counted| counted.split == record.split);
        let later = of_split.find(|counted| groups(*counted) == groups(record));
        assert_eq!(later, None, "{record:?} is late, or comes again");
        *self.counts.entry(record).or_default() += 1;
    }

    /// Adds the part of a state that has some key groups.
    pub(super) fn restore(&mut self, from: &Self, stage: usize, groups: &Range<usize>) {
        let own = from.counts.iter().filter(|(it, _)| groups.contains(&it.key_group(stage)));
        for (record, count) in own {
            *self.counts.entry(*record).or_default() += count;
        }
    }
}

/// Adds up the counts of several tasks.
pub(super) fn sum<'a>(states: impl IntoIterator<Item = &'a State>) -> BTreeMap<Record, u32> {
    let mut counts = BTreeMap::new();
    for (record, count) in states.into_iter().flat_map(|state| &state.counts) {
        *counts.entry(*record).or_default() += count;
    }
    counts
}

/// The counts of each stage after a run without tasks, queues and faults.
pub(super) fn naive_run(splits: usize, records: u32) -> BTreeMap<Record, u32> {
    let numbers = |split| (0..records).map(move |number| (Record { split, number }, 1));
    (0..splits).flat_map(numbers).collect()
}
