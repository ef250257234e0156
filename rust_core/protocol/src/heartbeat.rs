//! Who has fallen silent, counted in rounds.
//!
//! The driver makes a round each [`HEARTBEAT_INTERVAL`]: it notes who was heard, sends a beat to
//! each target and ends the round. A target that was not heard in as many rounds as its timeout has
//! intervals is silent, and stays so. Rounds and not seconds are counted: a monitor that was itself
//! stopped, or got no processor, makes no rounds, and so takes nobody for silent in that time.
//!
//! Decision: ADR 0007.

use std::collections::BTreeMap;
use std::time::Duration;

/// Between two beats, and between two rounds.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Target {
    limit: u32,
    missed: u32,
    heard: bool,
}

impl Target {
    const fn is_silent(&self) -> bool {
        self.missed >= self.limit
    }
}

/// The targets of one process, by numbers that the driver chooses.
#[derive(Debug, Default)]
pub struct HeartbeatMonitor {
    targets: BTreeMap<u64, Target>,
    silent: usize,
}

impl HeartbeatMonitor {
    /// Watches a target from now on; its timeout is rounded up to whole intervals.
    pub fn monitor(&mut self, target: u64, timeout: Duration) {
        self.unmonitor(target);
        let intervals = timeout.as_nanos().div_ceil(HEARTBEAT_INTERVAL.as_nanos()).max(1);
        let limit = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.targets.insert(target, Target { limit, missed: 0, heard: false });
    }

    /// Watches it no longer.
    pub fn unmonitor(&mut self, target: u64) {
        if self.targets.remove(&target).is_some_and(|target| target.is_silent()) {
            self.silent -= 1;
        }
    }

    /// Whether this target is watched.
    #[must_use]
    pub fn is_monitored(&self, target: u64) -> bool {
        self.targets.contains_key(&target)
    }

    /// Notes that something came from a target in this round.
    pub fn heard(&mut self, target: u64) {
        if let Some(target) = self.targets.get_mut(&target) {
            target.heard = true;
        }
    }

    /// Ends a round. A beat of a target that is silent already comes too late.
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

    /// For how long a target has been silent, if it is taken for lost.
    #[must_use]
    pub fn silence(&self, target: u64) -> Option<Duration> {
        let target = self.targets.get(&target).filter(|target| target.is_silent())?;
        Some(HEARTBEAT_INTERVAL.saturating_mul(target.missed))
    }

    /// How many targets are taken for lost.
    #[must_use]
    pub const fn num_silent(&self) -> usize {
        self.silent
    }

    /// Whether there is anybody to watch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.targets.is_empty()
    }
}
