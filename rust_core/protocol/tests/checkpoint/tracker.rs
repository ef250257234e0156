//! Barriers that are counted and block nothing.

use std::collections::BTreeSet;

use headgate_protocol::{
    Alignment, ChannelNotOpen, CheckpointBarrierTracker, CheckpointEffect, CheckpointId,
    MAX_CHECKPOINTS_TO_TRACK,
};
use proptest::prelude::*;

use crate::task::effects::{abort, block, received, resume, trigger};
use crate::task::{Cancelled, Closed, Effect, Expired, InputEndOfStream, barrier};

const AT_LEAST_ONCE: Alignment = Alignment::AtLeastOnce;

/// Barriers of a tracker block nothing, whatever their alignment.
struct Task(CheckpointBarrierTracker<()>);

impl Task {
    fn new(channels: usize) -> Self {
        Self(CheckpointBarrierTracker::new(channels, true))
    }

    fn barrier(&mut self, channel: usize, id: i64) -> Vec<Effect> {
        self.0.on_barrier(channel, &barrier(id, AT_LEAST_ONCE), 0).unwrap()
    }

    fn cancel(&mut self, channel: usize, id: i64) -> Vec<Effect> {
        self.0.on_cancellation(channel, CheckpointId(id), 0).unwrap()
    }

    fn end(&mut self, channel: usize) -> Vec<Effect> {
        self.0.on_end_of_partition(channel, 0).unwrap()
    }

    fn pending(&self) -> Vec<i64> {
        self.0.pending_checkpoints().map(|id| id.0).collect()
    }
}

/// The effects of a checkpoint that is triggered.
fn complete(id: i64) -> [Effect; 2] {
    [trigger(id, AT_LEAST_ONCE), received(id, 0, 0)]
}

#[test]
fn spec_section_10_4_the_last_barrier_triggers() {
    let mut tracker = CheckpointBarrierTracker::new(3, true);
    let barrier = barrier(1, AT_LEAST_ONCE);
    assert_eq!(tracker.on_barrier(1, &barrier, 3), Ok(vec![]));
    assert_eq!(tracker.on_barrier(1, &barrier, 4), Ok(vec![]), "a channel counts once");
    assert_eq!(tracker.on_barrier(0, &barrier, 5), Ok(vec![]));
    let complete = [trigger(1, AT_LEAST_ONCE), received(1, 5, 3)];
    assert_eq!(tracker.on_barrier(2, &barrier, 8), Ok(complete.to_vec()));
    assert_eq!(tracker.on_barrier(2, &barrier, 9), Ok(vec![]));
}

#[test]
fn a_handler_goes_on_with_the_open_channels_and_the_newest_checkpoint_of_a_tracker() {
    let mut task = Task::new(3);
    assert_eq!(task.cancel(0, 2), [abort(2, Cancelled)]);
    assert_eq!(task.end(1), []);
    let mut handler = task.0.to_handler();
    assert_eq!(
        (handler.num_open_channels(), handler.latest_checkpoint()),
        (2, Some(CheckpointId(2)))
    );
    let aligned = |id| barrier(id, Alignment::Aligned);
    assert_eq!(handler.on_barrier(2, &aligned(2), 0), Ok(vec![resume(2)]), "it was cancelled");
    assert_eq!(handler.on_barrier(0, &aligned(3), 0), Ok(vec![block(0)]));
    let effects = handler.on_barrier(2, &aligned(3), 0).unwrap();
    assert!(effects.contains(&trigger(3, Alignment::Aligned)), "{effects:?}");
    assert!(handler.on_barrier(1, &aligned(3), 0).is_err(), "it has ended");
}

#[test]
fn spec_section_10_4_a_single_channel_triggers_at_once() {
    let mut task = Task::new(1);
    assert_eq!(task.barrier(0, 2), complete(2));
    assert_eq!(task.barrier(0, 1), [], "older than the completed one");
    assert_eq!(task.cancel(0, 3), [abort(3, Cancelled)]);
    assert_eq!(task.barrier(0, 4), complete(4));
    assert!(task.pending().is_empty());
}

