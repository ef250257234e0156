//! The time of a task by activity, in total and per second. Without a clock: the caller passes the time,
//! in ns since the task began.

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Seconds over which a rate is taken, including the current one.
const WINDOW: usize = 5;

/// The activity of a task at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// No reader or writer waits.
    Busy,
    /// A reader waits for input, and no writer waits.
    Idle,
    /// A writer waits for its output before it begins a record.
    SoftBackPressured,
    /// A writer waits for a segment in the middle of a record.
    HardBackPressured,
}

use Activity::{Busy, HardBackPressured, Idle, SoftBackPressured};

/// One number per activity.
type Each = [u64; 4];

/// Time of each activity, in ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Time in no wait.
    pub busy: u64,
    /// Waiting for input while output is available.
    pub idle: u64,
    /// Waiting for output before a record begins.
    pub soft_back_pressured: u64,
    /// Waiting for a segment in the middle of a record.
    pub hard_back_pressured: u64,
}

impl Times {
    /// Soft and hard back-pressure.
    pub fn back_pressured(&self) -> u64 {
        self.soft_back_pressured + self.hard_back_pressured
    }
}

/// The times of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// Times since the task began.
    pub accumulated: Times,
    /// Mean times of the last five seconds, or of fewer if the task is younger. Their sum is 1000, or
    /// 0 before any time has passed.
    pub per_second: Times,
}

/// Adds up the time of one task.
///
/// If several threads wait at once, the moment counts once, for the wait furthest downstream. A wait
/// for output comes before one for input, as Flink's tasks check their output first.
#[derive(Debug, Default)]
pub(super) struct TaskTime {
    /// Number of current waits per activity.
    waiting: [u32; 4],
    /// The time up to which `totals` and `seconds` are complete.
    until: u64,
    totals: Each,
    /// The last seconds, each at its number modulo `WINDOW`.
    seconds: [Each; WINDOW],
}

impl TaskTime {
    fn activity(&self) -> Activity {
        let mut downstream_first = [HardBackPressured, SoftBackPressured, Idle].into_iter();
        downstream_first.find(|activity| self.waiting[*activity as usize] > 0).unwrap_or(Busy)
    }

    /// Begins a wait.
    pub(super) fn enter(&mut self, activity: Activity, now: u64) {
        self.advance(now);
        self.waiting[activity as usize] += 1;
    }

    /// Ends a wait.
    pub(super) fn leave(&mut self, activity: Activity, now: u64) {
        self.advance(now);
        self.waiting[activity as usize] -= 1;
    }

    /// Time in ns of an activity so far.
    pub(super) fn total(&mut self, activity: Activity, now: u64) -> u64 {
        self.advance(now);
        self.totals[activity as usize]
    }

    /// All times so far.
    pub(super) fn times(&mut self, now: u64) -> TaskTimes {
        self.advance(now);
        let of = |each: &Each, ms: &dyn Fn(u64) -> u64| Times {
            busy: ms(each[Busy as usize]),
            idle: ms(each[Idle as usize]),
            soft_back_pressured: ms(each[SoftBackPressured as usize]),
            hard_back_pressured: ms(each[HardBackPressured as usize]),
        };
        let mut window = Each::default();
        for second in &self.seconds {
            for (sum, part) in window.iter_mut().zip(second) {
                *sum += part;
            }
        }
        let length: u64 = window.iter().sum();
        let mut per_second = of(&window, &|ns| (ns * 1000).checked_div(length).unwrap_or(0));
        let waited = per_second.idle + per_second.back_pressured();
        // Busy gets what rounding cut off, so that the sum is 1000.
        per_second.busy = if length == 0 { 0 } else { 1000_u64.saturating_sub(waited) };
        TaskTimes { accumulated: of(&self.totals, &|ns| ns / MS), per_second }
    }

    /// Counts the time since the last call for the current activity.
    fn advance(&mut self, now: u64) {
        let (from, activity) = (self.until, self.activity() as usize);
        if now <= from {
            return;
        }
        self.until = now;
        self.totals[activity] += now - from;
        let (old, new) = (from / SECOND, now / SECOND);
        for number in (old + 1).max(new.saturating_sub(WINDOW as u64 - 1))..=new {
            *self.second(number) = Each::default();
        }
        let first = old.max(new.saturating_sub(WINDOW as u64 - 1));
        for number in first..=new {
            let (begin, end) = (number * SECOND, (number + 1) * SECOND);
            self.second(number)[activity] += end.min(now) - begin.max(from);
        }
    }

