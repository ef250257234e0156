//! The coordinator of checkpoints: one at a time; complete once all tasks have acknowledged it.

use std::collections::BTreeMap;

use headgate_protocol::CheckpointId;

use super::layout::Layout;
use super::restore::Checkpoint;
use super::task::Snapshot;

#[derive(Debug)]
pub(super) struct Coordinator {
    last: i64,
    pending: Option<(CheckpointId, BTreeMap<usize, Snapshot>)>,
    /// The last complete checkpoint, or the start.
    pub(super) completed: Checkpoint,
}

impl Coordinator {
    pub(super) fn new(start: Checkpoint) -> Self {
        Self { last: 0, pending: None, completed: start }
    }

    pub(super) fn pending(&self) -> Option<CheckpointId> {
        self.pending.as_ref().map(|(id, _)| *id)
    }

    pub(super) fn start(&mut self) -> CheckpointId {
        self.last += 1;
        let id = CheckpointId(self.last);
        self.pending = Some((id, BTreeMap::new()));
        id
    }

    pub(super) fn decline(&mut self, checkpoint: CheckpointId) {
        self.pending.take_if(|(id, _)| *id == checkpoint);
    }

    /// Gives up the pending checkpoint.
    pub(super) fn give_up(&mut self) -> Option<CheckpointId> {
        self.pending.take().map(|(id, _)| id)
    }

    /// Returns true if the checkpoint is complete now.
    pub(super) fn acknowledge(
        &mut self,
        checkpoint: CheckpointId,
        task: usize,
        layout: Layout,
        snapshot: Snapshot,
    ) -> bool {
        let Some((_, parts)) = self.pending.as_mut().filter(|(id, _)| *id == checkpoint) else {
            return false;
        };
        assert!(parts.insert(task, snapshot).is_none(), "task {task} acknowledged twice");
        if parts.len() < layout.tasks() {
            return false;
        }
        let parts = std::mem::take(parts).into_values().collect();
        self.pending = None;
        self.completed = Checkpoint { layout, parts };
        true
    }
}
