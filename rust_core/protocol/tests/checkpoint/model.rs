//! Random events in any order, compared with rules that search all events so far.

use std::collections::{BTreeMap, BTreeSet};

use headgate_protocol::{Alignment, AlignmentMetrics, CheckpointBarrierHandler};
use proptest::prelude::*;

use crate::task::{
    ALIGNED, Cancelled, Expired, InputEndOfStream, Log, Subsumed, TIMEOUT, TIMEOUTABLE, Task,
    UNALIGNED,
};

/// Milliseconds between the triggers of two checkpoints, about as many as pass with their events.
const INTERVAL: i64 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Announce(usize, i64),
    /// The flag is true for a barrier whose timeout passed in the task before.
    Barrier(usize, i64, bool),
    Cancel(usize, i64),
    End(usize),
    Trigger(i64),
    Abort(i64),
    /// The clock advances, and the timer fires if it is due.
    Advance(i64),
    /// The clock advances, and the timer is late.
    Late(i64),
}

use Event::{Abort, Advance, Announce, Barrier, Cancel, End, Late, Trigger};

/// Half of the checkpoints have a timeout.
fn alignment(id: i64) -> Alignment {
    [ALIGNED, TIMEOUTABLE, UNALIGNED, TIMEOUTABLE][(id % 4) as usize]
}

fn alignment_of(id: i64, timed_out: bool) -> Alignment {
    if timed_out && alignment(id) == TIMEOUTABLE { UNALIGNED } else { alignment(id) }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let channel = 0usize..4;
    let id = 0i64..4;
    let of = (channel.clone(), id.clone());
    let event = prop_oneof![
        20 => (of.clone(), prop::bool::weighted(0.1)).prop_map(|((by, id), timed_out)| Barrier(by, id, timed_out)),
        6 => of.clone().prop_map(|(by, id)| Announce(by, id)),
        2 => of.prop_map(|(by, id)| Cancel(by, id)),
        1 => channel.prop_map(End),
        1 => id.clone().prop_map(Trigger),
        1 => id.prop_map(Abort),
        4 => (0i64..9).prop_map(Advance),
        4 => (0i64..9).prop_map(Late),
    ];
    // The ids drift upwards, so that late and early ones are close to the newest.
    prop::collection::vec(event, 0..150).prop_map(|mut events| {
        for (at, event) in events.iter_mut().enumerate() {
            if let Announce(_, id) | Barrier(_, id, _) | Cancel(_, id) | Trigger(id) | Abort(id) =
                event
            {
                *id += at as i64 / 6;
            }
        }
        events
    })
}

/// All events with their times, which are searched anew for each question.
struct Naive {
    channels: usize,
    checkpoints_after_finish: bool,
    events: Vec<(Event, i64)>,
    /// Checkpoints that were completed or aborted, or that a newer one replaced.
    over: BTreeSet<i64>,
    log: Log,
}

impl Naive {
    /// The checkpoint that an event tells the task of.
    fn tells(event: Event) -> Option<i64> {
        match event {
            Abort(id) | Announce(_, id) | Barrier(_, id, _) | Cancel(_, id) | Trigger(id) => {
                Some(id)
            }
            Advance(_) | End(_) | Late(_) => None,
        }
    }

    fn latest(&self) -> Option<i64> {
        self.events.iter().filter_map(|(event, _)| Self::tells(*event)).max()
    }

    /// The newest checkpoint, unless it is over.
    fn pending(&self) -> Option<i64> {
        self.latest().filter(|id| !self.over.contains(id))
    }

    fn had_ended(&self, channel: usize, at: usize) -> bool {
        self.events[..at].iter().any(|(event, _)| *event == End(channel))
    }

    fn open(&self, at: usize) -> Vec<usize> {
        (0..self.channels).filter(|channel| !self.had_ended(*channel, at)).collect()
    }

    fn begin(&self, id: i64) -> usize {
        self.events.iter().position(|(event, _)| Self::tells(*event) == Some(id)).unwrap()
    }