    fn second(&mut self, number: u64) -> &mut Each {
        let at = usize::try_from(number % WINDOW as u64).expect("less than the window");
        &mut self.seconds[at]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(busy: u64, idle: u64, soft: u64, hard: u64) -> Times {
        Times { busy, idle, soft_back_pressured: soft, hard_back_pressured: hard }
    }

    #[test]
    fn spec_12_07_a_wait_for_a_segment_is_hard_back_pressure_and_not_idle() {
        let mut time = TaskTime::default();
        time.enter(HardBackPressured, 300 * MS);
        time.leave(HardBackPressured, 500 * MS);
        let times = time.times(1000 * MS);
        assert_eq!(times.accumulated, ms(800, 0, 0, 200));
        assert_eq!(times.per_second, ms(800, 0, 0, 200));
    }

    #[test]
    fn a_wait_is_counted_while_it_lasts() {
        let mut time = TaskTime::default();
        time.enter(Idle, 0);
        assert_eq!(time.times(250 * MS).accumulated, ms(0, 250, 0, 0));
        assert_eq!(time.times(900 * MS).per_second, ms(0, 1000, 0, 0));
        time.leave(Idle, 1000 * MS);
        assert_eq!(time.times(2000 * MS).per_second, ms(500, 500, 0, 0));
    }

    #[test]
    fn of_several_waits_the_one_furthest_downstream_counts() {
        let mut time = TaskTime::default();
        time.enter(Idle, 0);
        time.enter(SoftBackPressured, 100 * MS);
        time.enter(Idle, 200 * MS);
        time.leave(SoftBackPressured, 300 * MS);
        time.leave(Idle, 400 * MS);
        time.leave(Idle, 600 * MS);
        assert_eq!(time.times(1000 * MS).accumulated, ms(400, 400, 200, 0));
    }

    #[test]
    fn a_rate_forgets_what_was_more_than_five_seconds_ago() {
        let mut time = TaskTime::default();
        time.enter(SoftBackPressured, 0);
        time.leave(SoftBackPressured, 3000 * MS);
        assert_eq!(time.times(4000 * MS).per_second, ms(250, 0, 750, 0));
        // Seconds 3 to 7, of which the last is half over.
        assert_eq!(time.times(7500 * MS).per_second, ms(1000, 0, 0, 0));
        time.enter(Idle, 7500 * MS);
        // All kept seconds lie within one long wait.
        assert_eq!(time.times(100_000 * MS).per_second, ms(0, 1000, 0, 0));
        assert_eq!(time.times(100_000 * MS).accumulated, ms(4500, 92_500, 3000, 0));
    }

    #[test]
    fn before_any_time_has_passed_all_rates_are_zero() {
        assert_eq!(TaskTime::default().times(0), TaskTimes::default());
    }

    proptest! {
        /// Compares steps of (activity whose wait begins or ends, ns until then) with a plain sum of pieces.
        #[test]
        fn spec_section_12_2_each_second_is_busy_idle_and_back_pressured(
            steps in prop::collection::vec((0_usize..4, 0_u64..2 * SECOND), 1..40),
        ) {
            let kinds = [Busy, Idle, SoftBackPressured, HardBackPressured];
            let (mut time, mut now, mut waits) = (TaskTime::default(), 0, [false; 4]);
            let mut pieces = Vec::new();
            for (kind, after) in steps {
                let doing = (1..4).rev().find(|kind| waits[*kind]).unwrap_or(0);
                pieces.push((doing, now, now + after));
                now += after;
                if kind > 0 {
                    waits[kind] = !waits[kind];
                    if waits[kind] { time.enter(kinds[kind], now) } else { time.leave(kinds[kind], now) }
                }
            }
            let from = (now / SECOND).saturating_sub(WINDOW as u64 - 1) * SECOND;
            let (mut all, mut last) = (Each::default(), Each::default());
            for (doing, begin, end) in pieces {
                all[doing] += end - begin;
                last[doing] += end.saturating_sub(begin.max(from));
            }
            let TaskTimes { accumulated, per_second } = time.times(now);
            prop_assert_eq!(accumulated, ms(all[0] / MS, all[1] / MS, all[2] / MS, all[3] / MS));
            let (length, sum) = (now - from, per_second.busy + per_second.idle + per_second.back_pressured());
            prop_assert_eq!(sum, if length == 0 { 0 } else { 1000 });
            let rate = |kind: usize| (last[kind] * 1000).checked_div(length).unwrap_or(0);
            prop_assert_eq!(per_second.idle, rate(1));
            prop_assert_eq!(per_second.soft_back_pressured, rate(2));
            prop_assert_eq!(per_second.hard_back_pressured, rate(3));
        }
    }
}
