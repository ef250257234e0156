//! The time for which the network limits one connection.

use std::time::Duration;

use headgate_memory::TcpTimes;

/// Adds up the times between two looks at which the kernel has bytes that it could not send yet.
///
/// The kernel's time alone is not enough: single pages whose acknowledgement is delayed look as if they
/// were on a slow network.
#[derive(Debug, Default)]
pub(crate) struct NetworkLimits {
    /// The kernel's time at the last look.
    seen: Duration,
    had_unsent: bool,
    limited: Duration,
}

impl NetworkLimits {
    /// Takes the kernel's times; returns the sum so far.
    pub(crate) fn look(&mut self, times: Option<TcpTimes>) -> Duration {
        if let Some(times) = times {
            let now = times.network_limited();
            if self.had_unsent && times.has_unsent {
                self.limited += now.saturating_sub(self.seen);
            }
            (self.seen, self.had_unsent) = (now, times.has_unsent);
        }
        self.limited
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(busy: u64, has_unsent: bool) -> Option<TcpTimes> {
        Some(TcpTimes { busy: Duration::from_millis(busy), has_unsent, ..TcpTimes::default() })
    }

    #[test]
    fn pages_that_wait_for_their_acknowledgement_alone_are_on_no_slow_network() {
        let mut limits = NetworkLimits::default();
        for look in 1..10 {
            assert!(limits.look(times(500 * look, false)).is_zero());
        }
        assert!(
            limits.look(times(5000, true)).is_zero(),
            "one look with unsent bytes says nothing"
        );
        assert_eq!(limits.look(times(5400, true)), Duration::from_millis(400));
        assert_eq!(limits.look(None), Duration::from_millis(400), "the socket is gone");
        assert_eq!(limits.look(times(5900, false)), Duration::from_millis(400));
    }

    proptest! {
        #[test]
        fn the_time_between_two_looks_counts_if_bytes_are_unsent_at_both(
            looks in prop::collection::vec((0_u64..1000, any::<bool>()), 0..30),
        ) {
            let (mut limits, mut busy, mut limited) = (NetworkLimits::default(), 0, 0);
            for (index, (passed, has_unsent)) in looks.iter().enumerate() {
                busy += passed;
                limited += if index > 0 && looks[index - 1].1 && *has_unsent { *passed } else { 0 };
                prop_assert_eq!(limits.look(times(busy, *has_unsent)), Duration::from_millis(limited));
            }
        }
    }
}