    /// Returns true if the event delivers the barrier of this channel, or stands for it.
    fn counts(event: Event, channel: usize, id: i64) -> bool {
        match event {
            Barrier(by, of, _) => (by, of) == (channel, id),
            End(by) => by == channel,
            Trigger(of) => of == id,
            _ => false,
        }
    }

    /// Channels that were open when the checkpoint began and are not counted by the events before.
    fn missing(&self, id: i64, before: usize) -> Vec<usize> {
        let begin = self.begin(id);
        let mut missing = self.open(begin);
        missing.retain(|channel| {
            !self.events[begin..before].iter().any(|(event, _)| Self::counts(*event, *channel, id))
        });
        missing
    }

    fn deadline(id: i64) -> Option<i64> {
        (alignment(id) == TIMEOUTABLE).then_some(id * INTERVAL + TIMEOUT as i64)
    }

    /// Returns true if one of the events before ended the alignment of the checkpoint.
    fn gave_up_alignment(&self, id: i64, before: usize) -> bool {
        let begin = self.begin(id);
        let deadline = Self::deadline(id);
        (begin..before).any(|at| {
            let (event, now) = self.events[at];
            let is_late = deadline.is_some_and(|deadline| now > deadline);
            match event {
                Barrier(_, of, timed_out) if of == id => {
                    alignment_of(id, timed_out) == UNALIGNED
                        || is_late && !self.missing(id, at + 1).is_empty()
                }
                Announce(by, of) if of == id => is_late && self.missing(id, at).contains(&by),
                Trigger(of) => of == id && alignment(id) == UNALIGNED,
                Advance(_) => deadline.is_some_and(|deadline| now >= deadline),
                _ => false,
            }
        })
    }

    /// Returns true if the task took its snapshot without waiting for all barriers.
    fn is_unaligned(&self, id: i64, before: usize) -> bool {
        let has_barrier = self.events[self.begin(id)..before]
            .iter()
            .any(|(event, _)| matches!(event, Barrier(_, of, _) | Trigger(of) if *of == id));
        self.gave_up_alignment(id, before) && has_barrier
    }

    fn apply(&mut self, event: Event, now: i64) {
        let before = self.pending();
        let latest = self.latest();
        let at = self.events.len();
        self.events.push((event, now));
        let told = Self::tells(event).filter(|id| Some(*id) >= latest && !self.over.contains(id));
        if let (Some(pending), Some(newer)) = (before, told)
            && newer > pending
        {
            self.over.insert(pending);
            if !matches!(event, Abort(_) | Cancel(..)) {
                self.log.aborts.push((pending, Subsumed));
            }
        }
        let aborts = match (event, before) {
            (Cancel(..), _) => told.map(|id| (id, Cancelled)),
            (Abort(_), _) => told.map(|id| (id, Expired)),
            (End(_), Some(id)) if !self.checkpoints_after_finish => Some((id, InputEndOfStream)),
            _ => None,
        };
        if let Some((id, reason)) = aborts {
            self.over.insert(id);
            self.log.aborts.push((id, reason));
        }
        if let Some(id) = self.pending() {
            self.go_on(id, at, event, now);
        }
    }

    fn go_on(&mut self, id: i64, at: usize, event: Event, now: i64) {
        let began_before = self.begin(id) < at;
        if self.gave_up_alignment(id, at + 1) {
            let unread = self.missing(id, at + 1);
            let announced: BTreeSet<_> = self.events[self.begin(id)..]
                .iter()
                .filter_map(|(event, _)| match event {
                    Announce(by, of) if *of == id && unread.contains(by) => Some(*by),
                    _ => None,
                })
                .collect();
            let converts = if !(began_before && self.gave_up_alignment(id, at)) {
                announced
            } else if let Announce(by, of) = event
                && of == id
                && unread.contains(&by)
            {
                BTreeSet::from([by])
            } else {
                BTreeSet::new()
            };
            // A request stands for all barriers: none is converted.
            if !matches!(event, Trigger(_)) {
                self.log.converted.extend(converts.iter().map(|by| (*by, id as u32)));
            }
        }
        let is_complete = self.missing(id, at + 1).is_empty();
        let was_unaligned = began_before && self.is_unaligned(id, at);
        let took = if was_unaligned {
            None
        } else if self.is_unaligned(id, at + 1) || is_complete && self.gave_up_alignment(id, at + 1)
        {
            Some(UNALIGNED)
        } else {
            is_complete.then_some(alignment(id))
        };
        if let Some(alignment) = took {
            self.log.triggers.push((id, alignment));
            if alignment != ALIGNED {
                self.log.channel_states.push(id);
            }
        }
        if is_complete {
            self.over.insert(id);
            let counted = |(event, _): &&(Event, i64)| {
                (0..self.channels).any(|channel| Self::counts(*event, channel, id))
            };
            let first = self.events[self.begin(id)..].iter().find(counted).unwrap().1;
            let metrics = AlignmentMetrics {
                alignment_duration: (now - first) as u64,
                start_delay: (first - id * INTERVAL).max(0) as u64,
            };
            self.log.completed.push((id, metrics));
        }
    }

