//! A job: a source, a keyed stage, and another one behind it, each with some tasks.

use std::collections::BTreeMap;

use fastrand::Rng;
use headgate_protocol::ChannelStatePart::{Input, Output};
use headgate_protocol::{
    Alignment, CheckpointBarrier, CheckpointFailureReason, CheckpointId, CheckpointOptions,
};

use crate::task::{Effect, Expired, Subsumed};

use super::coordinator::Coordinator;
use super::edge::{Edge, Item, Numbered};
use super::layout::Layout;
use super::plan::{Plan, Seen};
use super::restore::Checkpoint;
use super::state::{Record, naive_run, sum};
use super::task::{Snapshot, Task};

#[derive(Debug)]
pub(super) struct World {
    plan: Plan,
    /// The counts of each stage after a run without faults.
    expected: BTreeMap<Record, u32>,
    layout: Layout,
    now: i64,
    tasks: Vec<Task>,
    edges: Vec<Edge>,
    coordinator: Coordinator,
}

impl World {
    pub(super) fn new(plan: Plan, rng: &mut Rng) -> Self {
        let mut world = Self {
            expected: naive_run(plan.splits, plan.records),
            layout: Layout::new(rng),
            coordinator: Coordinator::new(Checkpoint::start(plan.splits)),
            plan,
            now: 0,
            tasks: Vec::new(),
            edges: Vec::new(),
        };
        world.deploy(rng);
        world
    }

    /// Starts all tasks from the last complete checkpoint.
    fn deploy(&mut self, rng: &mut Rng) {
        let layout = self.layout;
        let from = &self.coordinator.completed;
        let mut inputs = vec![Vec::new(); layout.tasks()];
        let mut outputs = vec![Vec::new(); layout.tasks()];
        self.edges.clear();
        for stage in 0..2 {
            for from in layout.tasks_of(stage) {
                for (output, to) in layout.tasks_of(stage + 1).enumerate() {
                    let channel = inputs[to].len();
                    inputs[to].push(self.edges.len());
                    outputs[from].push(self.edges.len());
                    let (is_local, credits) = (rng.bool(), rng.usize(1..=3));
                    self.edges.push(Edge::new((from, output), (to, channel), is_local, credits));
                }
            }
        }
        let edges = inputs.into_iter().zip(outputs);
        let tasks = layout.subtasks().zip(edges).map(|((stage, index), (inputs, outputs))| {
            let snapshot = from.snapshot(layout, stage, index);
            let recovered = from.in_flight(layout, stage, index);
            let after_finish = self.plan.checkpoints_after_finish;
            Task::new(stage, inputs, outputs, after_finish, snapshot, recovered)
        });
        self.tasks = tasks.collect();
    }

    /// Loses all tasks and all that is in flight; starts again from the last complete checkpoint, often with
    /// other numbers of tasks.
    pub(super) fn crash(&mut self, rng: &mut Rng, seen: &mut Seen) {
        self.coordinator.give_up();
        if rng.bool() {
            self.layout = Layout::new(rng);
        }
        let is_rescaled = self.coordinator.completed.layout != self.layout;
        let has_channel_state = self.has_channel_state();
        seen.restarts += 1;
        seen.restarts_with_channel_state += usize::from(has_channel_state);
        seen.rescaled_with_channel_state += usize::from(has_channel_state && is_rescaled);
        self.deploy(rng);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.tasks.iter().all(|task| task.finished)
    }

    /// Lets one part act that can; most calls find one.
    pub(super) fn step(&mut self, rng: &mut Rng, seen: &mut Seen) {
        let (task, edge) = (rng.usize(..self.tasks.len()), rng.usize(..self.edges.len()));
        match rng.u8(..40) {
            0..10 => self.transmit(edge),
            10..18 => self.arrive(edge),
            18..33 if rng.u8(..6) >= self.plan.speed[self.tasks[task].stage] => {}
            18..28 => self.read(task, rng, seen),
            28..33 => self.emit(task, rng),
            33..35 => _ = self.edges[edge].deliver_resume(),
            35 => self.request(task, seen),
            36 => self.fire(task, seen),
            37 => self.now += rng.i64(0..4),
            _ => self.finish(task),
        }
        self.settle(seen);
    }

    /// Returns true if a restart would find data in flight.
    pub(super) fn has_channel_state(&self) -> bool {
        self.coordinator.completed.has_channel_state()
    }

