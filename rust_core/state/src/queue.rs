//! Numbers by time. Decision: ADR 0057.

use allocator_api2::vec::Vec as StateVec;

use crate::{Numbers, StateMemory};

/// Entries that have left a run, of which fewer are not worth moving the others.
const FEW: usize = 1 << 10;

/// Numbers, each with a time: timers, panes, rows that wait.
///
/// They are in runs, each in order. A run is longer than all behind it, so that there are few, and that blocks which are not
/// in memory are read and written from one end to the other.
#[derive(Debug)]
pub struct TimeQueue {
    runs: Vec<Run>,
    memory: StateMemory,
}

#[derive(Debug)]
struct Run {
    entries: Entries,
    /// How many of the first ones have left.
    gone: usize,
}

/// A time and a number.
type Entry = (i64, i64);
type Entries = StateVec<Entry, StateMemory>;

/// There is no memory for more entries.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for more times: {0}")]
pub struct NoRoom(std::io::Error);

impl TimeQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(memory: &StateMemory) -> Self {
        Self { runs: Vec::new(), memory: memory.clone() }
    }

    /// Adds the number at the same position for each time.
    ///
    /// # Errors
    /// There is no memory; some may have been added then.
    pub fn push(&mut self, times: &[i64], numbers: &[i64]) -> Result<(), NoRoom> {
        if times.is_empty() {
            return Ok(());
        }
        let mut entries = entries_for(times.len(), &self.memory)?;
        entries.extend(times.iter().copied().zip(numbers.iter().copied()));
        entries.sort_unstable();
        self.runs.push(Run { entries, gone: 0 });
        while let [.., before, last] = &self.runs[..]
            && before.len() <= 2 * last.len()
        {
            let entries = merged(before.left(), last.left(), &self.memory)?;
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(Run { entries, gone: 0 });
        }
        Ok(())
    }

    /// Returns all times up to and including one, and their numbers, ordered by both, each pair once.
    #[must_use]
    pub fn until(&self, time: i64) -> (Numbers, Numbers) {
        let due = self.runs.iter().map(|run| &run.left()[..run.count(time)]);
        let due: Vec<_> = due.filter(|entries| !entries.is_empty()).collect();
        let is_one = due.len() == 1;
        let mut due = due.concat();
        if !is_one {
            // Stable, since that merges what is in order.
            due.sort();
        }
        due.dedup();
        due.into_iter().unzip()
    }

    /// Removes what [`Self::until`] returns.
    pub fn pop(&mut self, time: i64) -> (Numbers, Numbers) {
        let due = self.until(time);
        for run in &mut self.runs {
            run.gone += run.count(time);
            if run.gone > FEW.max(run.entries.len() / 2)
                && let Ok(mut left) = entries_for(run.len(), &self.memory)
            {
                left.extend_from_slice(run.left());
                *run = Run { entries: left, gone: 0 };
            }
        }
        self.runs.retain(|run| run.len() > 0);
        due
    }

    /// The first time.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        self.runs.iter().filter_map(|run| Some(run.left().first()?.0)).min()
    }

    /// The first time after one.
    #[must_use]
    pub fn first_after(&self, time: i64) -> Option<i64> {
        self.runs.iter().filter_map(|run| Some(run.left().get(run.count(time))?.0)).min()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// Number of entries; one that was added twice may count twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

impl Run {
    fn left(&self) -> &[Entry] {
        &self.entries[self.gone..]
    }

    fn len(&self) -> usize {
        self.entries.len() - self.gone
    }

    /// How many are up to and including a time.
    fn count(&self, time: i64) -> usize {
        self.left().partition_point(|entry| entry.0 <= time)
    }
}

fn entries_for(count: usize, memory: &StateMemory) -> Result<Entries, NoRoom> {
    let mut entries = StateVec::new_in(memory.clone());
    entries.try_reserve_exact(count).map_err(|_| NoRoom(memory.failure()))?;
    Ok(entries)
}

fn merged(left: &[Entry], right: &[Entry], memory: &StateMemory) -> Result<Entries, NoRoom> {
    let mut entries = entries_for(left.len() + right.len(), memory)?;
    let (mut left, mut right) = (left, right);
    while let ([first, ..], [other, ..]) = (left, right) {
        if first <= other {
            // Those up to the other one, at once: times mostly come in order.
            let count = left.iter().take_while(|entry| *entry <= other).count();
            entries.extend_from_slice(&left[..count]);
            left = &left[count..];
        } else {
            entries.push(*other);
            right = &right[1..];
        }
    }
    entries.extend_from_slice(left);
    entries.extend_from_slice(right);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::Usage;

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<Entry>),
        Pop(i64),
        Look(i64),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let entries = prop::collection::vec((-5..40_i64, 0..4_i64), 0..9);
        let step = prop_oneof![
            8 => entries.prop_map(Step::Push),
            3 => (-6..41_i64).prop_map(Step::Pop),
            3 => (-6..41_i64).prop_map(Step::Look),
            1 => Just(Step::Clear),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn a_queue_is_an_ordered_set(steps in steps()) {
            let mut queue = TimeQueue::new(&StateMemory::default());
            let mut model: BTreeSet<Entry> = BTreeSet::new();
            let until = |model: &BTreeSet<Entry>, time| -> (Numbers, Numbers) {
                model.range(..(time + 1, i64::MIN)).copied().unzip()
            };
            for step in steps {
                match step {
                    Step::Push(entries) => {
                        let (times, numbers): (Numbers, Numbers) = entries.iter().copied().unzip();
                        queue.push(&times, &numbers).unwrap();
                        model.extend(entries);
                    }
                    Step::Pop(time) => {
                        prop_assert_eq!(queue.pop(time), until(&model, time));
                        model.retain(|entry| entry.0 > time);
                    }
                    Step::Look(time) => {
                        prop_assert_eq!(queue.until(time), until(&model, time));
                        let after = model.iter().map(|entry| entry.0).find(|other| *other > time);
                        prop_assert_eq!(queue.first_after(time), after);
                    }
                    Step::Clear => {
                        queue.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!(queue.first(), model.first().map(|entry| entry.0));
                prop_assert!(queue.len() >= model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn times_beyond_the_limit_are_in_files_and_leave_none() {
        let memory = StateMemory::limited(1 << 16, vec![]);
        let mut queue = TimeQueue::new(&memory);
        for first in 0..500_i64 {
            let times: Vec<_> = (0..100).map(|n| n * 500 + first).collect();
            queue.push(&times, &times).unwrap();
            assert!(memory.usage().in_memory <= 1 << 16);
            assert!(queue.runs.len() < 20, "{}", queue.runs.len());
        }
        assert!(memory.usage().in_files >= 40_000 * 16, "{:?}", memory.usage());
        for until in (0..50_000).step_by(100) {
            let expected: Vec<_> = (until..until + 100).collect();
            assert_eq!(queue.pop(until + 99), (expected.clone(), expected));
        }
        assert_eq!(memory.usage(), Usage::default());
    }
}
