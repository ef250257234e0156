//! All orders of the events of two checkpoints on two and three channels: no channel stays blocked
//! once its checkpoint is over, each channel counts once, and the ids of triggers increase.

use headgate_protocol::{Alignment, CheckpointBarrierHandler};

use crate::exhaust::{Size, exhaust};
use crate::task::{ALIGNED, TIMEOUT, TIMEOUTABLE, Task, UNALIGNED};

const IDS: [usize; 2] = [0, 1];

/// The events that the search may choose from.
#[derive(Clone, Copy, Debug)]
struct Setup {
    channels: usize,
    /// Alignments of both checkpoints.
    alignments: [Alignment; 2],
    /// Cancel markers of each checkpoint, on any channels.
    markers: usize,
    /// Channels that may end.
    ends: usize,
    /// True if the driver may abort either checkpoint, and the coordinator may trigger it.
    requests: bool,
    checkpoints_after_finish: bool,
}

/// A task and what each of its channels has delivered.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct World {
    /// Its log is emptied after each step.
    task: Task,
    channels: Vec<Channel>,
    /// True once the coordinator has triggered the checkpoint itself.
    requested: [bool; 2],
    outcomes: [Outcome; 2],
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Channel {
    announced: [bool; 2],
    delivered: [bool; 2],
    cancelled: [bool; 2],
    ended: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Outcome {
    #[default]
    None,
    Triggered,
    Completed,
    Aborted,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Announce(usize, usize),
    Barrier(usize, usize, Alignment),
    Cancel(usize, usize),
    End(usize),
    Trigger(usize),
    Abort(usize),
    /// The deadline is now: the timer fires if it is armed.
    Timer,
    /// The deadline has passed, and the timer has not fired yet.
    Late,
}

fn number(id: usize) -> i64 {
    id as i64 + 1
}

#[derive(Debug, Default)]
struct Seen {
    size: Size,
    completed: usize,
    subsumed: usize,
    unaligned: usize,
    converted: usize,
}

impl Setup {
    fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut add = |enabled: bool, action| actions.extend(enabled.then_some(action));
        let ended = world.channels.iter().filter(|channel| channel.ended).count();
        for (at, channel) in world.channels.iter().enumerate() {
            if channel.ended || world.task.stopped.contains_key(&at) {
                continue;
            }
            for id in IDS {
                let alignment = self.alignments[id];
                let timed = alignment == TIMEOUTABLE;
                add(!channel.delivered[id], Action::Barrier(at, id, alignment));
                // The timeout passed in the task before, whose barrier was not sent yet.
                let overtakes = timed && !channel.announced[id];
                add(!channel.delivered[id] && overtakes, Action::Barrier(at, id, UNALIGNED));
                let unread = !channel.announced[id] && !channel.delivered[id];
                add(timed && unread, Action::Announce(at, id));
                let markers = world.channels.iter().filter(|other| other.cancelled[id]).count();
                add(!channel.cancelled[id] && markers < self.markers, Action::Cancel(at, id));
            }
            add(ended < self.ends, Action::End(at));
        }
        for id in IDS {
            let running = world.outcomes[id] < Outcome::Completed;
            add(self.requests && !world.requested[id], Action::Trigger(id));
            add(self.requests && running, Action::Abort(id));
        }
        add(world.task.timer.is_some(), Action::Timer);
        let timed = self.alignments.contains(&TIMEOUTABLE);
        add(timed && world.task.now <= TIMEOUT as i64, Action::Late);
        actions
    }

    fn apply(&self, world: &mut World, action: Action, seen: &mut Seen) {
        let before = world.task.handler.latest_checkpoint();
        let World { task, channels, requested, .. } = &mut *world;
        match action {
            Action::Announce(at, id) => {
                channels[at].announced[id] = true;
                task.announce(at, number(id), self.alignments[id]);
            }
            Action::Barrier(at, id, alignment) => {
                channels[at].delivered[id] = true;
                task.barrier(at, number(id), alignment);
            }
            Action::Cancel(at, id) => {
                channels[at].cancelled[id] = true;
                task.cancel(at, number(id));
            }
            Action::End(at) => {
                channels[at].ended = true;
                task.end(at);
            }
            Action::Trigger(id) => {
                requested[id] = true;
                task.trigger(number(id), self.alignments[id]);
            }
            Action::Abort(id) => {
                task.abort(number(id));
            }
            Action::Timer => {
                let until = (TIMEOUT as i64 - task.now).max(0);
                task.advance(until);
            }
            Action::Late => task.now = TIMEOUT as i64 + 1,
        }
        let log = std::mem::take(&mut world.task.log);
        for (id, alignment) in &log.triggers {
            assert!(log.triggers.len() == 1 && Some(*id) >= before.map(|id| id.0), "{log:?}");
            let outcome = &mut world.outcomes[*id as usize - 1];
            assert_eq!(*outcome, Outcome::None, "triggered once, and not after an abort");
            *outcome = Outcome::Triggered;
            seen.unaligned += usize::from(*alignment == UNALIGNED);
        }
        for (id, _) in &log.completed {
            let id = *id as usize - 1;
            let counted = |channel: &Channel| channel.delivered[id] || channel.ended;
            assert!(world.channels.iter().all(counted) || world.requested[id], "each counts once");
            assert_eq!(world.outcomes[id], Outcome::Triggered);
            world.outcomes[id] = Outcome::Completed;
            seen.completed += 1;
        }
        for (id, reason) in &log.aborts {
            let outcome = &mut world.outcomes[*id as usize - 1];
            assert!(*outcome < Outcome::Completed, "{reason} after {outcome:?}");
            *outcome = Outcome::Aborted;
            seen.subsumed += usize::from(*reason == crate::task::Subsumed);
        }
        seen.converted += log.converted.len();
    }

    fn check(&self, world: &World) {
        let task = &world.task;
        let pending =
            task.handler.latest_checkpoint().filter(|_| task.handler.is_checkpoint_pending());
        let pending = pending.map(|id| id.0);
        for (channel, id) in &task.stopped {
            assert_eq!(Some(*id), pending, "the checkpoint that blocks channel {channel} is over");
            assert!(task.blocked.contains(channel));
        }
        assert_eq!(task.blocked.len(), task.stopped.len());
        assert!(task.persisting.values().all(|id| Some(*id) == pending), "{task:?}");
        assert!(task.timer.is_none_or(|(id, _)| Some(id) == pending));
        let Some(id) = pending.map(|id| id as usize - 1) else { return };
        let awaited = |channel: &Channel| !channel.ended && !channel.delivered[id];
        assert!(world.channels.iter().any(awaited), "it waits for nobody: {task:?}");
        let triggered = world.outcomes[id] == Outcome::Triggered;
        assert_eq!(triggered, !task.persisting.is_empty());
        assert!(world.outcomes[id] < Outcome::Completed);
    }

    fn search(self) -> Seen {
        let handler = CheckpointBarrierHandler::new(self.channels, self.checkpoints_after_finish);
        let start = World {
            task: Task::with_handler(handler),
            channels: vec![Channel::default(); self.channels],
            requested: [false; 2],
            outcomes: [Outcome::None; 2],
        };
        let visit = |world: &World| {
            self.check(world);
            let actions = self.actions(world);
            if actions.is_empty() {
                assert!(!world.task.handler.is_checkpoint_pending(), "{world:?}");
            }
            actions
        };
        let mut seen = Seen::default();
        let size = exhaust(start, visit, |after, action| self.apply(after, action, &mut seen));
        seen.size = size;
        println!("{self:?}: {seen:?}");
        seen
    }
}

