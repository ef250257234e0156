//! The time of a task by the system's clock, which is read only when a wait begins or ends, or when a
//! snapshot is taken.

use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use headgate_memory::lock;

use super::activity::{Activity, TaskTime, TaskTimes};
use super::passed::COUNTS;

/// Counts from its first use. No other lock is taken under its own.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    began: OnceLock<Instant>,
    /// The time in ns at which it stopped counting.
    ended: OnceLock<u64>,
    time: Mutex<TaskTime>,
}

/// A wait that is counted until this is dropped.
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
    /// Starts counting, unless it counts already.
    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// Stops counting.
    pub(crate) fn end(&self) {
        if self.began.get().is_some() {
            let now = self.now();
            self.ended.get_or_init(|| now);
        }
    }

    /// Counts a wait until the returned guard is dropped.
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

    /// Time in ns of soft and hard back-pressure, including a wait that lasts.
    pub(crate) fn back_pressured_ns(&self) -> u64 {
        let mut time = lock(&self.time);
        let now = self.now();
        let activities = [Activity::SoftBackPressured, Activity::HardBackPressured];
        activities.map(|activity| time.total(activity, now)).iter().sum()
    }

    /// All times so far, including a wait that lasts.
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