    /// Starts a checkpoint, unless one is pending. Returns true if it did.
    pub(super) fn start_checkpoint(&mut self, rng: &mut Rng, seen: &mut Seen) -> bool {
        let any_finished = self.tasks.iter().any(|task| task.finished);
        let refuses = any_finished && !self.plan.checkpoints_after_finish;
        if self.coordinator.pending().is_some() || refuses {
            return false;
        }
        let alignment = match rng.u8(..3) {
            0 => Alignment::Aligned,
            1 => Alignment::Timeoutable { timeout: rng.u64(0..8) },
            _ => Alignment::Unaligned,
        };
        let id = self.coordinator.start();
        let options = CheckpointOptions { alignment, snapshot: () };
        let barrier = CheckpointBarrier { id, timestamp: self.now, options };
        for at in 0..self.tasks.len() {
            if self.tasks[at].finished {
                let part = Snapshot { finished: true, ..self.tasks[at].snapshot() };
                self.acknowledge(id, at, part, seen);
            } else if self.tasks[at].inputs.iter().all(|edge| self.producer(*edge).finished) {
                self.tasks[at].requests.push_back(barrier.clone());
            }
        }
        true
    }

    /// The coordinator gives up the pending checkpoint. Some tasks hear of it.
    pub(super) fn expire(&mut self, rng: &mut Rng) {
        let Some(id) = self.coordinator.give_up() else { return };
        for task in &mut self.tasks {
            if rng.bool() {
                continue;
            }
            if Some(id) > task.last {
                task.aborted.insert(id);
            } else {
                task.fail(id, Expired);
            }
        }
    }

    fn producer(&self, edge: usize) -> &Task {
        &self.tasks[self.edges[edge].from.0]
    }

    fn has_room(&self, task: usize) -> bool {
        let outputs = &self.tasks[task].outputs;
        outputs.iter().all(|edge| self.edges[*edge].queued_data() < self.plan.capacity)
    }

    fn transmit(&mut self, edge: usize) {
        let Edge { is_local, to: (receiver, _), .. } = self.edges[edge];
        // A task has its input once it has handled the recovered records.
        if is_local || !self.tasks[receiver].recovered.is_empty() {
            return;
        }
        if let Some(item) = self.give(edge) {
            self.edges[edge].put_on_way(item);
        }
    }

    fn give(&mut self, edge: usize) -> Option<Numbered> {
        let given = self.edges[edge].give()?;
        let (task, output) = self.edges[edge].from;
        if let Item::Barrier(barrier) = &given.item {
            // One that overtook is not among the unsent any more.
            self.tasks[task].on_sent(barrier.id, output);
        }
        Some(given)
    }

    fn arrive(&mut self, edge: usize) {
        if let Some(arrived) = self.edges[edge].arrive() {
            self.persist(edge, &arrived);
            self.edges[edge].receive(arrived);
        }
    }

    /// Tells the channel's persister of an item that arrives, or that is read from a local channel.
    fn persist(&mut self, edge: usize, item: &Numbered) {
        let Edge { persister, to: (task, channel), .. } = &mut self.edges[edge];
        match &item.item {
            Item::Data(record) => {
                if let Some(checkpoint) = persister.persists() {
                    self.tasks[*task].add(checkpoint, Input, *channel, [*record]);
                }
            }
            Item::Barrier(barrier) => persister.on_barrier(barrier.id, item.sequence),
            _ => {}
        }
    }

    /// Lets a task of the source emit a record of one of its splits.
    fn emit(&mut self, task: usize, rng: &mut Rng) {
        if !self.has_room(task) {
            return;
        }
        let records = self.plan.records;
        let positions = &mut self.tasks[task].positions;
        if let Some((split, next)) = rng.choice(positions.iter_mut())
            && *next < records
        {
            let record = Record { split: *split, number: *next };
            *next += 1;
            self.send(task, record);
        }
    }

    fn send(&mut self, task: usize, record: Record) {
        let Task { stage, outputs, .. } = &self.tasks[task];
        if !outputs.is_empty() {
            let edge = outputs[self.layout.receiver(stage + 1, record)];
            self.edges[edge].send(Item::Data(record));
        }
    }

    /// Lets a task read one item: priority events first, and data only if there is room for it in the
    /// outputs.
    fn read(&mut self, task: usize, rng: &mut Rng, seen: &mut Seen) {
        let room = self.has_room(task);
        let mut inputs = self.tasks[task].inputs.clone();
        rng.shuffle(&mut inputs);
        if !self.tasks[task].recovered.is_empty() {
            if room && let Some(record) = self.tasks[task].recovered.pop_front() {
                self.process(task, record);
            }
            return;
        }
        let priority = inputs.iter().find(|edge| self.edges[**edge].has_priority());
        let readable = inputs.iter().find(|edge| room && self.edges[**edge].is_readable());
        let Some(edge) = priority.or(readable).copied() else { return };
        let item = if self.edges[edge].is_local {
            let given = self.give(edge);
            given.inspect(|item| self.persist(edge, item))
        } else {
            self.edges[edge].take_received()
        };
        if let Some(item) = item {
            self.edges[edge].check_order(&item);
            self.handle(task, edge, item.item, seen);
        }
    }

