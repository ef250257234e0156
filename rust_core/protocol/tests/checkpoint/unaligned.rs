//! Barriers that overtake records.

use crate::task::effects::{abort, block, channel_state, received, resume, start, stop, trigger};
use crate::task::{ALIGNED, Cancelled, Closed, Effect, Subsumed, TIMEOUTABLE, Task, UNALIGNED};

#[test]
fn the_first_barrier_triggers_and_the_last_one_ends_the_channel_state() {
    let mut task = Task::new(3);
    task.now = 2;
    assert_eq!(
        task.barrier(1, 1, UNALIGNED),
        [channel_state(1), start(0, 1), start(1, 1), start(2, 1), trigger(1, UNALIGNED)]
    );
    assert_eq!(task.barrier(0, 1, UNALIGNED), []);
    task.now = 5;
    let done = [stop(0, 1), stop(1, 1), stop(2, 1), received(1, 3, 2)];
    assert_eq!(task.barrier(2, 1, UNALIGNED), done);
    assert!(task.persisting.is_empty() && task.stopped.is_empty());
    assert_eq!(task.barrier(2, 1, UNALIGNED), [], "an obsolete one blocks nothing");
}

#[test]
fn one_channel_starts_and_stops_at_once() {
    let mut task = Task::new(1);
    let all = [channel_state(1), start(0, 1), trigger(1, UNALIGNED), stop(0, 1), received(1, 0, 0)];
    assert_eq!(task.barrier(0, 1, UNALIGNED), all);
}

#[test]
fn a_newer_barrier_a_cancel_marker_and_close_stop_the_channel_state() {
    let mut task = Task::new(2);
    task.barrier(0, 1, UNALIGNED);
    let effects = task.barrier(1, 2, UNALIGNED);
    assert_eq!(effects[..3], [stop(0, 1), stop(1, 1), abort(1, Subsumed)]);
    assert_eq!(effects[3..6], [channel_state(2), start(0, 2), start(1, 2)]);
    assert_eq!(task.cancel(0, 2), [stop(0, 2), stop(1, 2), abort(2, Cancelled)]);
    task.barrier(0, 3, UNALIGNED);
    assert_eq!(task.cancel(0, 5), [stop(0, 5), stop(1, 5), abort(5, Cancelled)]);
    task.barrier(0, 6, UNALIGNED);
    let close = task.handler.clone().close();
    assert_eq!(task.carry_out(close), [stop(0, 6), stop(1, 6), abort(6, Closed)]);
    assert!(task.persisting.is_empty());
    assert_eq!(task.log.aborts.len(), 4, "checkpoint 3 was dropped silently");
}

#[test]
fn an_aligned_barrier_of_an_unaligned_checkpoint_has_its_channel_resumed_at_the_end() {
    let mut task = Task::new(3);
    task.barrier(0, 1, UNALIGNED);
    assert_eq!(task.barrier(1, 1, ALIGNED), [block(1)]);
    let effects = task.barrier(2, 1, UNALIGNED);
    assert_eq!(effects[3..], [resume(1), received(1, 0, 0)]);
    assert_eq!(task.log.triggers, [(1, UNALIGNED)]);
}

#[test]
fn spec_10_11_an_overtaking_barrier_of_the_next_checkpoint_comes_before_the_cancel_marker() {
    let mut task = Task::new(2);
    task.barrier(0, 1, UNALIGNED);
    task.barrier(1, 2, UNALIGNED);
    assert_eq!(task.cancel(1, 1), []);
    task.barrier(0, 2, UNALIGNED);
    assert_eq!(task.log.triggers, [(1, UNALIGNED), (2, UNALIGNED)]);
    assert_eq!((task.log.aborts, task.log.completed.len()), (vec![(1, Subsumed)], 1));
}

#[test]
fn spec_section_10_3_a_checkpoint_that_was_only_announced_is_cancelled_too() {
    // Flink ignores this marker, as no channel is counted yet. The announced barrier would then wait
    // for one that never comes, until the next checkpoint.
    let mut task = Task::new(2);
    task.announce(0, 1, TIMEOUTABLE);
    let effects = task.cancel(1, 1);
    assert_eq!(effects, [abort(1, Cancelled), Effect::CancelTimer]);
    assert_eq!(task.barrier(0, 1, TIMEOUTABLE), [resume(0)]);
    assert!(task.stopped.is_empty());
}
