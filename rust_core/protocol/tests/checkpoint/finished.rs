//! Channels that end, and tasks whose producers have all finished.

use headgate_protocol::CheckpointBarrierHandler;

use crate::task::effects::{abort, block, channel_state, received, resume, start, stop, trigger};
use crate::task::{ALIGNED, Effect, InputEndOfStream, TIMEOUTABLE, Task, UNALIGNED, barrier};

#[test]
fn spec_10_05_a_checkpoint_needs_the_open_channels_only() {
    let mut task = Task::new(4);
    task.end(2);
    task.end(1);
    assert_eq!(task.barrier(3, 2, ALIGNED), [block(3)]);
    let complete = [block(0), trigger(2, ALIGNED), resume(0), resume(3), received(2, 0, 0)];
    assert_eq!(task.barrier(0, 2, ALIGNED), complete);
    task.end(0);
    let complete = [block(3), trigger(4, ALIGNED), resume(3), received(4, 0, 0)];
    assert_eq!(task.barrier(3, 4, ALIGNED), complete);
    assert_eq!(task.handler.num_open_channels(), 1);
}

#[test]
fn spec_10_05_a_barrier_and_the_end_of_its_channel_count_once() {
    let mut task = Task::new(3);
    task.barrier(0, 1, UNALIGNED);
    assert_eq!(task.end(0), []);
    assert_eq!(task.log.completed, [], "two channels are missing");
    task.barrier(1, 1, UNALIGNED);
    assert_eq!(task.end(2), [stop(1, 1), received(1, 0, 0)]);
}

#[test]
fn the_end_of_the_last_missing_channel_completes_an_alignment() {
    let mut task = Task::new(2);
    task.barrier(0, 1, TIMEOUTABLE);
    task.now = 3;
    let complete = [
        channel_state(1),
        trigger(1, TIMEOUTABLE),
        resume(0),
        received(1, 3, 0),
        Effect::CancelTimer,
    ];
    assert_eq!(task.end(1), complete);
}

#[test]
fn a_blocked_channel_that_ends_is_not_resumed() {
    let mut handler = CheckpointBarrierHandler::new(2, true);
    handler.on_barrier(0, &barrier(1, ALIGNED), 0).unwrap();
    handler.on_end_of_partition(0, 0).unwrap();
    let complete = [trigger(1, ALIGNED), received(1, 0, 0)];
    assert_eq!(handler.on_end_of_partition(1, 0), Ok(complete.to_vec()));
}

#[test]
fn the_end_of_all_channels_completes_a_checkpoint_whose_barrier_never_came() {
    let mut task = Task::new(2);
    task.announce(0, 1, TIMEOUTABLE);
    task.advance(10);
    task.end(0);
    let complete = [channel_state(1), trigger(1, UNALIGNED), received(1, 0, 10)];
    assert_eq!(task.end(1), complete);
}

#[test]
fn without_checkpoints_after_the_end_of_tasks_an_end_aborts() {
    let mut task = Task::with_handler(CheckpointBarrierHandler::new(3, false));
    assert_eq!(task.end(2), [], "nothing is pending");
    task.barrier(0, 1, ALIGNED);
    assert_eq!(task.end(1), [resume(0), abort(1, InputEndOfStream)]);
    task.barrier(0, 2, ALIGNED);
    assert_eq!(task.log.triggers, [(2, ALIGNED)], "the one open channel is enough");
}

#[test]
fn a_request_triggers_a_task_whose_producers_have_finished() {
    let mut task = Task::new(2);
    task.end(0);
    assert_eq!(task.trigger(1, ALIGNED), [trigger(1, ALIGNED), received(1, 0, 0)]);
    let unaligned =
        [channel_state(2), start(1, 2), trigger(2, UNALIGNED), stop(1, 2), received(2, 0, 0)];
    assert_eq!(task.trigger(2, UNALIGNED), unaligned);
    task.end(1);
    assert_eq!(task.trigger(3, ALIGNED), [trigger(3, ALIGNED), received(3, 0, 0)]);
    assert_eq!(task.trigger(3, ALIGNED), [], "once");
}

#[test]
fn a_request_completes_the_pending_checkpoint() {
    let mut task = Task::new(3);
    task.barrier(0, 1, TIMEOUTABLE);
    let complete = [
        channel_state(1),
        trigger(1, TIMEOUTABLE),
        resume(0),
        received(1, 0, 0),
        Effect::CancelTimer,
    ];
    assert_eq!(task.trigger(1, TIMEOUTABLE), complete);
    assert_eq!(task.barrier(1, 1, TIMEOUTABLE), [resume(1)]);
    task.announce(0, 2, TIMEOUTABLE);
    task.advance(20);
    task.trigger(2, TIMEOUTABLE);
    assert_eq!(task.log.triggers, [(1, TIMEOUTABLE), (2, UNALIGNED)]);
    assert!(task.persisting.is_empty());
}