    fn process(&mut self, task: usize, record: Record) {
        self.tasks[task].state.count(record);
        self.send(task, record);
    }

    fn handle(&mut self, at: usize, edge: usize, item: Item, seen: &mut Seen) {
        let channel = self.edges[edge].to.1;
        let now = self.now;
        let handler = &mut self.tasks[at].handler;
        let effects = match item {
            Item::Data(record) => return self.process(at, record),
            Item::Barrier(barrier) => {
                self.edges[edge].stopped |= barrier.options.alignment.blocks_channel();
                handler.on_barrier(channel, &barrier, now)
            }
            Item::Announcement(sequence, barrier) => {
                handler.on_announcement(channel, sequence, &barrier, now)
            }
            Item::Cancel(checkpoint) => handler.on_cancellation(channel, checkpoint),
            Item::EndOfPartition => handler.on_end_of_partition(channel, now),
        };
        self.carry_out(at, effects.unwrap(), seen);
    }

    fn carry_out(&mut self, at: usize, effects: Vec<Effect>, seen: &mut Seen) {
        let mut overtaken = None;
        for effect in effects {
            let task = &mut self.tasks[at];
            let edges = &mut self.edges;
            match effect {
                Effect::BlockConsumption { channel } => {
                    assert!(edges[task.inputs[channel]].stopped)
                }
                Effect::ResumeConsumption { channel } => edges[task.inputs[channel]].resume(),
                Effect::ConvertToPriority { channel, sequence } => {
                    edges[task.inputs[channel]].convert_to_priority(sequence);
                    seen.converted += 1;
                }
                Effect::StartChannelState { checkpoint } => task.start_channel_state(checkpoint),
                Effect::StartPersisting { channel, checkpoint } => {
                    let edge = &mut edges[task.inputs[channel]];
                    match edge.persister.start(checkpoint) {
                        Ok(of) => task.add(checkpoint, Input, channel, edge.in_flight(of)),
                        Err(_) => {
                            task.fail(checkpoint, Subsumed);
                            overtaken = Some(checkpoint);
                        }
                    }
                }
                Effect::StopPersisting { channel, checkpoint } => {
                    edges[task.inputs[channel]].persister.stop(checkpoint);
                }
                Effect::TriggerCheckpoint(barrier) => self.trigger(at, barrier),
                Effect::AllBarriersReceived { checkpoint, .. } => {
                    task.finish_part(checkpoint, Input);
                }
                Effect::AbortCheckpoint { checkpoint, reason } => {
                    self.abort(at, checkpoint, reason, seen);
                }
                Effect::ArmTimer { checkpoint, at } => task.timer = Some((checkpoint, at)),
                Effect::CancelTimer => task.timer = None,
            }
        }
        if let Some(checkpoint) = overtaken {
            seen.overtaken_starts += 1;
            let effects = self.tasks[at].handler.abort(checkpoint, Subsumed);
            self.carry_out(at, effects, seen);
        }
    }

    /// Sends the barrier on and takes the snapshot.
    fn trigger(&mut self, at: usize, barrier: CheckpointBarrier<()>) {
        let task = &mut self.tasks[at];
        let id = barrier.id;
        assert!(Some(id) > task.last, "ids of triggers increase");
        task.last = Some(id);
        let gave_up = task.aborted.remove(&id);
        task.aborted.retain(|aborted| *aborted > id);
        if gave_up {
            task.discard(id, Expired);
            return self.send_to_all(at, &Item::Cancel(id));
        }
        let part = task.snapshot();
        task.snapshots.insert(id, part);
        match barrier.options.alignment {
            Alignment::Aligned => self.send_to_all(at, &Item::Barrier(barrier)),
            Alignment::Timeoutable { .. } => {
                task.output_timer = barrier.deadline().map(|deadline| (id, deadline));
                task.await_sending(id);
                self.send_to_all(at, &Item::Barrier(barrier));
            }
            Alignment::Unaligned => {
                for (output, edge) in task.outputs.clone().into_iter().enumerate() {
                    let overtaken = self.edges[edge].overtake(barrier.clone());
                    task.add(id, Output, output, overtaken);
                }
                task.finish_part(id, Output);
            }
            Alignment::AtLeastOnce => unreachable!("the world counts each record once"),
        }
    }

    fn abort(
        &mut self,
        at: usize,
        checkpoint: CheckpointId,
        reason: CheckpointFailureReason,
        seen: &mut Seen,
    ) {
        *seen.aborted.entry(format!("{reason:?}")).or_default() += 1;
        let task = &mut self.tasks[at];
        task.last = task.last.max(Some(checkpoint));
        task.aborted.retain(|aborted| *aborted > checkpoint);
        task.discard(checkpoint, reason);
        self.coordinator.decline(checkpoint);
        self.send_to_all(at, &Item::Cancel(checkpoint));
    }

