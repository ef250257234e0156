//! The order of rows by group.

use crate::Numbers;

/// Groups whose numbers spread over less than this many times the rows are counted, others are sorted.
const SPREAD: u64 = 4;

/// Numbers or nulls that are not one per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} values for {1} rows")]
pub struct OtherLength(pub(crate) usize, pub(crate) usize);

/// Returns the rows in the order of their groups, and within one of their numbers; equal ones stay as they are. For each
/// of these, also its place in its group, from 0.
///
/// # Arguments
/// * `groups` - of the rows.
/// * `numbers` - of the rows; empty if rows of a group stay as they are.
/// * `nulls` - 1 for rows that come last in their groups; empty if there are none.
///
/// # Errors
/// There is another number of numbers or nulls than of groups.
pub fn by_group(
    groups: &[i64],
    numbers: &[i64],
    nulls: &[u8],
) -> Result<(Numbers, Numbers), OtherLength> {
    let others = [numbers.len(), nulls.len()];
    if let Some(&other) = others.iter().find(|&&len| len != 0 && len != groups.len()) {
        return Err(OtherLength(other, groups.len()));
    }
    let mut order = ordered(groups);
    let mut places = Vec::with_capacity(order.len());
    for of_group in order.chunk_by_mut(|&one, &next| groups[one] == groups[next]) {
        if !numbers.is_empty() && of_group.len() > 1 {
            of_group.sort_by_key(|&row| (nulls.get(row).copied().unwrap_or(0), numbers[row]));
        }
        places.extend((0..).take(of_group.len()));
    }
    Ok((order.into_iter().map(number).collect(), places))
}

fn ordered(groups: &[i64]) -> Vec<usize> {
    let least = groups.iter().copied().min().unwrap_or(0);
    let spread = groups.iter().map(|&group| group.abs_diff(least)).max().unwrap_or(0);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    if spread / SPREAD > groups.len() as u64 {
        order.sort_by_key(|&row| groups[row]);
        return order;
    }
    let group = |row: usize| usize::try_from(groups[row].abs_diff(least)).unwrap_or(usize::MAX);
    // First the rows of each group, then the place of its next row.
    let mut next = vec![0; group_count(spread)];
    (0..groups.len()).for_each(|row| next[group(row)] += 1);
    let mut start = 0;
    for rows in &mut next {
        start += std::mem::replace(rows, start);
    }
    for row in 0..groups.len() {
        let place = &mut next[group(row)];
        order[*place] = row;
        *place += 1;
    }
    order
}

fn group_count(spread: u64) -> usize {
    usize::try_from(spread).map_or(0, |spread| spread + 1)
}

fn number(row: usize) -> i64 {
    i64::try_from(row).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_sorted_by_group(
            rows in prop::collection::vec((prop_oneof![
                4 => -3..9_i64,
                1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), -1000..1000_i64],
            ], -4..4_i64, 0..2_u8), 0..60),
            far in any::<bool>(),
            has_numbers in any::<bool>(),
            has_nulls in any::<bool>(),
        ) {
            let groups: Vec<_> = rows.iter().map(|row| if far { row.0 } else { row.0.clamp(-3, 9) }).collect();
            let numbers: Vec<_> = rows.iter().map(|row| row.1).filter(|_| has_numbers).collect();
            let nulls: Vec<_> = rows.iter().map(|row| row.2).filter(|_| has_nulls && has_numbers).collect();
            let (order, places) = by_group(&groups, &numbers, &nulls).unwrap();
            let mut expected: Vec<usize> = (0..rows.len()).collect();
            expected.sort_by_key(|&row| (groups[row], nulls.get(row), numbers.get(row)));
            let sorted: Vec<_> = expected.iter().map(|&row| groups[row]).collect();
            let expected_places: Vec<_> = (0..sorted.len())
                .map(|at| number(at - sorted.partition_point(|group| *group < sorted[at])))
                .collect();
            prop_assert_eq!(order, expected.into_iter().map(number).collect::<Vec<_>>());
            prop_assert_eq!(places, expected_places);
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        assert_eq!(by_group(&[1, 2], &[1], &[]), Err(OtherLength(1, 2)));
        assert_eq!(by_group(&[1, 2], &[1, 2], &[0, 0, 0]), Err(OtherLength(3, 2)));
    }
}
