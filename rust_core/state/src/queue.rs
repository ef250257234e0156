//! Timers by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Numbers;

/// A priority queue of timestamps with numbers.
#[derive(Debug, Default)]
pub struct TimerQueue {
    heap: BinaryHeap<Reverse<(i64, i64)>>,
}

impl TimerQueue {
    /// Adds timers; the number at the same position belongs to each timestamp.
    pub fn push(&mut self, timestamps: &[i64], numbers: &[i64]) {
        self.heap
            .extend(timestamps.iter().zip(numbers).map(|(&time, &number)| Reverse((time, number))));
    }

    /// Removes all timers up to and including a time; returns timestamps and numbers, ordered by both, each pair
    /// once.
    pub fn pop(&mut self, until: i64) -> (Numbers, Numbers) {
        let (mut timestamps, mut numbers) = (Vec::new(), Vec::new());
        let mut last = None;
        while let Some(&Reverse(timer)) = self.heap.peek().filter(|first| first.0.0 <= until) {
            self.heap.pop();
            if last.replace(timer) != Some(timer) {
                timestamps.push(timer.0);
                numbers.push(timer.1);
            }
        }
        (timestamps, numbers)
    }

    /// Time of the first timer.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        self.heap.peek().map(|first| first.0.0)
    }

    /// Removes all timers.
    pub fn clear(&mut self) {
        self.heap.clear();
    }

    /// Number of timers, with those that were added twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if there are no timers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn timers_leave_in_order_and_once(
            timers in prop::collection::vec((-5..20i64, 0..4i64), 0..40),
            until in -6..21i64,
        ) {
            let mut queue = TimerQueue::default();
            let (times, numbers): (Vec<_>, Vec<_>) = timers.iter().copied().unzip();
            queue.push(&times, &numbers);
            let mut expected: Vec<_> = timers.iter().copied().filter(|timer| timer.0 <= until).collect();
            expected.sort_unstable();
            expected.dedup();
            let expected: (Vec<_>, Vec<_>) = expected.into_iter().unzip();
            prop_assert_eq!(queue.pop(until), expected);
            let first = timers.iter().map(|timer| timer.0).filter(|time| *time > until).min();
            prop_assert_eq!(queue.first(), first);
            prop_assert_eq!(queue.len(), timers.iter().filter(|timer| timer.0 > until).count());
        }
    }
}
