//! Joint intervals of keys.

use crate::Numbers;
use crate::order::{OtherLength, by_group};

/// Intervals of a key that overlap or touch, joined.
#[derive(Debug, PartialEq, Eq)]
pub struct JointIntervals {
    /// Of each interval, the number of the joint one; they increase by key, and within one by time.
    pub numbers: Numbers,
    /// Of each joint interval, the interval with which it starts.
    pub first: Numbers,
    /// Of each joint interval, its end.
    pub ends: Numbers,
}

/// Joins the intervals of each key that overlap or touch.
///
/// # Arguments
/// * `keys` - numbers of the keys, one per interval.
/// * `starts` - of the intervals.
/// * `ends` - of the intervals, not before their starts.
///
/// # Errors
/// There is another number of starts or ends than of keys.
pub fn join_intervals(
    keys: &[i64],
    starts: &[i64],
    ends: &[i64],
) -> Result<JointIntervals, OtherLength> {
    for other in [starts.len(), ends.len()] {
        if other != keys.len() {
            return Err(OtherLength(other, keys.len()));
        }
    }
    let (order, places) = by_group(keys, starts, &[])?;
    let mut joint =
        JointIntervals { numbers: vec![0; keys.len()], first: Vec::new(), ends: Vec::new() };
    let mut number = -1;
    for (interval, place) in order.into_iter().zip(places) {
        let Ok(row) = usize::try_from(interval) else { continue };
        match joint.ends.last_mut() {
            Some(end) if place > 0 && starts[row] <= *end => *end = ends[row].max(*end),
            _ => {
                number += 1;
                joint.first.push(interval);
                joint.ends.push(ends[row]);
            }
        }
        joint.numbers[row] = number;
    }
    Ok(joint)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_are_sets_of_times(
            intervals in prop::collection::vec((-2..4_i64, -30..30_i64, 0..6_i64), 0..50),
            far in 0..3_i64,
        ) {
            // Far apart, keys are sorted and not counted.
            let keys: Vec<_> = intervals.iter().map(|of| of.0 << (20 * far)).collect();
            let starts: Vec<_> = intervals.iter().map(|of| of.1).collect();
            let ends: Vec<_> = intervals.iter().map(|of| of.1 + of.2).collect();
            let joint = join_intervals(&keys, &starts, &ends).unwrap();
            // Twice the times, so that two intervals without a shared time are apart.
            let mut times = BTreeMap::<i64, BTreeSet<i64>>::new();
            for row in 0..keys.len() {
                times.entry(keys[row]).or_default().extend(2 * starts[row]..=2 * ends[row]);
            }
            let mut expected = vec![];
            for (key, times) in times {
                for time in times {
                    match expected.last_mut() {
                        Some((of, _, end)) if *of == key && *end + 1 == time => *end = time,
                        _ => expected.push((key, time, time)),
                    }
                }
            }
            let first: Vec<_> = joint.first.iter().map(|&row| usize::try_from(row).unwrap()).collect();
            let joined: Vec<_> = first.iter().zip(&joint.ends)
                .map(|(&row, end)| (keys[row], 2 * starts[row], 2 * end)).collect();
            prop_assert_eq!(&joined, &expected);
            for row in 0..keys.len() {
                let number = usize::try_from(joint.numbers[row]).unwrap();
                let (key, start, end) = expected[number];
                prop_assert!(key == keys[row] && start <= 2 * starts[row] && 2 * ends[row] <= end);
                prop_assert!(row >= first[number] || starts[row] > starts[first[number]]);
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        assert_eq!(join_intervals(&[1, 2], &[1], &[2, 3]), Err(OtherLength(1, 2)));
        assert_eq!(join_intervals(&[1, 2], &[1, 2], &[]), Err(OtherLength(0, 2)));
    }
}
