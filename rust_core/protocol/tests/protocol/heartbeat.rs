//! The heartbeat monitor counts rounds and reads no clock.

use std::time::Duration;

use headgate_protocol::{HEARTBEAT_INTERVAL, HeartbeatMonitor};
use proptest::prelude::*;

const ROUNDS: u32 = 20;

fn monitor(targets: &[u64]) -> HeartbeatMonitor {
    let mut monitor = HeartbeatMonitor::default();
    for target in targets {
        monitor.monitor(*target, HEARTBEAT_INTERVAL * ROUNDS);
    }
    monitor
}

fn rounds(monitor: &mut HeartbeatMonitor, count: u32, heard: &[u64]) {
    for _ in 0..count {
        for target in heard {
            monitor.heard(*target);
        }
        monitor.end_round();
    }
}

#[test]
fn a_target_with_heartbeats_is_never_silent() {
    let mut monitor = monitor(&[1]);
    rounds(&mut monitor, 10_000, &[1]);
    assert_eq!(monitor.silence(1), None);
    assert_eq!(monitor.num_silent(), 0);
}

#[test]
fn a_target_without_heartbeats_is_silent_at_its_timeout_and_not_before() {
    let mut monitor = monitor(&[1, 2]);
    rounds(&mut monitor, ROUNDS - 1, &[2]);
    assert_eq!((monitor.silence(1), monitor.num_silent()), (None, 0));
    rounds(&mut monitor, 1, &[2]);
    assert_eq!(monitor.silence(1), Some(HEARTBEAT_INTERVAL * ROUNDS));
    assert_eq!((monitor.silence(2), monitor.num_silent()), (None, 1));
}

#[test]
fn a_heartbeat_in_the_last_round_restarts_the_timeout() {
    let mut monitor = monitor(&[1]);
    rounds(&mut monitor, ROUNDS - 1, &[]);
    rounds(&mut monitor, 1, &[1]);
    rounds(&mut monitor, ROUNDS - 1, &[]);
    assert_eq!(monitor.silence(1), None);
    rounds(&mut monitor, 1, &[]);
    assert!(monitor.silence(1).is_some());
}

#[test]
fn a_late_heartbeat_does_not_revive_a_silent_target() {
    let mut monitor = monitor(&[1]);
    rounds(&mut monitor, ROUNDS, &[]);
    rounds(&mut monitor, 3, &[1]);
    assert_eq!(monitor.silence(1), Some(HEARTBEAT_INTERVAL * (ROUNDS + 3)));
    assert_eq!(monitor.num_silent(), 1);
}

#[test]
fn a_target_that_is_not_monitored_is_not_counted() {
    let mut monitor = monitor(&[1, 2]);
    rounds(&mut monitor, ROUNDS, &[2]);
    monitor.unmonitor(1);
    monitor.unmonitor(1);
    assert_eq!((monitor.silence(1), monitor.num_silent()), (None, 0));
    assert!(!monitor.is_idle());
    monitor.unmonitor(2);
    assert!(monitor.is_idle());
    rounds(&mut monitor, ROUNDS, &[1, 2]);
    assert_eq!(monitor.num_silent(), 0);
}

#[test]
fn a_number_can_be_used_again() {
    let mut monitor = monitor(&[1]);
    rounds(&mut monitor, ROUNDS, &[]);
    monitor.monitor(1, HEARTBEAT_INTERVAL * ROUNDS);
    assert_eq!((monitor.silence(1), monitor.num_silent()), (None, 0));
}

#[test]
fn a_timeout_is_rounded_up() {
    let cases = [(0, 1), (1, 1), (500, 1), (501, 2), (2_000, 4), (2_100, 5)];
    for (milliseconds, rounds_of_grace) in cases {
        let mut monitor = HeartbeatMonitor::default();
        monitor.monitor(1, Duration::from_millis(milliseconds));
        rounds(&mut monitor, rounds_of_grace - 1, &[]);
        assert_eq!(monitor.silence(1), None, "{milliseconds} ms");
        rounds(&mut monitor, 1, &[]);
        assert!(monitor.silence(1).is_some(), "{milliseconds} ms");
    }
    let mut monitor = HeartbeatMonitor::default();
    monitor.monitor(1, Duration::MAX);
    rounds(&mut monitor, 1_000, &[]);
    assert_eq!(monitor.silence(1), None);
}

proptest! {
    /// Compares with the definition: silent for good after a gap of `limit` rounds.
    #[test]
    fn a_gap_as_long_as_the_limit_is_silence(
        limit in 1_u32..8,
        heard in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let mut monitor = HeartbeatMonitor::default();
        monitor.monitor(7, HEARTBEAT_INTERVAL * limit);
        let (mut gap, mut silent) = (0, false);
        for now in heard {
            if now {
                monitor.heard(7);
            }
            monitor.end_round();
            gap = if now { 0 } else { gap + 1 };
            silent |= gap >= limit;
            prop_assert_eq!(monitor.silence(7).is_some(), silent);
            prop_assert_eq!(monitor.num_silent(), usize::from(silent));
        }
    }
}
