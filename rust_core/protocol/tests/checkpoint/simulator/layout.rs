//! How many tasks each stage has, and which splits and key groups are theirs.

use std::ops::Range;

use fastrand::Rng;

use super::state::{GROUPS, Record};

/// Tasks of the source, of a keyed stage behind it, and of another one behind that. Tasks are numbered in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Layout([usize; 3]);

impl Layout {
    /// One task for each stage.
    pub(super) const SINGLE: Self = Self([1; 3]);

    pub(super) fn new(rng: &mut Rng) -> Self {
        Self(std::array::from_fn(|_| rng.usize(1..=3)))
    }

    /// Number of tasks.
    pub(super) fn tasks(&self) -> usize {
        self.0.iter().sum()
    }

    /// The tasks of a stage.
    pub(super) fn tasks_of(&self, stage: usize) -> Range<usize> {
        let first = self.0[..stage].iter().sum();
        first..first + self.0[stage]
    }

    /// Stages with the indices of their tasks, in the order of the tasks.
    pub(super) fn subtasks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..3).flat_map(move |stage| (0..self.0[stage]).map(move |index| (stage, index)))
    }

    /// Returns true if a task of the source reads a split.
    pub(super) fn reads(&self, index: usize, split: usize) -> bool {
        split % self.0[0] == index
    }

    /// The index of the task that gets a record at a keyed stage.
    pub(super) fn receiver(&self, stage: usize, record: Record) -> usize {
        record.key_group(stage) * self.0[stage] / GROUPS
    }

    /// The key groups of a task of a keyed stage.
    pub(super) fn key_groups(&self, stage: usize, index: usize) -> Range<usize> {
        let first_of = |index: usize| (index * GROUPS).div_ceil(self.0[stage]);
        first_of(index)..first_of(index + 1)
    }
}
