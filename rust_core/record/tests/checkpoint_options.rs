//! The rules of checkpoint options (spec 7.2), checked for every combination.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use AlignmentType::{Aligned, AtLeastOnce, ForcedAligned, Unaligned};
use headgate_record::event::{
    AlignmentType, CheckpointBarrier, CheckpointOptions, Event, EventError, SavepointFormat,
    SnapshotType,
};

const NEVER: i64 = CheckpointOptions::NO_TIMEOUT;
const CHECKPOINTS: [SnapshotType; 2] = [SnapshotType::Checkpoint, SnapshotType::FullCheckpoint];
const SAVEPOINTS: [SnapshotType; 3] = [
    SnapshotType::Savepoint(SavepointFormat::Canonical),
    SnapshotType::SavepointSuspend(SavepointFormat::Native),
    SnapshotType::SavepointTerminate(SavepointFormat::Native),
];

fn options(
    snapshot_type: SnapshotType,
    alignment: AlignmentType,
    aligned_timeout: i64,
) -> CheckpointOptions {
    CheckpointOptions { snapshot_type, location: None, alignment, aligned_timeout }
}

fn all() -> Vec<CheckpointOptions> {
    let mut all = Vec::new();
    for snapshot_type in CHECKPOINTS.into_iter().chain(SAVEPOINTS) {
        for alignment in [Aligned, AtLeastOnce, ForcedAligned, Unaligned] {
            for timeout in [-1, 0, 1, 30_000, NEVER - 1, NEVER] {
                all.push(options(snapshot_type, alignment, timeout));
            }
        }
    }
    all
}

#[test]
fn contradicting_options_are_neither_written_nor_read() {
    let mut refused = 0;
    for options in all() {
        let savepoint = options.snapshot_type.is_savepoint();
        let unaligned = options.alignment == Unaligned;
        let contradicts = unaligned && (savepoint || options.aligned_timeout != NEVER);
        let barrier = CheckpointBarrier { id: 1, timestamp: 2, options: options.clone() };
        let event = Event::CheckpointBarrier(barrier);
        match event.encode() {
            Ok(bytes) => {
                assert!(!contradicts, "{event:?}");
                assert_eq!(Event::decode(&bytes), Ok(event));
            }
            Err(error) => {
                assert!(contradicts && matches!(error, EventError::Contradiction(_)), "{event:?}");
                let aligned = CheckpointOptions { alignment: Aligned, ..options };
                let barrier = CheckpointBarrier { id: 1, timestamp: 2, options: aligned };
                let mut bytes = Event::CheckpointBarrier(barrier).encode().unwrap().to_vec();
                let alignment = bytes.len() - 9;
                assert_eq!(std::mem::replace(&mut bytes[alignment], 2), 1);
                assert_eq!(Event::decode(&bytes), Err(error));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 3 * 6 + 2 * 5);
}

#[test]
fn only_an_aligned_checkpoint_with_a_timeout_is_timeoutable() {
    for options in all() {
        let can_come = [1, 30_000, NEVER - 1].contains(&options.aligned_timeout);
        let timeoutable = options.alignment == Aligned && can_come;
        assert_eq!(options.is_timeoutable(), timeoutable);
        let channel_state = timeoutable || options.alignment == Unaligned;
        assert_eq!(options.needs_channel_state(), channel_state);
        let exactly_once = options.alignment != AtLeastOnce;
        let savepoint = options.snapshot_type.is_savepoint();
        let alignment = exactly_once && (savepoint || options.alignment != Unaligned);
        assert_eq!(options.needs_alignment(), alignment);
    }
}

#[test]
fn forced_alignment_is_reverted() {
    let mut forced = 0;
    for given in all().into_iter().filter(|options| options.alignment != ForcedAligned) {
        let unsupported = given.clone().with_unaligned_unsupported();
        if given.needs_channel_state() {
            assert_eq!(unsupported.alignment, ForcedAligned);
            assert!(!unsupported.needs_channel_state() && unsupported.needs_alignment());
            forced += 1;
        } else {
            assert_eq!(unsupported, given);
        }
        let legal = given.alignment != Unaligned || given.aligned_timeout == NEVER;
        if legal {
            assert_eq!(unsupported.with_unaligned_supported(), given);
        }
    }
    assert!(forced > 20);
}

#[test]
fn the_settings_of_a_job_choose_the_alignment() {
    let of = |snapshot, exactly_once, enabled, timeout| {
        let made = CheckpointOptions::for_config(snapshot, None, exactly_once, enabled, timeout);
        (made.alignment, made.aligned_timeout)
    };
    for snapshot in CHECKPOINTS {
        assert_eq!(of(snapshot, false, true, 10), (AtLeastOnce, NEVER));
        assert_eq!(of(snapshot, true, false, 10), (Aligned, NEVER));
        assert_eq!(of(snapshot, true, true, 0), (Unaligned, NEVER));
        assert_eq!(of(snapshot, true, true, 10), (Aligned, 10));
    }
    for snapshot in SAVEPOINTS {
        assert_eq!(of(snapshot, false, true, 10), (AtLeastOnce, NEVER));
        for (enabled, timeout) in [(false, 0), (true, 0), (true, 10)] {
            assert_eq!(of(snapshot, true, enabled, timeout), (Aligned, NEVER));
        }
    }
}
