//! Accepted connections whose peers have not proved themselves yet. Their number is limited, and no
//! address crowds out another.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

/// Most connections that have named nothing.
const MAX_STRANGERS: usize = 64;
/// Most connections that have named this exchange, run and epoch. Their numbers are known to all of the
/// exchange, and to who reads the network.
const MAX_NAMED: usize = 256;

/// The origin of a connection. Connections of one source compete with each other first.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Source {
    /// A process of this host and user, over a Unix socket.
    SameHost,
    V4(Ipv4Addr),
    /// The first 64 bits of an address: a host may have all addresses that share them.
    V6([u8; 8]),
}

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        // A socket that listens for IPv6 reports a peer of IPv4 by an IPv6 address.
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [prefix @ .., _, _, _, _, _, _, _, _] = address.octets();
                Self::V6(prefix)
            }
        }
    }
}

/// The part of the handshake that an accepted connection has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// It has named nothing.
    Stranger,
    /// It has named this exchange, run and epoch.
    Named,
    /// It has proved that it knows the secret.
    Proved,
}

/// Connections of one standing, by token. Tokens grow, so the first is the oldest.
struct Room {
    limit: usize,
    members: BTreeMap<usize, Source>,
}

impl Room {
    fn new(limit: usize) -> Self {
        Self { limit, members: BTreeMap::new() }
    }

    /// Adds a connection. If there are too many, removes and returns the oldest one of the sources with
    /// the most.
    fn add(&mut self, token: usize, source: Source) -> Option<usize> {
        self.members.insert(token, source);
        if self.members.len() <= self.limit {
            return None;
        }
        let mut counts: HashMap<_, usize> = HashMap::new();
        for source in self.members.values() {
            *counts.entry(source).or_default() += 1;
        }
        let most = counts.values().max();
        let crowd = self.members.iter().find(|(_, source)| counts.get(source) == most);
        let (oldest, _) = crowd.map(|(token, source)| (*token, *source))?;
        self.members.remove(&oldest);
        Some(oldest)
    }
}

/// The accepted connections before their proof. The methods return the token of a connection that must be
/// closed to make room.
pub(crate) struct Newcomers {
    strangers: Room,
    named: Room,
}

impl Newcomers {
    pub(crate) fn new() -> Self {
        Self::with_limits(MAX_STRANGERS, MAX_NAMED)
    }

    fn with_limits(strangers: usize, named: usize) -> Self {
        Self { strangers: Room::new(strangers), named: Room::new(named) }
    }

    /// Adds an accepted connection. Its token is higher than those of all others.
    pub(crate) fn came(&mut self, token: usize, source: Source) -> Option<usize> {
        self.strangers.add(token, source)
    }

    /// Moves a connection to those that have named this exchange, run and epoch.
    pub(crate) fn named(&mut self, token: usize) -> Option<usize> {
        let source = self.strangers.members.remove(&token)?;
        self.named.add(token, source)
    }

    /// Forgets a connection that has proved itself or is closed.
    pub(crate) fn left(&mut self, token: usize) {
        self.strangers.members.remove(&token);
        self.named.members.remove(&token);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LIMITS: [usize; 2] = [4, 3];

    fn source(last: u8) -> Source {
        Source::of(IpAddr::from([10, 0, 0, last]))
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Comes { source: u8 },
        Names { which: usize },
        Leaves { which: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..4u8).prop_map(|source| Step::Comes { source }),
            3 => any::<usize>().prop_map(|which| Step::Names { which }),
            2 => any::<usize>().prop_map(|which| Step::Leaves { which }),
        ];
        vec(step, 0..120)
    }

    /// A connection in the model: its token, its source, and its room.
    type Member = (usize, u8, usize);

    /// Returns the members that may be closed: the oldest of each source that has the most in the room.
    fn crowd(members: &[Member], room: usize) -> Vec<usize> {
        let of = |wanted: u8| {
            let mut tokens: Vec<_> = members
                .iter()
                .filter(|(_, source, at)| (*source, *at) == (wanted, room))
                .map(|(token, ..)| *token)
                .collect();
            tokens.sort_unstable();
            tokens
        };
        let all: Vec<_> = (0..4).map(of).collect();
        let most = all.iter().map(Vec::len).max().unwrap_or(0);
        all.iter().filter(|tokens| tokens.len() == most).map(|tokens| tokens[0]).collect()
    }

    proptest! {
        #[test]
        fn no_source_crowds_out_another(steps in steps()) {
            let mut newcomers = Newcomers::with_limits(LIMITS[0], LIMITS[1]);
            let mut members: Vec<Member> = Vec::new();
            for (token, step) in steps.into_iter().enumerate() {
                let pick = |which: usize| (!members.is_empty()).then(|| which % members.len());
                let (room, closed) = match step {
                    Step::Comes { source: last } => {
                        members.push((token, last, 0));
                        (0, newcomers.came(token, source(last)))
                    }
                    Step::Names { which } => {
                        let Some(at) = pick(which) else { continue };
                        let is_stranger = members[at].2 == 0;
                        members[at].2 = 1;
                        let closed = newcomers.named(members[at].0);
                        prop_assert!(is_stranger || closed.is_none(), "it is in that room already");
                        (1, closed)
                    }
                    Step::Leaves { which } => {
                        let Some(at) = pick(which) else { continue };
                        newcomers.left(members.swap_remove(at).0);
                        (0, None)
                    }
                };
                let here = members.iter().filter(|(.., at)| *at == room).count();
                prop_assert_eq!(closed.is_some(), here > LIMITS[room]);
                if let Some(closed) = closed {
                    let crowd = crowd(&members, room);
                    prop_assert_eq!(crowd.iter().min(), Some(&closed), "of {:?}", crowd);
                    members.retain(|(token, ..)| *token != closed);
                }
                let of = |room| -> Vec<usize> {
                    let here = members.iter().filter(|(.., at)| *at == room);
                    let mut tokens: Vec<_> = here.map(|(token, ..)| *token).collect();
                    tokens.sort_unstable();
                    tokens
                };
                let kept = [&newcomers.strangers, &newcomers.named];
                let kept = kept.map(|room| Vec::from_iter(room.members.keys().copied()));
                prop_assert_eq!(kept, [of(0), of(1)]);
            }
        }
    }

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("::ffff:10.0.0.1"), of("::ffff:10.0.0.2"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::7"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("127.0.0.1"), Source::SameHost);
    }

    #[test]
    fn a_flood_of_either_kind_leaves_another_source_its_place() {
        for named in [false, true] {
            let mut newcomers = Newcomers::new();
            assert_eq!(newcomers.came(0, source(1)), None);
            if named {
                assert_eq!(newcomers.named(0), None);
            }
            for token in 1..10 * MAX_NAMED {
                assert_ne!(newcomers.came(token, source(2)), Some(0));
                if named {
                    assert_ne!(newcomers.named(token), Some(0));
                }
            }
        }
    }
}
