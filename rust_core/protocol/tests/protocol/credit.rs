//! Credit is neither created nor lost.

use std::num::NonZeroU32;

use headgate_protocol::{BufferKind, CreditError, NoCredit, ReceiveLedger, SendCredit};
use proptest::prelude::*;

use crate::frames::credit;

#[test]
fn send_credit_is_checked() {
    let mut send = SendCredit::new(1);
    assert_eq!(send.spend(), Ok(()));
    assert_eq!(send.spend(), Err(CreditError::Exhausted));
    assert_eq!(send.grant(credit(u32::MAX)), Ok(()));
    let over = CreditError::Overflow { available: u32::MAX, granted: 1 };
    assert_eq!(send.grant(credit(1)), Err(over));
    assert_eq!(send.available(), u32::MAX, "an error changes nothing");
}

/// Offers free buffers of the pool to the channel for as long as it wants some.
fn offer(ledger: &mut ReceiveLedger, pool: &mut u32) {
    while *pool > 0 && ledger.wants().is_some() {
        assert!(ledger.on_offered());
        *pool -= 1;
    }
}

/// Returns a buffer that was read to the pool, which offers it to the channel.
fn recycle(ledger: &mut ReceiveLedger, pool: &mut u32) {
    *pool += 1;
    offer(ledger, pool);
}

/// A channel with 2 exclusive buffers, of which one is being read, as are `floating` others.
fn channel_in_use(floating: u32) -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new(2);
    ledger.on_backlog(floating);
    offer(&mut ledger, &mut floating.clone());
    assert_eq!(ledger.take_unannounced().map_or(0, u32::from), floating);
    for _ in 0..=floating {
        ledger.on_spent().unwrap();
    }
    assert_eq!(
        (ledger.available(), ledger.exclusive_out()),
        (1, 1),
        "floating ones are filled first"
    );
    ledger
}

fn numbers(ledger: &ReceiveLedger) -> (u32, u32, bool) {
    (ledger.available(), ledger.required(), ledger.wants().is_some())
}

#[test]
fn spec_8_07_fewer_buffers_than_required() {
    // The pool has 14 floating buffers, 2 of them in use.
    let (mut ledger, mut pool) = (channel_in_use(2), 12);
    ledger.on_backlog(14);
    offer(&mut ledger, &mut pool);
    assert_eq!(numbers(&ledger), (13, 16, true));
    ledger.on_backlog(16);
    assert_eq!(numbers(&ledger), (13, 18, true));
    recycle(&mut ledger, &mut pool);
    assert_eq!(numbers(&ledger), (14, 18, true));
    recycle(&mut ledger, &mut pool);
    assert_eq!(numbers(&ledger), (15, 18, true));
    ledger.on_backlog(13);
    assert!(!ledger.on_offered(), "no longer needed: it stays in the pool");
    recycle(&mut ledger, &mut pool);
    assert_eq!((numbers(&ledger), pool), ((15, 15, false), 1));
    ledger.on_backlog(15);
    offer(&mut ledger, &mut pool);
    assert_eq!(numbers(&ledger), (16, 17, true));
    assert_eq!(ledger.take_unannounced(), Some(credit(15)), "one announcement for all");
    assert_eq!(ledger.take_unannounced(), None, "never an announcement of 0");
}

#[test]
fn spec_8_08_exactly_as_many_as_required() {
    let (mut ledger, mut pool) = (channel_in_use(1), 13);
    ledger.on_backlog(12);
    offer(&mut ledger, &mut pool);
    assert_eq!((numbers(&ledger), pool), ((14, 14, false), 0));
    for free in 1..=2 {
        recycle(&mut ledger, &mut pool);
        assert_eq!((numbers(&ledger), pool), ((14, 14, false), free));
    }
    assert_eq!(ledger.take_unannounced(), Some(credit(13)));
}

#[test]
fn arrivals_reduce_what_is_required() {
    for (exclusive, want) in [(2, &[4, 3, 2, 1, 0][..]), (0, &[2, 1, 0])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        ledger.on_backlog(2);
        offer(&mut ledger, &mut 2);
        ledger.take_unannounced();
        for required in want {
            assert_eq!(ledger.required(), *required);
            assert_eq!(ledger.available(), *required);
            assert_eq!(ledger.on_spent().is_ok(), *required > 0);
        }
        assert_eq!(ledger.on_spent(), Err(NoCredit));
    }
}

#[test]
fn credit_not_announced_cannot_be_spent() {
    let mut ledger = ReceiveLedger::new(1);
    ledger.on_spent().unwrap();
    assert!(ledger.on_offered());
    assert_eq!((ledger.available(), ledger.announced(), ledger.unannounced()), (1, 0, 1));
    assert_eq!(ledger.on_spent(), Err(NoCredit));
}

#[test]
fn a_channel_takes_no_more_than_it_wants() {
    let mut ledger = ReceiveLedger::new(1);
    let before = ledger.clone();
    assert!(!ledger.on_offered());
    assert_eq!(ledger, before);
}