#[test]
fn spec_section_10_4_a_complete_checkpoint_drops_older_ones() {
    let mut task = Task::new(2);
    for id in 1..=3 {
        task.barrier(0, id);
    }
    assert_eq!(task.barrier(1, 2), complete(2));
    assert_eq!(task.pending(), [3]);
    assert_eq!(task.barrier(1, 1), []);
    assert_eq!(task.barrier(1, 3), complete(3));
}

#[test]
fn spec_section_10_4_fifty_checkpoints_are_tracked() {
    let mut task = Task::new(2);
    let last = MAX_CHECKPOINTS_TO_TRACK as i64 + 1;
    for id in 1..=last {
        assert_eq!(task.barrier(0, id), []);
    }
    assert_eq!(task.pending(), (2..=last).collect::<Vec<_>>());
    assert_eq!(task.barrier(1, 1), [], "the oldest is dropped");
    assert_eq!(task.barrier(1, 2), complete(2));
}

#[test]
fn spec_section_10_4_a_cancel_marker_aborts_its_checkpoint_and_older_ones() {
    let mut task = Task::new(3);
    task.barrier(0, 1);
    task.barrier(0, 2);
    task.barrier(0, 3);
    assert_eq!(task.cancel(1, 2), [abort(1, Cancelled), abort(2, Cancelled)]);
    assert_eq!(task.cancel(1, 2), [], "once");
    assert_eq!(task.pending(), [2, 3]);
    assert_eq!(task.barrier(2, 2), [], "the last one is only counted");
    assert_eq!(task.pending(), [3]);
    // A marker ahead of all barriers.
    assert_eq!(task.cancel(0, 4), [abort(3, Cancelled), abort(4, Cancelled)]);
    assert_eq!(task.barrier(1, 3), []);
    assert_eq!(task.barrier(1, 4), []);
    assert_eq!(task.barrier(2, 4), []);
    assert!(task.pending().is_empty());
    for channel in 0..2 {
        task.barrier(channel, 5);
    }
    assert_eq!(task.barrier(2, 5), complete(5));
}

#[test]
fn spec_section_10_4_cancel_markers_of_two_checkpoints_interleave() {
    let mut task = Task::new(2);
    task.barrier(0, 1);
    assert_eq!(task.cancel(0, 2), [abort(1, Cancelled), abort(2, Cancelled)]);
    assert_eq!(task.cancel(1, 1), []);
    assert_eq!(task.cancel(1, 2), []);
    assert!(task.pending().is_empty());
}

#[test]
fn spec_section_10_4_the_end_of_a_channel_counts_for_each_pending_checkpoint() {
    let mut task = Task::new(3);
    task.barrier(0, 1);
    task.barrier(0, 2);
    task.barrier(1, 1);
    task.barrier(1, 2);
    task.barrier(0, 3);
    assert_eq!(task.end(2), complete(2), "the newest of both");
    assert_eq!(task.pending(), [3]);
    assert_eq!(task.end(1), complete(3));
    assert_eq!(task.barrier(0, 4), complete(4), "the only open channel");
}

#[test]
fn spec_section_10_4_one_open_channel_completes_what_others_began() {
    let mut task = Task::new(2);
    task.barrier(0, 1);
    task.end(0);
    assert_eq!(task.pending(), [1], "the channel counts once");
    assert_eq!(task.barrier(1, 1), complete(1));
    let mut task = Task::new(2);
    task.barrier(0, 1);
    task.end(0);
    assert_eq!(task.cancel(1, 1), [abort(1, Cancelled)]);
    assert!(task.pending().is_empty());
}

#[test]
fn without_checkpoints_after_the_end_of_tasks_an_end_aborts_all() {
    let mut tracker = CheckpointBarrierTracker::new(2, false);
    for id in [1, 2, 3] {
        tracker.on_barrier(0, &barrier(id, AT_LEAST_ONCE), 0).unwrap();
    }
    tracker.on_cancellation(0, CheckpointId(1), 0).unwrap();
    let aborted = vec![abort(2, InputEndOfStream), abort(3, InputEndOfStream)];
    assert_eq!(tracker.on_end_of_partition(1, 0), Ok(aborted), "1 was aborted before");
}

