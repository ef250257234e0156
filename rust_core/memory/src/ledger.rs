//! Admission of pools and division of the segments among them: arithmetic only (spec 1.3).
//!
//! Decision: ADR 0013.

use crate::error::PoolTooSmall;

/// Guarantee, limits and use of one local pool, in segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Guaranteed minimum.
    pub(crate) min: usize,
    /// Maximum.
    pub(crate) max: usize,
    /// Current limit without overdraft: `min <= size <= max`.
    pub(crate) size: usize,
    /// Segments the pool holds. Exceeds `size` after a shrink or by overdraft, which is therefore
    /// `held - size` (spec 1.4).
    pub(crate) held: usize,
}

/// Checks that a pool with this minimum fits beside the guarantees given so far.
pub(crate) fn admit(
    shares: impl Iterator<Item = Share>,
    min: usize,
    pinned: usize,
    total: usize,
) -> Result<(), PoolTooSmall> {
    let promised: usize = shares.map(|share| share.min).sum::<usize>() + pinned;
    let available = total.saturating_sub(promised);
    if min > available {
        return Err(PoolTooSmall { requested: min, available, total, pinned });
    }
    Ok(())
}

/// Divides the segments that are not guaranteed among the pools that can use them, in proportion to
/// what each can use.
///
/// Each share is rounded so that the running total is right. So no segment that a pool can use
/// stays unassigned.
pub(crate) fn redistribute(shares: &mut [&mut Share], pinned: usize, total: usize) {
    let promised: usize = shares.iter().map(|share| share.min).sum::<usize>() + pinned;
    let spare = total.saturating_sub(promised);
    let capacity_of = |share: &Share| (share.max - share.min).min(spare);
    let capacity: usize = shares.iter().map(|share| capacity_of(share)).sum();
    let lent = spare.min(capacity);
    let (mut seen, mut given) = (0_u128, 0_u128);
    for share in shares {
        let own = capacity_of(share);
        share.size = share.min;
        if own == 0 {
            continue;
        }
        seen += own as u128;
        let due = lent as u128 * seen / capacity as u128;
        share.size += usize::try_from(due - given).expect("a part of `lent` fits a usize");
        given = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn share(min: usize, max: usize) -> Share {
        Share { min, max, size: min, held: 0 }
    }

    fn sizes(total: usize, pinned: usize, pools: &[(usize, usize)]) -> Vec<usize> {
        let mut shares: Vec<Share> = pools.iter().map(|&(min, max)| share(min, max)).collect();
        redistribute(&mut shares.iter_mut().collect::<Vec<_>>(), pinned, total);
        shares.iter().map(|share| share.size).collect()
    }

    #[test]
    fn spec_1_01_flexible_pools_share_everything() {
        assert_eq!(sizes(1024, 0, &[(1, usize::MAX)]), [1024]);
        assert_eq!(sizes(1024, 0, &[(1, usize::MAX), (24, 24)]), [1000, 24]);
        assert_eq!(sizes(1024, 0, &[(1, usize::MAX), (1, usize::MAX)]), [512, 512]);
    }

    #[test]
    fn spec_1_02_bounded_pools_get_their_maximum() {
        assert_eq!(sizes(1024, 0, &[(1, 10), (1, 10), (1, 1), (1, 2)]), [10, 10, 1, 2]);
    }

    #[test]
    fn spec_1_04_reserved_segments_shrink_the_others() {
        assert_eq!(sizes(10, 2, &[(1, 10)]), [8]);
        assert_eq!(sizes(10, 2, &[(1, 10), (1, 10)]), [4, 4]);
        assert_eq!(sizes(10, 4, &[(1, 10), (1, 10)]), [3, 3]);
        assert_eq!(sizes(10, 6, &[(1, 10), (1, 10)]), [2, 2]);
    }

    #[test]
    fn spec_1_11_admission_is_by_the_sum_of_minimums() {
        let too_small = admit([share(8, 8)].into_iter(), 3, 0, 10).unwrap_err();
        assert_eq!(too_small, PoolTooSmall { requested: 3, available: 2, total: 10, pinned: 0 });
        assert!(admit([share(8, 8)].into_iter(), 2, 0, 10).is_ok());
    }

    proptest! {
        #[test]
        fn every_usable_segment_is_lent(
            pools in prop::collection::vec((0_usize..20, 0_usize..200), 0..8),
            slack in 0_usize..300,
            pinned in 0_usize..20,
        ) {
            let pools: Vec<_> = pools.into_iter().map(|(min, more)| (min, min + more)).collect();
            let total = pools.iter().map(|pool| pool.0).sum::<usize>() + pinned + slack;
            let sizes = sizes(total, pinned, &pools);
            for (size, (min, max)) in sizes.iter().zip(&pools) {
                prop_assert!(size >= min && size <= max);
            }
            let wanted: usize = pools.iter().map(|pool| pool.1).sum();
            prop_assert_eq!(sizes.iter().sum::<usize>(), wanted.min(total - pinned));
        }
    }
}
