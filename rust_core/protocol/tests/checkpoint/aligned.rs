//! Barriers that wait for each other.

use headgate_protocol::{
    ChannelNotOpen, CheckpointBarrier, CheckpointBarrierHandler, CheckpointEffect, CheckpointId,
    CheckpointNotStarted, CheckpointOptions,
};

use crate::task::effects::{abort, block, received, resume, trigger};
use crate::task::{ALIGNED, Cancelled, Closed, Expired, Subsumed, Task};

#[test]
fn spec_10_01_the_last_barrier_triggers_and_then_all_channels_are_resumed() {
    let mut task = Task::new(3);
    assert_eq!(task.barrier(1, 1, ALIGNED), [block(1)]);
    assert_eq!(task.blocked(), [1]);
    task.now = 4;
    assert_eq!(task.barrier(2, 1, ALIGNED), [block(2)]);
    assert_eq!(task.blocked(), [1, 2]);
    assert_eq!((task.log.triggers.len(), task.handler.alignment_duration(5)), (0, 5));
    task.now = 7;
    assert_eq!(
        task.barrier(0, 1, ALIGNED),
        [block(0), trigger(1, ALIGNED), resume(0), resume(1), resume(2), received(1, 7, 0)]
    );
    assert!(task.blocked.is_empty() && task.stopped.is_empty());
    assert_eq!(task.handler.alignment_duration(100), 7);
    // Checkpoint 2 has no data before it, and its barriers come in another order.
    for channel in [2, 0, 1] {
        task.barrier(channel, 2, ALIGNED);
    }
    assert_eq!(task.log.triggers, [(1, ALIGNED), (2, ALIGNED)]);
    assert!(task.stopped.is_empty() && task.log.aborts.is_empty());
}

#[test]
fn spec_10_02_a_cancel_marker_aborts_an_alignment() {
    let mut task = Task::new(3);
    for channel in 0..3 {
        task.barrier(channel, 1, ALIGNED);
        task.now += 10;
    }
    assert_eq!(task.handler.alignment_duration(50), 20);
    task.barrier(0, 2, ALIGNED);
    task.barrier(2, 2, ALIGNED);
    assert_eq!(task.cancel(1, 2), [resume(0), resume(2), abort(2, Cancelled)]);
    assert!(task.stopped.is_empty());
    assert_eq!(task.cancel(0, 2), [], "once");
    assert_eq!(task.barrier(1, 2, ALIGNED), [resume(1)], "a late barrier blocks nothing");
    assert_eq!(task.handler.alignment_duration(50), 0);
}

#[test]
fn spec_10_02_a_cancel_marker_ahead_of_all_barriers_keeps_its_checkpoint_from_starting() {
    let mut task = Task::new(3);
    assert_eq!(task.cancel(1, 4), [abort(4, Cancelled)]);
    task.now = 9;
    assert_eq!(task.barrier(2, 4, ALIGNED), [resume(2)]);
    assert_eq!(task.barrier(0, 4, ALIGNED), [resume(0)]);
    assert_eq!(task.handler.alignment_duration(9), 0);
    for channel in 0..3 {
        task.barrier(channel, 5, ALIGNED);
    }
    assert_eq!(task.cancel(1, 6), [abort(6, Cancelled)]);
    assert_eq!(task.cancel(2, 6), []);
    assert_eq!(task.barrier(0, 6, ALIGNED), [resume(0)]);
    assert_eq!(task.log.triggers, [(5, ALIGNED)]);
    assert_eq!(task.log.aborts, [(4, Cancelled), (6, Cancelled)]);
}

#[test]
fn a_cancel_marker_of_a_newer_checkpoint_drops_the_pending_one_silently() {
    let mut task = Task::new(2);
    task.barrier(0, 1, ALIGNED);
    assert_eq!(task.cancel(1, 3), [resume(0), abort(3, Cancelled)]);
    assert_eq!(task.cancel(1, 2), [], "a lower one is ignored");
    assert_eq!(task.handler.latest_checkpoint(), Some(CheckpointId(3)));
    assert!(!task.handler.is_checkpoint_pending());
    assert_eq!(task.barrier(1, 2, ALIGNED), [resume(1)]);
}

#[test]
fn spec_10_04_a_newer_barrier_subsumes_the_pending_checkpoint() {
    let mut task = Task::new(3);
    task.barrier(0, 1, ALIGNED);
    task.barrier(2, 1, ALIGNED);
    assert_eq!(task.barrier(1, 3, ALIGNED), [resume(0), resume(2), abort(1, Subsumed), block(1)]);
    task.barrier(0, 3, ALIGNED);
    assert_eq!(task.blocked(), [0, 1]);
    task.barrier(2, 3, ALIGNED);
    assert_eq!(task.log.triggers, [(3, ALIGNED)]);
    assert_eq!(task.log.aborts, [(1, Subsumed)]);
    assert!(task.stopped.is_empty());
}

#[test]
fn spec_10_08_an_obsolete_barrier_has_its_channel_resumed() {
    let mut task = Task::new(2);
    task.barrier(0, 10, ALIGNED);
    assert_eq!(task.barrier(1, 5, ALIGNED), [resume(1)], "a savepoint with a lower id");
    assert_eq!(task.handler.latest_checkpoint(), Some(CheckpointId(10)));
    assert_eq!(task.blocked(), [0]);
    task.barrier(1, 10, ALIGNED);
    assert_eq!(task.barrier(1, 10, ALIGNED), [resume(1)], "of a completed checkpoint");
    assert_eq!(task.log.triggers, [(10, ALIGNED)]);
}

