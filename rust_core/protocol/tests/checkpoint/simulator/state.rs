//! What tasks compute, and a run of it without tasks.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Record {
    pub(super) source: usize,
    pub(super) number: u32,
}

impl Record {
    /// The subtask of the keyed stages that gets this record. Stage 1 follows the sources.
    pub(super) fn subtask(self, stage: usize) -> usize {
        let key = self.number / if stage == 1 { 1 } else { 3 } + self.source as u32;
        key as usize % 2
    }
}

/// State of one subtask.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct State {
    /// How often each record was counted.
    pub(super) counts: BTreeMap<Record, u32>,
    /// Last number of each source, by the task that sent it.
    last: BTreeMap<(usize, usize), u32>,
}

impl State {
    pub(super) fn count(&mut self, record: Record, sender: usize) {
        let last = self.last.insert((record.source, sender), record.number);
        assert!(last < Some(record.number), "{record:?} came after {last:?} from {sender}");
        *self.counts.entry(record).or_default() += 1;
    }
}

/// Adds up the counts of several subtasks.
pub(super) fn sum<'a>(states: impl IntoIterator<Item = &'a State>) -> BTreeMap<Record, u32> {
    let mut counts = BTreeMap::new();
    for (record, count) in states.into_iter().flat_map(|state| &state.counts) {
        *counts.entry(*record).or_default() += count;
    }
    counts
}

/// The counts of both stages after a run without tasks, queues and faults.
pub(super) fn naive_run(sources: usize, records: u32) -> [BTreeMap<Record, u32>; 2] {
    let mut stages = [[State::default(), State::default()], [State::default(), State::default()]];
    for number in 0..records {
        for source in 0..sources {
            let record = Record { source, number };
            let (first, second) = (record.subtask(1), record.subtask(2));
            stages[0][first].count(record, source);
            stages[1][second].count(record, first);
        }
    }
    [sum(&stages[0]), sum(&stages[1])]
}