#[test]
fn a_request_triggers_a_task_whose_producers_have_finished() {
    let mut task = Task::new(2);
    task.barrier(0, 1);
    assert_eq!(task.0.trigger(&barrier(2, AT_LEAST_ONCE), 0), complete(2));
    assert_eq!(task.0.trigger(&barrier(1, AT_LEAST_ONCE), 0), []);
    task.barrier(0, 3);
    assert_eq!(task.0.trigger(&barrier(3, AT_LEAST_ONCE), 0), complete(3));
    task.end(0);
    task.end(1);
    assert_eq!(task.0.trigger(&barrier(4, AT_LEAST_ONCE), 0), complete(4));
    assert_eq!(
        (task.0.num_open_channels(), task.0.latest_checkpoint()),
        (0, Some(CheckpointId(4)))
    );
}

#[test]
fn a_checkpoint_that_the_coordinator_gave_up_is_only_counted() {
    let mut task = Task::new(2);
    assert_eq!(task.barrier(0, 1), []);
    assert_eq!(task.barrier(0, 2), []);
    assert_eq!(task.0.abort(CheckpointId(2), Expired), [abort(2, Expired)]);
    assert_eq!(task.0.abort(CheckpointId(2), Expired), []);
    assert_eq!(task.pending(), [1, 2], "the older one goes on");
    assert_eq!(task.barrier(1, 1), complete(1));
    assert_eq!(task.barrier(1, 2), []);
    assert_eq!(task.0.abort(CheckpointId(4), Expired), [abort(4, Expired)]);
    assert_eq!([task.barrier(0, 4), task.barrier(1, 4)], [[], []], "it never begins");
    assert_eq!(task.0.abort(CheckpointId(3), Expired), [], "older than one that is over");
    assert_eq!([task.end(0), task.end(1)], [[], []]);
    assert_eq!(task.0.abort(CheckpointId(5), Expired), [abort(5, Expired)]);
    assert_eq!(task.pending(), [], "nothing can arrive any more");
}

#[test]
fn close_aborts_all_pending_checkpoints() {
    let mut task = Task::new(2);
    task.barrier(0, 1);
    task.barrier(1, 2);
    assert_eq!(task.0.close(), [abort(1, Closed), abort(2, Closed)]);
}