#[test]
fn a_stopped_channel_keeps_its_buffers_and_wants_none() {
    let mut ledger = channel_in_use(1);
    ledger.on_backlog(3);
    ledger.stop();
    ledger.on_backlog(9);
    assert_eq!(numbers(&ledger), (1, 5, false));
    assert!(!ledger.on_offered());
    assert_eq!(ledger.on_blocked(), 0);
    assert_eq!(ledger.close(), 1);
}

#[test]
fn a_closed_channel_keeps_nothing() {
    let mut ledger = channel_in_use(1);
    ledger.on_backlog(3);
    offer(&mut ledger, &mut 2);
    assert_eq!(ledger.close(), 3);
    assert_eq!(ledger.close(), 0);
    ledger.on_backlog(9);
    assert!(!ledger.on_offered(), "a segment may be on its way to a closed channel");
    assert_eq!(ledger.take_unannounced(), None);
    assert_eq!(ledger.on_spent(), Err(NoCredit));
    assert_eq!(numbers(&ledger), (0, 0, false));
}

#[derive(Clone, Debug)]
enum Op {
    Announce,
    Arrive,
    Backlog(u32),
    Barrier,
    Offer,
    Read,
    Resume,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => Just(Op::Announce),
        10 => Just(Op::Arrive),
        4 => (0u32..8).prop_map(Op::Backlog),
        1 => Just(Op::Barrier),
        8 => Just(Op::Offer),
        10 => Just(Op::Read),
        2 => Just(Op::Resume),
    ];
    prop::collection::vec(op, 0..120)
}

/// The same channel as heaps of buffers that are moved by hand.
#[derive(Debug)]
struct Heaps {
    promised: u32,
    revocable: bool,
    revoked: bool,
    pool: u32,
    free: Vec<BufferKind>,
    reading: u32,
    required: u32,
    told: u32,
    untold: u32,
}

impl Heaps {
    fn new(promised: u32, free: u32, pool: u32) -> Self {
        Self {
            promised,
            revocable: free == 0,
            revoked: false,
            pool: pool + promised - free,
            free: vec![BufferKind::Exclusive; free as usize],
            reading: 0,
            required: promised,
            told: free,
            untold: 0,
        }
    }

    fn exclusive(&self) -> u32 {
        self.free.iter().filter(|kind| **kind == BufferKind::Exclusive).count() as u32
    }

    fn wants(&self) -> Option<BufferKind> {
        if self.exclusive() < self.promised {
            Some(BufferKind::Exclusive)
        } else if (self.free.len() as u32) < self.required && !self.revoked {
            Some(BufferKind::Floating)
        } else {
            None
        }
    }

    fn apply(&mut self, ledger: &mut ReceiveLedger, op: &Op) {
        match op {
            Op::Announce => {
                let untold = if self.revoked { 0 } else { std::mem::take(&mut self.untold) };
                assert_eq!(ledger.take_unannounced().map_or(0, u32::from), untold);
                self.told += untold;
            }
            Op::Arrive if self.told == 0 => assert_eq!(ledger.on_spent(), Err(NoCredit)),
            Op::Arrive => {
                assert_eq!(ledger.on_spent(), Ok(()));
                self.told -= 1;
                self.required = self.required.saturating_sub(1);
                let floating = self.free.iter().position(|kind| *kind == BufferKind::Floating);
                self.free.remove(floating.unwrap_or(0));
                self.reading += 1;
            }
            Op::Backlog(backlog) => {
                ledger.on_backlog(*backlog);
                if !self.revoked {
                    self.required = backlog + self.promised;
                }
            }
            Op::Barrier => {
                let given_up =
                    if self.revocable { self.free.len() as u32 - self.exclusive() } else { 0 };
                assert_eq!(ledger.on_blocked(), given_up);
                self.pool += given_up;
                if self.revocable {
                    self.free.retain(|kind| *kind == BufferKind::Exclusive);
                    (self.revoked, self.required) = (true, self.promised);
                    (self.untold, self.told) = (self.free.len() as u32, 0);
                }
            }
            Op::Offer if self.pool == 0 => {}
            Op::Offer => {
                let wants = self.wants();
                assert_eq!(ledger.wants(), wants);
                assert_eq!(ledger.on_offered(), wants.is_some());
                if let Some(kind) = wants {
                    self.pool -= 1;
                    self.free.push(kind);
                    self.untold += 1;
                }
            }
            Op::Read => {
                let read = self.reading.min(1);
                self.reading -= read;
                self.pool += read;
            }
            Op::Resume => {
                ledger.on_resumed();
                self.revoked = false;
            }
        }
    }

    fn compare(&self, ledger: &ReceiveLedger) {
        let wants = self.wants().is_some();
        assert_eq!(numbers(ledger), (self.free.len() as u32, self.required, wants));
        assert_eq!((ledger.announced(), ledger.unannounced()), (self.told, self.untold));
        assert_eq!(self.told + self.untold, ledger.available(), "one credit per free buffer");
        assert_eq!(ledger.exclusive_out(), self.promised - self.exclusive());
    }
}

