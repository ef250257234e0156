//! Detection of silent peers, counted in rounds.
//!
//! The driver makes a round each [`HEARTBEAT_INTERVAL`]: it records the targets it received something
//! from, sends a heartbeat to each target and ends the round. A target that missed as many rounds in a
//! row as its timeout has intervals is silent, and stays silent. The monitor counts rounds and not
//! seconds: a monitor that was stopped itself, or got no CPU time, makes no rounds, so it does not
//! mistake its own pause for silence.
//!
//! Decision: ADR 0007.

use std::collections::BTreeMap;
use std::time::Duration;

/// The time between two heartbeats, and between two rounds.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Target {
    /// Missed rounds in a row that count as silence.
    limit: u32,
    /// Rounds in a row without a heartbeat; never falls once it reached `limit`.
    missed: u32,
    /// True if something arrived in this round.
    heard: bool,
}

impl Target {
    const fn is_silent(&self) -> bool {
        self.missed >= self.limit
    }
}

/// The monitored targets of one process, by numbers that the driver chooses.
#[derive(Debug, Default)]
pub struct HeartbeatMonitor {
    targets: BTreeMap<u64, Target>,
    /// Number of silent targets.
    silent: usize,
}

impl HeartbeatMonitor {
    /// Starts monitoring a target. Its timeout is rounded up to whole intervals.
    pub fn monitor(&mut self, target: u64, timeout: Duration) {
        self.unmonitor(target);
        let intervals = timeout.as_nanos().div_ceil(HEARTBEAT_INTERVAL.as_nanos()).max(1);
        let limit = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.targets.insert(target, Target { limit, missed: 0, heard: false });
    }

    /// Stops monitoring a target.
    pub fn unmonitor(&mut self, target: u64) {
        if self.targets.remove(&target).is_some_and(|target| target.is_silent()) {
            self.silent -= 1;
        }
    }

    /// Returns true if the target is monitored.
    #[must_use]
    pub fn is_monitored(&self, target: u64) -> bool {
        self.targets.contains_key(&target)
    }

    /// Records that something arrived from a target in this round.
    pub fn heard(&mut self, target: u64) {
        if let Some(target) = self.targets.get_mut(&target) {
            target.heard = true;
        }
    }

    /// Ends a round. A heartbeat of a target that is silent already changes nothing.
    pub fn end_round(&mut self) {
        for target in self.targets.values_mut() {
            let heard = std::mem::take(&mut target.heard);
            if target.is_silent() {
                target.missed = target.missed.saturating_add(1);
            } else if heard {
                target.missed = 0;
            } else {
                target.missed += 1;
                self.silent += usize::from(target.is_silent());
            }
        }
    }

    /// Returns how long a target has been silent; `None` if it is not silent.
    #[must_use]
    pub fn silence(&self, target: u64) -> Option<Duration> {
        let target = self.targets.get(&target).filter(|target| target.is_silent())?;
        Some(HEARTBEAT_INTERVAL.saturating_mul(target.missed))
    }

    /// Number of silent targets.
    #[must_use]
    pub const fn num_silent(&self) -> usize {
        self.silent
    }

    /// Returns true if no target is monitored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.targets.is_empty()
    }
}