#[test]
fn a_channel_that_is_not_open_delivers_nothing() {
    let mut tracker = CheckpointBarrierTracker::<()>::new(1, true);
    tracker.on_end_of_partition(0, 0).unwrap();
    for channel in [0, 1] {
        let refused = Err(ChannelNotOpen { channel });
        assert_eq!(tracker.on_barrier(channel, &barrier(1, AT_LEAST_ONCE), 0), refused);
        assert_eq!(tracker.on_cancellation(channel, CheckpointId(1), 0), refused);
        assert_eq!(tracker.on_end_of_partition(channel, 0), refused);
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Barrier(usize, i64),
    Cancel(usize, i64),
    End(usize),
    Trigger(i64),
    Abort(i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let channel = 0usize..4;
    let event = prop_oneof![
        12 => (channel.clone(), 0i64..8).prop_map(|(channel, id)| Event::Barrier(channel, id)),
        2 => (channel.clone(), 0i64..8).prop_map(|(channel, id)| Event::Cancel(channel, id)),
        1 => channel.prop_map(Event::End),
        1 => (0i64..8).prop_map(Event::Trigger),
        1 => (0i64..8).prop_map(Event::Abort),
    ];
    // The ids drift upwards, so that late and early ones are close to the newest.
    prop::collection::vec(event, 0..200).prop_map(|mut events| {
        for (at, event) in events.iter_mut().enumerate() {
            if let Event::Barrier(_, id)
            | Event::Cancel(_, id)
            | Event::Trigger(id)
            | Event::Abort(id) = event
            {
                *id += at as i64 / 8;
            }
        }
        events
    })
}

/// All that was ever seen of each checkpoint, searched anew at each event.
#[derive(Debug, Default)]
struct Naive {
    channels: usize,
    events: Vec<Event>,
    /// Checkpoints that were triggered, or dropped for another reason.
    over: BTreeSet<i64>,
    aborted: BTreeSet<i64>,
}

impl Naive {
    /// Returns true if the channel ended before this event.
    fn had_ended(&self, channel: usize, at: usize) -> bool {
        self.events[..at]
            .iter()
            .any(|event| matches!(event, Event::End(other) if *other == channel))
    }

    fn id(event: &Event) -> Option<i64> {
        match *event {
            Event::Barrier(_, id)
            | Event::Cancel(_, id)
            | Event::Trigger(id)
            | Event::Abort(id) => Some(id),
            Event::End(_) => None,
        }
    }

    /// Returns true if this event is the first of a checkpoint that none before it was newer than.
    fn begins(&self, at: usize) -> bool {
        let id = Self::id(&self.events[at]);
        id.is_some() && self.events[..at].iter().all(|before| Self::id(before) < id)
    }

    /// Checkpoints that wait for barriers, ascending.
    fn pending(&self) -> Vec<i64> {
        let begins = (0..self.events.len()).filter(|at| self.begins(*at));
        let ids = begins.filter_map(|at| Self::id(&self.events[at]));
        ids.filter(|id| !self.over.contains(id)).collect()
    }

    /// Returns true if each channel that was open at the beginning has been heard from.
    fn is_complete(&self, id: i64) -> bool {
        let begin =
            (0..self.events.len()).find(|at| Self::id(&self.events[*at]) == Some(id)).unwrap();
        let since = &self.events[begin..];
        (0..self.channels).filter(|channel| !self.had_ended(*channel, begin)).all(|channel| {
            since.iter().any(|event| match *event {
                Event::Barrier(by, of) | Event::Cancel(by, of) => by == channel && of == id,
                Event::End(by) => by == channel,
                Event::Trigger(of) => of == id,
                Event::Abort(_) => false,
            })
        })
    }

    fn apply(&mut self, event: Event) -> Vec<Effect> {
        self.events.push(event);
        let mut effects = Vec::new();
        if let Event::Cancel(_, cancelled) = event {
            let pending = self.pending();
            for id in pending.iter().copied().filter(|id| *id <= cancelled) {
                if self.aborted.insert(id) {
                    effects.push(abort(id, Cancelled));
                }
                if id < cancelled {
                    self.over.insert(id);
                }
            }
        }
        if let Event::Abort(id) = event
            && self.pending().contains(&id)
            && self.aborted.insert(id)
        {
            effects.push(abort(id, Expired));
        }
        let complete = self.pending().into_iter().rev().find(|id| self.is_complete(*id));
        if let Some(newest) = complete {
            self.over.extend(self.pending().into_iter().filter(|id| *id <= newest));
            if !self.aborted.contains(&newest) {
                effects.extend(self::complete(newest));
            }
        }
        while self.pending().len() > MAX_CHECKPOINTS_TO_TRACK {
            self.over.insert(self.pending()[0]);
        }
        effects
    }
}

proptest! {
    #[test]
    fn behaves_as_a_search_in_all_events(channels in 1usize..=4, events in events()) {
        let mut tracker = CheckpointBarrierTracker::new(channels, true);
        let mut naive = Naive { channels, ..Naive::default() };
        let mut triggered = None;
        for event in events {
            let at = naive.events.len();
            if let Event::Barrier(by, _) | Event::Cancel(by, _) | Event::End(by) = event
                && (by >= channels || naive.had_ended(by, at))
            {
                continue;
            }
            let effects = match event {
                Event::Barrier(by, id) => tracker.on_barrier(by, &barrier(id, AT_LEAST_ONCE), 0),
                Event::Cancel(by, id) => tracker.on_cancellation(by, CheckpointId(id), 0),
                Event::End(by) => tracker.on_end_of_partition(by, 0),
                Event::Trigger(id) => Ok(tracker.trigger(&barrier(id, AT_LEAST_ONCE), 0)),
                Event::Abort(id) => Ok(tracker.abort(CheckpointId(id), Expired)),
            };
            let effects = effects.unwrap();
            prop_assert_eq!(&effects, &naive.apply(event));
            let pending: Vec<_> = tracker.pending_checkpoints().map(|id| id.0).collect();
            prop_assert_eq!(pending, naive.pending());
            for effect in effects {
                if let CheckpointEffect::TriggerCheckpoint(barrier) = effect {
                    prop_assert!(Some(barrier.id) > triggered, "ids of triggers increase");
                    triggered = Some(barrier.id);
                }
            }
        }
    }
}
