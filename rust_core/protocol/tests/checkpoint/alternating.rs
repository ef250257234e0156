//! Barriers that wait for each other until a timeout, then overtake records.

use headgate_protocol::CheckpointId;

use crate::task::effects::{
    abort, arm, block, channel_state, convert, received, resume, start, stop, trigger,
};
use crate::task::{ALIGNED, Effect, Subsumed, TIMEOUTABLE, Task, UNALIGNED, barrier};

#[test]
fn spec_10_07_a_timeout_lets_announced_barriers_overtake_and_triggers_once_unaligned() {
    let mut task = Task::new(2);
    assert_eq!(task.announce(0, 1, TIMEOUTABLE), [arm(1, 10)]);
    // The clock is read with the next event: the timer has not fired yet.
    task.now = 20;
    assert_eq!(
        task.announce(1, 1, TIMEOUTABLE),
        [convert(0, 1), convert(1, 1), Effect::CancelTimer]
    );
    assert_eq!(
        task.barrier(0, 1, TIMEOUTABLE),
        [block(0), channel_state(1), start(0, 1), start(1, 1), trigger(1, UNALIGNED)]
    );
    assert_eq!(
        task.barrier(1, 1, TIMEOUTABLE),
        [block(1), stop(0, 1), stop(1, 1), resume(0), resume(1), received(1, 0, 20)]
    );
    assert_eq!(task.log.triggers, [(1, UNALIGNED)]);
}

#[test]
fn spec_10_07_a_timeout_that_does_not_pass_leaves_the_checkpoint_aligned() {
    let mut task = Task::new(2);
    task.announce(0, 1, TIMEOUTABLE);
    task.now = 10;
    task.announce(1, 1, TIMEOUTABLE);
    assert_eq!(task.barrier(0, 1, TIMEOUTABLE), [block(0)], "10 of 10 ms are no timeout");
    let effects = [
        block(1),
        channel_state(1),
        trigger(1, TIMEOUTABLE),
        resume(0),
        resume(1),
        received(1, 0, 10),
        Effect::CancelTimer,
    ];
    assert_eq!(task.barrier(1, 1, TIMEOUTABLE), effects);
    assert!(task.log.converted.is_empty());
}

#[test]
fn the_timer_starts_the_checkpoint_that_has_a_barrier() {
    let mut task = Task::new(3);
    task.announce(0, 1, TIMEOUTABLE);
    task.announce(1, 1, TIMEOUTABLE);
    task.barrier(0, 1, TIMEOUTABLE);
    let all = [
        convert(1, 1),
        channel_state(1),
        start(0, 1),
        start(1, 1),
        start(2, 1),
        trigger(1, UNALIGNED),
    ];
    assert_eq!(task.advance(10), all, "at the deadline, and without the barrier that was read");
    assert_eq!(task.blocked(), [0], "an aligned channel keeps its state");
    assert_eq!(task.announce(2, 1, TIMEOUTABLE), [convert(2, 1)]);
    task.barrier(2, 1, TIMEOUTABLE);
    task.barrier(1, 1, TIMEOUTABLE);
    assert!(task.stopped.is_empty() && task.persisting.is_empty());
    // The next checkpoint is aligned again.
    assert_eq!(task.barrier(0, 2, ALIGNED), [block(0)]);
}

#[test]
fn the_timer_waits_for_the_first_barrier() {
    let mut task = Task::new(2);
    task.announce(0, 1, TIMEOUTABLE);
    assert_eq!(task.advance(10), [convert(0, 1)]);
    assert_eq!(task.announce(1, 1, TIMEOUTABLE), [convert(1, 1)]);
    assert!(task.log.triggers.is_empty());
    task.barrier(1, 1, TIMEOUTABLE);
    assert_eq!(task.log.triggers, [(1, UNALIGNED)]);
}

#[test]
fn a_barrier_behind_the_deadline_starts_the_checkpoint_at_once() {
    let mut task = Task::new(2);
    task.now = 11;
    assert_eq!(
        task.barrier(0, 1, TIMEOUTABLE),
        [block(0), channel_state(1), start(0, 1), start(1, 1), trigger(1, UNALIGNED)],
        "a local channel announces nothing"
    );
    let mut task = Task::new(1);
    task.now = 11;
    let effects = task.barrier(0, 1, TIMEOUTABLE);
    assert!(effects.contains(&trigger(1, TIMEOUTABLE)), "complete, so no data is in flight");
}

#[test]
fn a_timer_of_another_checkpoint_is_ignored() {
    let mut task = Task::new(2);
    task.announce(0, 1, TIMEOUTABLE);
    assert_eq!(
        task.announce(0, 2, TIMEOUTABLE),
        [abort(1, Subsumed), Effect::CancelTimer, arm(2, 10)]
    );
    let before = task.clone();
    assert_eq!(task.handler.on_timer(CheckpointId(1), 50), []);
    assert_eq!(task, before);
    let cancelled = task.cancel(1, 2);
    assert_eq!(cancelled.last(), Some(&Effect::CancelTimer));
    assert_eq!(task.handler.on_timer(CheckpointId(2), 50), []);
    assert_eq!(task.announce(1, 2, TIMEOUTABLE), [], "an announcement of a cancelled checkpoint");
}

#[test]
fn spec_10_08_a_savepoint_with_a_lower_id_is_resumed_during_an_unaligned_checkpoint() {
    let mut task = Task::new(2);
    task.barrier(0, 10, UNALIGNED);
    assert_eq!(task.barrier(1, 5, ALIGNED), [resume(1)]);
    assert_eq!(task.handler.latest_checkpoint(), Some(CheckpointId(10)));
    task.barrier(1, 10, UNALIGNED);
    assert_eq!(task.log.completed.len(), 1);
}

#[test]
fn spec_10_10_an_unaligned_barrier_of_the_same_checkpoint_ends_the_alignment() {
    let mut task = Task::new(3);
    task.barrier(0, 1, TIMEOUTABLE);
    task.announce(2, 1, TIMEOUTABLE);
    assert_eq!(
        task.barrier(1, 1, UNALIGNED),
        [
            convert(2, 1),
            channel_state(1),
            start(0, 1),
            start(1, 1),
            start(2, 1),
            trigger(1, UNALIGNED),
            Effect::CancelTimer
        ]
    );
    task.barrier(2, 1, TIMEOUTABLE);
    assert!(task.stopped.is_empty() && task.persisting.is_empty());
    assert_eq!(task.log.triggers, [(1, UNALIGNED)]);
}

#[test]
fn spec_10_10_an_unaligned_barrier_that_is_the_last_one_has_data_in_flight_too() {
    let mut task = Task::new(2);
    task.barrier(0, 1, TIMEOUTABLE);
    assert_eq!(
        task.barrier(1, 1, UNALIGNED),
        [
            channel_state(1),
            start(0, 1),
            start(1, 1),
            trigger(1, UNALIGNED),
            stop(0, 1),
            stop(1, 1),
            resume(0),
            received(1, 0, 0),
            Effect::CancelTimer
        ]
    );
}

#[test]
fn a_deadline_beyond_all_times_never_passes() {
    let mut late = barrier(1, headgate_protocol::Alignment::Timeoutable { timeout: u64::MAX });
    late.timestamp = i64::MAX - 1;
    assert_eq!(late.deadline(), Some(i64::MAX));
    assert!(!late.is_timed_out(i64::MAX));
}