proptest! {
    #[test]
    fn behaves_as_heaps_of_buffers(
        promised in 0u32..4, free in 0u32..4, pool in 0u32..6, ops in ops(),
    ) {
        let free = free.min(promised);
        let mut ledger = ReceiveLedger::opened(promised, free);
        let mut heaps = Heaps::new(promised, free, pool);
        for op in &ops {
            heaps.apply(&mut ledger, op);
            heaps.compare(&ledger);
        }
        prop_assert_eq!(heaps.pool + heaps.reading + ledger.close(), promised + pool);
    }
}

#[test]
fn spec_8_10_a_barrier_takes_the_credit_of_channels_without_buffers_of_their_own() {
    for (exclusive, [backlog_2, blocked, backlog_4]) in [(2, [4, 4, 6]), (0, [2, 0, 4])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        ledger.on_backlog(2);
        offer(&mut ledger, &mut 2);
        assert_eq!(ledger.available(), backlog_2);
        assert_eq!(ledger.on_blocked(), backlog_2 - blocked);
        assert_eq!(ledger.available(), blocked);
        assert_eq!(ledger.take_unannounced().is_some(), exclusive > 0);
        ledger.on_resumed();
        assert_eq!((ledger.available(), ledger.unannounced()), (blocked, 0));
        ledger.on_backlog(4);
        offer(&mut ledger, &mut 4);
        assert_eq!((ledger.available(), ledger.required()), (backlog_4, backlog_4));
    }
}

#[test]
fn a_channel_opened_without_its_buffers_grants_them_as_they_come() {
    let mut ledger = ReceiveLedger::opened(2, 0);
    assert_eq!((ledger.wants(), ledger.announced()), (Some(BufferKind::Exclusive), 0));
    assert_eq!(ledger.on_spent(), Err(NoCredit));
    assert!(ledger.on_offered());
    ledger.on_backlog(1);
    assert_eq!(ledger.wants(), Some(BufferKind::Exclusive), "promised ones come first");
    assert!(ledger.on_offered());
    assert_eq!(ledger.wants(), Some(BufferKind::Floating));
    assert!(ledger.on_offered());
    assert_eq!((ledger.wants(), ledger.take_unannounced()), (None, Some(credit(3))));
}

#[test]
fn a_barrier_leaves_a_channel_its_own_buffers_and_their_credit_waits_for_the_resume() {
    let mut ledger = ReceiveLedger::opened(1, 0);
    ledger.on_backlog(1);
    assert!(ledger.on_offered() && ledger.on_offered());
    assert_eq!(ledger.take_unannounced(), Some(credit(2)));
    assert_eq!(ledger.on_blocked(), 1, "the floating one");
    ledger.on_backlog(3);
    assert_eq!(ledger.wants(), None, "no data can arrive before the resume");
    assert_eq!(ledger.take_unannounced(), None, "the producer would drop it");
    ledger.on_resumed();
    assert_eq!(ledger.take_unannounced(), Some(credit(1)));
    // An exclusive buffer that is missing is wanted behind a barrier too.
    let mut ledger = ReceiveLedger::opened(1, 0);
    assert_eq!((ledger.on_blocked(), ledger.wants()), (0, Some(BufferKind::Exclusive)));
    // If the request announced credit, the producer keeps all of it.
    let mut ledger = ReceiveLedger::opened(2, 1);
    assert!(ledger.on_offered());
    assert_eq!((ledger.on_blocked(), ledger.take_unannounced()), (0, Some(credit(1))));
    assert_eq!(ledger.announced(), 2);
}

#[test]
fn spec_8_11_each_data_buffer_lowers_what_is_required() {
    for (exclusive, counts) in [(2, vec![4, 3, 2, 1, 0]), (0, vec![2, 1, 0])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        ledger.on_backlog(2);
        offer(&mut ledger, &mut 2);
        let _ = ledger.take_unannounced();
        let mut seen = vec![ledger.required()];
        while ledger.announced() > 0 {
            ledger.on_spent().unwrap();
            seen.push(ledger.required());
        }
        assert_eq!(seen, counts);
        assert_eq!(ledger.on_spent(), Err(NoCredit));
    }
}

#[test]
fn spec_9_10_credits_that_come_together_are_announced_together() {
    let mut ledger = ReceiveLedger::new(0);
    ledger.on_backlog(5);
    offer(&mut ledger, &mut 2);
    offer(&mut ledger, &mut 3);
    assert_eq!(ledger.take_unannounced().map(NonZeroU32::get), Some(5));
    assert_eq!(ledger.take_unannounced(), None, "nothing is announced as 0");
    assert!(!ledger.on_offered());
    assert_eq!(ledger.take_unannounced(), None);
}
