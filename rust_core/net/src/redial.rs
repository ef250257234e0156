//! Dialing again after a connection that ended before its peer proved itself.
//!
//! Until then anyone may have answered, and an honest listener closes connections to make room for others
//! (`newcomers`). So only the deadline ends the attempts, or the kernel: where nobody listens, nobody will.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::PartitionRequestClient;
use crate::error::ConnectionError;
use crate::outbox::Outbox;

/// Time in which a peer must prove itself, however many connections it takes. It exceeds the time for which a
/// process may be stopped without being taken for lost, since either end may be stopped during the handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(12);
/// Pause before the third attempt; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A peer to dial, and the attempts so far.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) peer: SocketAddr,
    /// The process that should answer; another one may own the port by now.
    pub(crate) process: [u8; 16],
    /// True if a Unix socket is tried before TCP.
    pub(crate) tries_same_host: bool,
    /// Time by which the peer must have proved itself.
    pub(crate) deadline: Instant,
    /// Attempts that have failed.
    failures: u32,
    /// The end of the last one, which tells more than the silence of another at the deadline.
    pub(crate) failure: Option<ConnectionError>,
}

impl Dial {
    pub(crate) fn new(peer: SocketAddr, process: [u8; 16], now: Instant) -> Self {
        let deadline = now + HANDSHAKE_TIMEOUT;
        Self { peer, process, tries_same_host: true, deadline, failures: 0, failure: None }
    }

    /// Returns the next attempt and its time, after one whose peer did not prove itself; `None` if the
    /// deadline comes first.
    pub(crate) fn again(
        &self,
        failure: &ConnectionError,
        was_same_host: bool,
        now: Instant,
    ) -> Option<(Self, Instant)> {
        if was_same_host {
            // Any process of this user may own the name of the socket, so TCP gets all of the time.
            return Some((
                Self { tries_same_host: false, ..Self::new(self.peer, self.process, now) },
                now,
            ));
        }
        let doublings = self.failures.checked_sub(1);
        let pause = doublings.map_or(Duration::ZERO, |doublings| {
            PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_PAUSE)
        });
        let at = now + pause;
        let (failures, failure) = (self.failures + 1, Some(failure.clone()));
        let next = Self { tries_same_host: false, failures, failure, ..*self };
        (at < self.deadline).then_some((next, at))
    }
}

/// A dial that waits for its time, and the channels that wait for it.
pub(crate) struct Redial {
    pub(crate) dial: Dial,
    pub(crate) at: Instant,
    pub(crate) client: PartitionRequestClient,
    /// Stays empty: the client keeps its messages until the peer has proved itself.
    pub(crate) outbox: Outbox,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn ended() -> ConnectionError {
        ConnectionError::Aborted("the peer closed the connection".to_owned())
    }

    fn dial(now: Instant) -> Dial {
        Dial::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), [3; 16], now)
    }

    #[test]
    fn pauses_double_up_to_a_second_until_the_deadline() {
        let start = Instant::now();
        let (mut dial, mut now) = (dial(start), start);
        let mut pauses = Vec::new();
        while let Some((next, at)) = dial.again(&ended(), false, now) {
            pauses.push((at - now).as_millis());
            (dial, now) = (next, at);
        }
        assert_eq!(pauses[..8], [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(now < start + HANDSHAKE_TIMEOUT && now + MAX_PAUSE >= start + HANDSHAKE_TIMEOUT);
    }

    proptest! {
        #[test]
        fn attempts_end_with_the_deadline_and_the_socket_of_the_host_costs_tcp_no_time(
            near in any::<bool>(),
            lasted in prop::collection::vec(0_u64..13_000, 1..40),
        ) {
            let start = Instant::now();
            let (mut dial, mut now, mut deadline) = (dial(start), start, start + HANDSHAKE_TIMEOUT);
            for (attempt, lasted) in lasted.into_iter().enumerate() {
                let was_same_host = near && attempt == 0;
                prop_assert_eq!(dial.deadline, deadline);
                prop_assert_eq!(dial.tries_same_host, attempt == 0);
                // The deadline ends an attempt, too.
                now = (now + Duration::from_millis(lasted)).min(deadline);
                let Some((next, at)) = dial.again(&ended(), was_same_host, now) else {
                    prop_assert!(!was_same_host && now + MAX_PAUSE >= deadline);
                    return Ok(());
                };
                if was_same_host {
                    prop_assert_eq!(at, now);
                    deadline = now + HANDSHAKE_TIMEOUT;
                }
                prop_assert!(at < deadline);
                prop_assert!(at <= now + MAX_PAUSE);
                (dial, now) = (next, at);
            }
        }
    }
}