    fn send_to_all(&mut self, task: usize, item: &Item) {
        for edge in &self.tasks[task].outputs {
            self.edges[*edge].send(item.clone());
        }
    }

    /// Handles a request of the coordinator.
    fn request(&mut self, at: usize, seen: &mut Seen) {
        // The mail waits until the recovered records are handled.
        if !self.tasks[at].recovered.is_empty() {
            return;
        }
        let Some(barrier) = self.tasks[at].requests.pop_front() else { return };
        let effects = self.tasks[at].handler.trigger(&barrier, self.now);
        self.carry_out(at, effects, seen);
    }

    /// Fires the timers of a task that are due.
    fn fire(&mut self, at: usize, seen: &mut Seen) {
        let now = self.now;
        let task = &mut self.tasks[at];
        if let Some((id, _)) = task.output_timer.take_if(|(_, at)| *at <= now) {
            for output in task.take_unsent(id) {
                let data = self.edges[task.outputs[output]].time_out(id);
                task.add(id, Output, output, data);
                seen.timed_out_outputs += 1;
            }
            task.finish_part(id, Output);
        }
        if let Some((id, _)) = task.timer.take_if(|(_, at)| *at <= now) {
            let effects = task.handler.on_timer(id, now);
            self.carry_out(at, effects, seen);
        }
    }

    /// Ends a task whose records are all processed, also by the tasks behind it.
    fn finish(&mut self, at: usize) {
        let task = &self.tasks[at];
        let at_end = if task.stage == 0 {
            task.positions.values().all(|next| *next == self.plan.records)
        } else {
            task.handler.num_open_channels() == 0
        };
        let drained = task.outputs.iter().all(|edge| self.edges[*edge].is_drained());
        let idle = task.requests.is_empty() && task.snapshots.is_empty();
        if !task.finished && at_end && drained && idle {
            self.tasks[at].finished = true;
            self.send_to_all(at, &Item::EndOfPartition);
        }
    }

    /// Acknowledges and declines what has become certain.
    fn settle(&mut self, seen: &mut Seen) {
        for at in 0..self.tasks.len() {
            for (checkpoint, part) in self.tasks[at].take_done() {
                match part {
                    Some(part) => self.acknowledge(checkpoint, at, part, seen),
                    None => self.coordinator.decline(checkpoint),
                }
            }
        }
    }

    fn acknowledge(&mut self, id: CheckpointId, task: usize, part: Snapshot, seen: &mut Seen) {
        if self.coordinator.acknowledge(id, task, self.layout, part) {
            self.check_checkpoint(seen);
        }
    }

    /// Checks that a complete checkpoint has each record exactly once: in a state, in flight before
    /// it, or still to come.
    fn check_checkpoint(&self, seen: &mut Seen) {
        let parts = &self.coordinator.completed.parts;
        let of = |stage: usize| &parts[self.layout.tasks_of(stage)];
        let positions: BTreeMap<_, _> = of(0).iter().flat_map(|part| &part.positions).collect();
        for stage in [1, 2] {
            let mut counts = sum(of(stage).iter().map(|part| &part.state));
            let outputs = of(stage - 1).iter().flat_map(|part| &part.channels.outputs);
            let inputs = of(stage).iter().flat_map(|part| &part.channels.inputs);
            for record in inputs.chain(outputs).flatten() {
                *counts.entry(*record).or_default() += 1;
            }
            let upstream = sum(of(1).iter().map(|part| &part.state));
            for record in self.expected.keys() {
                let to_come = match stage {
                    1 => record.number >= *positions[&record.split],
                    _ => !upstream.contains_key(record),
                };
                *counts.entry(*record).or_default() += u32::from(to_come);
            }
            assert_eq!(counts, self.expected, "stage {stage}");
        }
        let any = |has: fn(&Snapshot) -> bool| usize::from(parts.iter().any(has));
        seen.completed += 1;
        seen.with_input_state += any(|part| part.channels.inputs.iter().any(|it| !it.is_empty()));
        seen.with_output_state += any(|part| part.channels.outputs.iter().any(|it| !it.is_empty()));
        seen.with_finished_tasks += any(|part| part.finished);
    }

    /// Compares the states of all tasks with a run without faults.
    pub(super) fn check_end(&self) {
        for stage in [1, 2] {
            let tasks = &self.tasks[self.layout.tasks_of(stage)];
            assert_eq!(sum(tasks.iter().map(|task| &task.state)), self.expected, "stage {stage}");
        }
    }
}
