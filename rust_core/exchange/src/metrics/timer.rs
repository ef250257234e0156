//! The time of a task, by the machine's clock, which is read only where somebody waits or looks.

use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use super::COUNTS;
use super::time::{Activity, TaskTime, TaskTimes};
use crate::lock::lock;

/// Begins with its first use, and is zero before. Its lock is held for a sum, and no other under it.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    began: OnceLock<Instant>,
    /// ns at which it stopped; nothing is counted from then on.
    ended: OnceLock<u64>,
    time: Mutex<TaskTime>,
}

/// Somebody who waits, until it is dropped.
pub(crate) struct Wait<'a> {
    timer: &'a Timer,
    activity: Activity,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.timer.leave(self.activity);
    }
}

impl Timer {
    /// Counts from now on, unless it does already.
    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Counts no more.
    pub(crate) fn end(&self) {
        if self.began.get().is_some() {
            let now = self.now();
            self.ended.get_or_init(|| now);
        }
    }

    /// Counts as waiting until what it returns is dropped.
    pub(crate) fn wait(&self, activity: Activity) -> Wait<'_> {
        self.enter(activity);
        Wait { timer: self, activity }
    }

    pub(super) fn enter(&self, activity: Activity) {
        if COUNTS {
            let mut time = lock(&self.time);
            time.enter(activity, self.now());
        }
    }

    pub(super) fn leave(&self, activity: Activity) {
        if COUNTS {
            let mut time = lock(&self.time);
            time.leave(activity, self.now());
        }
    }

    /// ns of soft and hard back-pressure, a wait that still lasts included.
    pub(crate) fn back_pressured_ns(&self) -> u64 {
        let mut time = lock(&self.time);
        let now = self.now();
        let activities = [Activity::SoftBackPressured, Activity::HardBackPressured];
        activities.map(|activity| time.total(activity, now)).iter().sum()
    }

    /// Everything so far, a wait that still lasts included.
    pub(crate) fn times(&self) -> TaskTimes {
        if self.began.get().is_none() {
            return TaskTimes::default();
        }
        let mut time = lock(&self.time);
        time.times(self.now())
    }

    fn now(&self) -> u64 {
        let began = self.began.get_or_init(Instant::now);
        let now = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ended.get().map_or(now, |ended| now.min(*ended))
    }
}