#[test]
fn spec_10_11_a_cancel_marker_that_a_newer_barrier_overtook_is_ignored() {
    let mut task = Task::new(2);
    task.barrier(0, 1, ALIGNED);
    task.barrier(1, 2, ALIGNED);
    assert_eq!(task.log.aborts, [(1, Subsumed)]);
    assert_eq!(task.cancel(0, 1), []);
    task.barrier(0, 2, ALIGNED);
    assert_eq!(task.log.triggers, [(2, ALIGNED)]);
}

#[test]
fn one_channel_needs_no_alignment() {
    let mut task = Task::new(1);
    task.now = 30;
    let effects = [block(0), trigger(1, ALIGNED), resume(0), received(1, 0, 30)];
    assert_eq!(task.barrier(0, 1, ALIGNED), effects);
}

#[test]
fn clocks_that_disagree_give_no_negative_duration() {
    let mut task = Task::new(2);
    task.now = -5;
    task.barrier(0, 1, ALIGNED);
    task.now = -20;
    task.barrier(1, 1, ALIGNED);
    let (_, metrics) = task.log.completed[0];
    assert_eq!((metrics.alignment_duration, metrics.start_delay), (0, 0));
}

#[test]
fn close_aborts_the_pending_checkpoint() {
    let mut task = Task::new(2);
    task.barrier(1, 1, ALIGNED);
    assert_eq!(task.handler.close(), [resume(1), abort(1, Closed)]);
    assert_eq!(Task::new(2).handler.close(), []);
}

#[test]
fn the_driver_may_abort_the_pending_checkpoint() {
    let mut task = Task::new(2);
    task.barrier(1, 2, ALIGNED);
    assert_eq!(task.handler.abort(CheckpointId(1), Subsumed), []);
    let effects = task.handler.abort(CheckpointId(2), Subsumed);
    assert_eq!(task.carry_out(effects), [resume(1), abort(2, Subsumed)]);
    assert_eq!(task.handler.abort(CheckpointId(2), Subsumed), []);
    assert_eq!(task.barrier(0, 2, ALIGNED), [resume(0)]);
}

#[test]
fn a_checkpoint_that_is_given_up_before_its_first_barrier_never_begins() {
    let mut task = Task::new(2);
    assert_eq!(task.abort(3), [abort(3, Expired)]);
    assert_eq!(task.barrier(0, 3, ALIGNED), [resume(0)]);
    task.barrier(0, 4, ALIGNED);
    assert_eq!(task.abort(5), [resume(0), abort(5, Expired)]);
    assert!(!task.handler.is_checkpoint_pending());
}

#[test]
fn all_barriers_are_received_for_checkpoints_that_are_over() {
    let mut task = Task::new(2);
    let asked = |task: &Task, id| task.handler.all_barriers_received(CheckpointId(id));
    let not_started = CheckpointNotStarted { checkpoint: CheckpointId(1), latest: None };
    assert_eq!(asked(&task, 1), Err(not_started));
    task.barrier(0, 2, ALIGNED);
    assert_eq!((asked(&task, 1), asked(&task, 2)), (Ok(true), Ok(false)));
    let latest = Some(CheckpointId(2));
    let not_started = CheckpointNotStarted { checkpoint: CheckpointId(3), latest };
    assert_eq!(asked(&task, 3), Err(not_started));
    task.barrier(1, 2, ALIGNED);
    assert_eq!(asked(&task, 2), Ok(true));
    task.end(0);
    task.end(1);
    assert_eq!(asked(&task, 9), Ok(true), "no channel is open");
}

#[test]
fn a_channel_that_is_not_open_delivers_nothing() {
    let mut handler = CheckpointBarrierHandler::<()>::new(2, true);
    handler.on_end_of_partition(1, 0).unwrap();
    let before = handler.clone();
    let barrier = crate::task::barrier(1, ALIGNED);
    for channel in [1, 2] {
        let refused = Err(ChannelNotOpen { channel });
        assert_eq!(handler.on_barrier(channel, &barrier, 0), refused);
        let sequence = headgate_protocol::Sequence(0);
        assert_eq!(handler.on_announcement(channel, sequence, &barrier, 0), refused);
        assert_eq!(handler.on_cancellation(channel, CheckpointId(1)), refused);
        assert_eq!(handler.on_end_of_partition(channel, 0), refused);
    }
    assert_eq!(handler, before);
}

#[test]
fn the_description_of_the_snapshot_is_passed_on() {
    let mut handler = CheckpointBarrierHandler::new(2, true);
    let options = CheckpointOptions { alignment: ALIGNED, snapshot: "a savepoint" };
    let barrier = CheckpointBarrier { id: CheckpointId(1), timestamp: 3, options };
    handler.on_barrier(0, &barrier, 4).unwrap();
    let effects = handler.on_barrier(1, &barrier, 5).unwrap();
    assert!(effects.contains(&CheckpointEffect::TriggerCheckpoint(barrier)));
}
