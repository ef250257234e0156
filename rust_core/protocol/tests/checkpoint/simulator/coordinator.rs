//! The coordinator of checkpoints: one at a time; complete once all tasks have acknowledged it.

use std::collections::BTreeMap;

use headgate_protocol::CheckpointId;

use super::task::Snapshot;

#[derive(Debug, Default)]
pub(super) struct Coordinator {
    last: i64,
    pending: Option<(CheckpointId, BTreeMap<usize, Snapshot>)>,
    /// The last complete checkpoint: the part of each task.
    pub(super) completed: Option<Vec<Snapshot>>,
}

impl Coordinator {
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
        tasks: usize,
        snapshot: Snapshot,
    ) -> bool {
        let Some((_, parts)) = self.pending.as_mut().filter(|(id, _)| *id == checkpoint) else {
            return false;
        };
        assert!(parts.insert(task, snapshot).is_none(), "task {task} acknowledged twice");
        if parts.len() < tasks {
            return false;
        }
        self.completed = self.pending.take().map(|(_, parts)| parts.into_values().collect());
        true
    }
}
