//! A complete checkpoint, and what each task of the next attempt continues from, in any layout.

use std::collections::VecDeque;

use super::layout::Layout;
use super::state::Record;
use super::task::Snapshot;

#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) layout: Layout,
    /// The snapshot of each task.
    pub(super) parts: Vec<Snapshot>,
}

impl Checkpoint {
    /// The start of a job, which has nothing but splits.
    pub(super) fn start(splits: usize) -> Self {
        let positions = (0..splits).map(|split| (split, 0)).collect();
        let source = Snapshot { positions, ..Snapshot::default() };
        let parts = vec![source, Snapshot::default(), Snapshot::default()];
        Self { layout: Layout::SINGLE, parts }
    }

    /// The snapshot that a task of another layout continues from. It has no data in flight.
    pub(super) fn snapshot(&self, layout: Layout, stage: usize, index: usize) -> Snapshot {
        let mut found = Snapshot::default();
        let parts = &self.parts[self.layout.tasks_of(stage)];
        if stage == 0 {
            let positions = parts.iter().flat_map(|part| &part.positions);
            let own = positions.filter(|(split, _)| layout.reads(index, **split));
            found.positions = own.map(|(split, next)| (*split, *next)).collect();
        } else {
            let groups = layout.key_groups(stage, index);
            parts.iter().for_each(|part| found.state.restore(&part.state, stage, &groups));
        }
        found
    }

    /// The records that were on their way to the key groups of a task of another layout, in the order of
    /// each pair of a sender and a receiver: what the receiver had comes before what the sender had.
    pub(super) fn in_flight(&self, layout: Layout, stage: usize, index: usize) -> VecDeque<Record> {
        let mut found = VecDeque::new();
        if stage == 0 {
            return found;
        }
        let own = layout.key_groups(stage, index);
        let before = &self.parts[self.layout.tasks_of(stage - 1)];
        let at = &self.parts[self.layout.tasks_of(stage)];
        for (sender, sent) in before.iter().enumerate() {
            for (receiver, received) in at.iter().enumerate() {
                let groups = self.layout.key_groups(stage, receiver);
                if groups.start >= own.end || own.start >= groups.end {
                    continue;
                }
                let inputs = received.channels.inputs.get(sender);
                let outputs = sent.channels.outputs.get(receiver);
                let both = inputs.into_iter().chain(outputs).flatten();
                found.extend(both.filter(|record| own.contains(&record.key_group(stage))));
            }
        }
        found
    }

    pub(super) fn has_channel_state(&self) -> bool {
        self.parts.iter().any(|part| part.channels.has_data())
    }
}