const TWO: Setup = Setup {
    channels: 2,
    alignments: [TIMEOUTABLE; 2],
    markers: 2,
    ends: 2,
    requests: false,
    checkpoints_after_finish: true,
};
const THREE: Setup = Setup { channels: 3, markers: 0, ends: 0, ..TWO };
const ALIGNMENTS: [Alignment; 3] = [ALIGNED, TIMEOUTABLE, UNALIGNED];

#[test]
fn two_channels_deliver_two_checkpoints_of_all_kinds() {
    for first in ALIGNMENTS {
        for second in ALIGNMENTS {
            let setup = Setup { alignments: [first, second], ..TWO };
            let seen = setup.search();
            assert!(seen.completed > 0 && seen.subsumed > 0 && seen.size.ends > 0, "{seen:?}");
            let timed = setup.alignments.contains(&TIMEOUTABLE);
            assert_eq!(seen.converted > 0, timed);
            assert_eq!(seen.unaligned > 0, timed || setup.alignments.contains(&UNALIGNED));
        }
    }
}

#[test]
fn two_channels_with_aborts_and_requests_of_the_coordinator() {
    let seen = Setup { markers: 0, requests: true, ..TWO }.search();
    assert!(seen.completed > 0 && seen.unaligned > 0, "{seen:?}");
    let aborts_at_ends = Setup { checkpoints_after_finish: false, markers: 1, ..TWO };
    let seen = Setup { requests: true, ..aborts_at_ends }.search();
    assert!(seen.completed > 0 && seen.unaligned > 0, "{seen:?}");
}

#[test]
fn three_channels_deliver_two_timed_checkpoints() {
    let seen = THREE.search();
    assert!(seen.completed > 0 && seen.converted > 0 && seen.unaligned > 0, "{seen:?}");
}

#[test]
fn three_channels_with_a_marker_or_an_end() {
    for (markers, ends) in [(1, 0), (0, 1)] {
        let seen = Setup { markers, ends, ..THREE }.search();
        assert!(seen.completed > 0 && seen.converted > 0 && seen.unaligned > 0, "{seen:?}");
    }
}

#[test]
fn three_channels_deliver_aligned_and_unaligned_checkpoints() {
    for alignments in [[ALIGNED, UNALIGNED], [UNALIGNED, ALIGNED], [ALIGNED, TIMEOUTABLE]] {
        let seen = Setup { alignments, markers: 1, ends: 1, ..THREE }.search();
        assert!(seen.completed > 0 && seen.subsumed > 0 && seen.unaligned > 0, "{seen:?}");
    }
}