    /// Channels that are blocked now.
    fn blocked(&self) -> BTreeMap<usize, i64> {
        let Some(id) = self.pending() else { return BTreeMap::new() };
        let blocks = |(event, _): &(Event, i64)| match event {
            Barrier(by, of, timed_out) if *of == id => {
                alignment_of(id, *timed_out).blocks_channel().then_some((*by, id))
            }
            _ => None,
        };
        self.events.iter().filter_map(blocks).collect()
    }

    fn persisting(&self) -> BTreeMap<usize, i64> {
        let len = self.events.len();
        match self.pending() {
            Some(id) if self.is_unaligned(id, len) => {
                self.open(len).into_iter().map(|channel| (channel, id)).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    fn timer(&self) -> Option<(i64, i64)> {
        let id = self.pending()?;
        let aligned = !self.gave_up_alignment(id, self.events.len());
        Some((id, Self::deadline(id)?)).filter(|_| aligned)
    }
}

proptest! {
    #[test]
    fn behaves_as_a_search_in_all_events(
        channels in 1usize..=4,
        checkpoints_after_finish in prop::bool::weighted(0.8),
        events in events(),
    ) {
        let handler = CheckpointBarrierHandler::new(channels, checkpoints_after_finish);
        let mut task = Task { interval: INTERVAL, ..Task::with_handler(handler) };
        let mut naive = Naive {
            channels,
            checkpoints_after_finish,
            events: Vec::new(),
            over: BTreeSet::new(),
            log: Log::default(),
        };
        for event in events {
            if let Announce(by, _) | Barrier(by, ..) | Cancel(by, _) | End(by) = event {
                let open = by < channels && !naive.had_ended(by, naive.events.len());
                if !open || task.stopped.contains_key(&by) {
                    continue;
                }
            }
            if let Announce(_, id) = event && alignment(id) != TIMEOUTABLE {
                continue;
            }
            match event {
                Announce(by, id) => task.announce(by, id, alignment(id)),
                Barrier(by, id, timed_out) => task.barrier(by, id, alignment_of(id, timed_out)),
                Cancel(by, id) => task.cancel(by, id),
                End(by) => task.end(by),
                Trigger(id) => task.trigger(id, alignment(id)),
                Abort(id) => task.abort(id),
                Advance(by) => task.advance(by),
                Late(by) => {
                    task.now += by;
                    Vec::new()
                }
            };
            naive.apply(event, task.now);
            prop_assert_eq!(&task.log, &naive.log);
            let blocked = naive.blocked();
            prop_assert_eq!(task.blocked(), blocked.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(&task.stopped, &blocked);
            prop_assert_eq!(&task.persisting, &naive.persisting());
            prop_assert_eq!(task.timer, naive.timer());
            prop_assert_eq!(task.handler.is_checkpoint_pending(), naive.pending().is_some());
            prop_assert_eq!(task.handler.latest_checkpoint().map(|id| id.0), naive.latest());
            prop_assert_eq!(task.handler.num_open_channels(), naive.open(naive.events.len()).len());
        }
        let ids: Vec<_> = task.log.triggers.iter().map(|(id, _)| *id).collect();
        prop_assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    }
}
