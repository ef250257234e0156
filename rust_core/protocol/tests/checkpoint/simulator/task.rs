//! One task: its state machines, its state, and the snapshots that are not complete yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headgate_protocol::ChannelStatePart::{Input, Output};
use headgate_protocol::{
    ChannelStatePart, ChannelStateWriter, CheckpointBarrier, CheckpointBarrierHandler,
    CheckpointFailureReason, CheckpointId,
};

use super::state::{Record, State};

/// A task's part of a checkpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) state: State,
    /// Next record of each split of a source's task.
    pub(super) positions: BTreeMap<usize, u32>,
    pub(super) finished: bool,
    pub(super) channels: ChannelState,
}

/// Data in flight, for each channel and each output of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelState {
    pub(super) inputs: Vec<Vec<Record>>,
    pub(super) outputs: Vec<Vec<Record>>,
}

impl ChannelState {
    pub(super) fn has_data(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).any(|data| !data.is_empty())
    }
}

#[derive(Debug)]
pub(super) struct Task {
    /// 0 for sources.
    pub(super) stage: usize,
    /// Edges, by channel and by subpartition.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// A source has no channels: the coordinator triggers each of its checkpoints.
    pub(super) handler: CheckpointBarrierHandler<()>,
    /// Records that were in flight at the checkpoint that the task started from; they are handled first.
    pub(super) recovered: VecDeque<Record>,
    pub(super) timer: Option<(CheckpointId, i64)>,
    /// Time at which the barriers of a checkpoint overtake the data before them in the outputs.
    pub(super) output_timer: Option<(CheckpointId, i64)>,
    /// Requests of the coordinator.
    pub(super) requests: VecDeque<CheckpointBarrier<()>>,
    /// Checkpoints that the coordinator gave up before their barriers arrived.
    pub(super) aborted: BTreeSet<CheckpointId>,
    pub(super) last: Option<CheckpointId>,
    pub(super) state: State,
    pub(super) positions: BTreeMap<usize, u32>,
    pub(super) finished: bool,
    /// Snapshots that were taken and are not acknowledged.
    pub(super) snapshots: BTreeMap<CheckpointId, Snapshot>,
    writer: ChannelStateWriter,
    /// Channel state that is being written.
    writing: BTreeMap<CheckpointId, ChannelState>,
    /// Outputs whose timed barrier was not sent.
    unsent: BTreeMap<CheckpointId, BTreeSet<usize>>,
}

impl Task {
    /// Starts a task from its part of a checkpoint.
    pub(super) fn new(
        stage: usize,
        inputs: Vec<usize>,
        outputs: Vec<usize>,
        checkpoints_after_finish: bool,
        from: Snapshot,
        recovered: VecDeque<Record>,
    ) -> Self {
        Self {
            stage,
            handler: CheckpointBarrierHandler::new(inputs.len(), checkpoints_after_finish),
            recovered,
            inputs,
            outputs,
            timer: None,
            output_timer: None,
            requests: VecDeque::new(),
            aborted: BTreeSet::new(),
            last: None,
            state: from.state,
            positions: from.positions,
            finished: false,
            snapshots: BTreeMap::new(),
            writer: ChannelStateWriter::default(),
            writing: BTreeMap::new(),
            unsent: BTreeMap::new(),
        }
    }

    /// The state now, without data in flight.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state.clone(),
            positions: self.positions.clone(),
            ..Snapshot::default()
        }
    }

    pub(super) fn start_channel_state(&mut self, checkpoint: CheckpointId) {
        self.writer.start(checkpoint).unwrap();
        let state = ChannelState {
            inputs: vec![Vec::new(); self.inputs.len()],
            outputs: vec![Vec::new(); self.outputs.len()],
        };
        self.writing.insert(checkpoint, state);
    }

    /// Adds data to the channel state, unless that has failed. `at` is a channel or an output.
    pub(super) fn add(
        &mut self,
        checkpoint: CheckpointId,
        part: ChannelStatePart,
        at: usize,
        data: impl IntoIterator<Item = Record>,
    ) {
        if self.writer.add(checkpoint, part).unwrap() {
            let state = self.writing.get_mut(&checkpoint).unwrap();
            let of = if part == Input { &mut state.inputs } else { &mut state.outputs };
            of[at].extend(data);
        }
    }

    /// Ends a part of the channel state, if there is any.
    pub(super) fn finish_part(&mut self, checkpoint: CheckpointId, part: ChannelStatePart) {
        if self.writing.contains_key(&checkpoint) {
            self.writer.finish(checkpoint, part).unwrap();
        }
    }

    /// Waits for the timed barriers of a checkpoint to be sent.
    pub(super) fn await_sending(&mut self, checkpoint: CheckpointId) {
        self.unsent.insert(checkpoint, (0..self.outputs.len()).collect());
        if self.outputs.is_empty() {
            self.finish_part(checkpoint, Output);
        }
    }

    /// Handles the sending of a timed barrier in its place: no data is in flight before it.
    pub(super) fn on_sent(&mut self, checkpoint: CheckpointId, output: usize) {
        if let Some(unsent) = self.unsent.get_mut(&checkpoint) {
            unsent.remove(&output);
            if unsent.is_empty() {
                self.unsent.remove(&checkpoint);
                self.finish_part(checkpoint, Output);
            }
        }
    }

    /// Outputs whose timed barrier was not sent, which must overtake now.
    pub(super) fn take_unsent(&mut self, checkpoint: CheckpointId) -> BTreeSet<usize> {
        self.unsent.remove(&checkpoint).unwrap_or_default()
    }

    /// Fails the channel state of a checkpoint, whose result is still taken.
    pub(super) fn fail(&mut self, checkpoint: CheckpointId, reason: CheckpointFailureReason) {
        self.writer.abort(checkpoint, reason, false);
    }

    /// Drops all that belongs to a checkpoint.
    pub(super) fn discard(&mut self, checkpoint: CheckpointId, reason: CheckpointFailureReason) {
        self.writer.abort(checkpoint, reason, true);
        self.writing.remove(&checkpoint);
        self.snapshots.remove(&checkpoint);
        self.unsent.remove(&checkpoint);
        self.output_timer.take_if(|(armed, _)| *armed == checkpoint);
    }

    /// Takes the snapshots whose channel state is complete, or has failed.
    pub(super) fn take_done(&mut self) -> Vec<(CheckpointId, Option<Snapshot>)> {
        let mut done = Vec::new();
        for (checkpoint, snapshot) in &self.snapshots {
            if !self.writing.contains_key(checkpoint) {
                done.push((*checkpoint, Some(snapshot.clone())));
                continue;
            }
            let Some(result) = self.writer.take_result(*checkpoint).unwrap() else { continue };
            let channels = self.writing.remove(checkpoint).unwrap();
            let complete = result.map(|()| Snapshot { channels, ..snapshot.clone() });
            done.push((*checkpoint, complete.ok()));
        }
        for (checkpoint, _) in &done {
            self.snapshots.remove(checkpoint);
        }
        done
    }
}
