//! Credit is neither made nor lost.

use std::num::NonZeroU32;

use headgate_protocol::{
    BufferKind, CreditError, LedgerError, ReceiveLedger, Recycled, SendCredit,
};
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

/// A channel with 2 exclusive buffers, of which one is being read, as are `floating` borrowed ones.
fn channel_in_use(floating: u32) -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new(2);
    assert_eq!(ledger.on_backlog(floating), floating);
    ledger.on_floating(floating);
    assert_eq!(ledger.take_unannounced().map_or(0, u32::from), floating);
    for _ in 0..floating {
        assert_eq!(ledger.on_spent(), Ok(BufferKind::Floating));
    }
    assert_eq!(ledger.on_spent(), Ok(BufferKind::Exclusive));
    ledger
}

fn numbers(ledger: &ReceiveLedger) -> (u32, u32, bool) {
    (ledger.available(), ledger.required(), ledger.waiting())
}

#[test]
fn spec_8_07_fewer_buffers_than_required() {
    // The pool has 14 floating buffers, 2 of them in use.
    let mut ledger = channel_in_use(2);
    assert_eq!(ledger.on_backlog(14), 15);
    ledger.on_floating(12);
    assert!(ledger.on_pool_empty());
    assert_eq!(numbers(&ledger), (13, 16, true));
    assert_eq!(ledger.on_backlog(16), 0, "waits already");
    assert!(!ledger.on_pool_empty(), "registers once");
    assert_eq!(numbers(&ledger), (13, 18, true));
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!(numbers(&ledger), (14, 18, true));
    assert_eq!(ledger.on_recycled(BufferKind::Floating), Ok(Recycled::ToPool));
    assert_eq!(ledger.on_offered(), Ok(4));
    ledger.on_floating(1);
    assert!(ledger.on_pool_empty(), "still short, so it registers again");
    assert_eq!(numbers(&ledger), (15, 18, true));
    assert_eq!(ledger.on_backlog(13), 0);
    assert_eq!(ledger.on_recycled(BufferKind::Floating), Ok(Recycled::ToPool));
    assert_eq!(ledger.on_offered(), Ok(0), "no longer needed: it stays in the pool");
    assert_eq!(numbers(&ledger), (15, 15, false));
    assert_eq!(ledger.on_backlog(15), 2);
    ledger.on_floating(1);
    assert!(ledger.on_pool_empty());
    assert_eq!(numbers(&ledger), (16, 17, true));
    assert_eq!(ledger.take_unannounced(), Some(credit(15)), "one announcement for all");
    assert_eq!(ledger.take_unannounced(), None, "never an announcement of 0");
}

#[test]
fn spec_8_08_exactly_as_many_as_required() {
    let mut ledger = channel_in_use(1);
    assert_eq!(ledger.on_backlog(12), 13);
    ledger.on_floating(13);
    assert!(!ledger.on_pool_empty(), "needs none");
    assert_eq!(numbers(&ledger), (14, 14, false));
    assert_eq!(ledger.on_recycled(BufferKind::Floating), Ok(Recycled::ToPool));
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::ReturnFloating));
    assert_eq!(numbers(&ledger), (14, 14, false));
    assert_eq!(ledger.take_unannounced(), Some(credit(13)), "a swap is no new credit");
}

#[test]
fn arrivals_reduce_what_is_required() {
    for (exclusive, want) in [(2, &[4, 3, 2, 1, 0][..]), (0, &[2, 1, 0])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        assert_eq!(ledger.on_backlog(2), 2);
        ledger.on_floating(2);
        ledger.take_unannounced();
        for required in want {
            assert_eq!(ledger.required(), *required);
            assert_eq!(ledger.available(), *required);
            assert_eq!(ledger.on_spent().is_ok(), *required > 0);
        }
        assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
    }
}

#[test]
fn credit_not_announced_cannot_be_spent() {
    let mut ledger = ReceiveLedger::new(1);
    ledger.on_spent().unwrap();
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!((ledger.available(), ledger.announced(), ledger.unannounced()), (1, 0, 1));
    assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
}

#[test]
fn an_exclusive_buffer_comes_back_once() {
    let mut ledger = ReceiveLedger::new(1);
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Err(LedgerError::NotOurs));
    assert_eq!(ledger.on_offered(), Err(LedgerError::NotWaiting));
}

#[test]
fn a_closed_channel_keeps_nothing() {
    let mut ledger = channel_in_use(1);
    assert_eq!(ledger.on_backlog(3), 4);
    ledger.on_floating(2);
    assert!(ledger.on_pool_empty());
    assert_eq!(ledger.close(), 3);
    assert_eq!(ledger.close(), 0);
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::ToPool));
    assert_eq!(ledger.on_recycled(BufferKind::Floating), Ok(Recycled::ToPool));
    assert_eq!(ledger.on_backlog(9), 0);
    assert_eq!(ledger.on_offered(), Ok(0), "an offer may be under way");
    assert_eq!(ledger.take_unannounced(), None);
    assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
    assert_eq!(numbers(&ledger), (0, 0, false));
}

#[derive(Clone, Debug)]
enum Op {
    Announce,
    Arrive,
    Backlog(u32),
    Offer,
    Recycle(prop::sample::Index),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => Just(Op::Announce),
        5 => Just(Op::Arrive),
        2 => (0u32..8).prop_map(Op::Backlog),
        2 => Just(Op::Offer),
        5 => any::<prop::sample::Index>().prop_map(Op::Recycle),
    ];
    prop::collection::vec(op, 0..120)
}

/// The same channel as heaps of buffers, moved by hand.
#[derive(Debug)]
struct Heaps {
    initial: u32,
    pool: u32,
    free: Vec<BufferKind>,
    reading: Vec<BufferKind>,
    required: u32,
    told: u32,
    untold: u32,
    waiting: bool,
}

impl Heaps {
    fn new(initial: u32, pool: u32) -> Self {
        let free = vec![BufferKind::Exclusive; initial as usize];
        let (reading, required, told) = (Vec::new(), initial, initial);
        Self { initial, pool, free, reading, required, told, untold: 0, waiting: false }
    }

    fn take_from_pool(&mut self, ledger: &mut ReceiveLedger, wanted: u32) {
        let taken = wanted.min(self.pool);
        self.pool -= taken;
        ledger.on_floating(taken);
        self.free.extend(vec![BufferKind::Floating; taken as usize]);
        self.untold += taken;
        let short = taken < wanted;
        assert_eq!(ledger.on_pool_empty(), short);
        self.waiting |= short;
    }

    fn wanted(&self) -> u32 {
        self.required.saturating_sub(self.free.len() as u32)
    }

    fn take_free(&mut self, kind: BufferKind) -> Option<BufferKind> {
        let at = self.free.iter().position(|other| *other == kind)?;
        Some(self.free.remove(at))
    }

    fn apply(&mut self, ledger: &mut ReceiveLedger, op: &Op) {
        match op {
            Op::Announce => {
                assert_eq!(ledger.take_unannounced().map_or(0, u32::from), self.untold);
                self.told += std::mem::take(&mut self.untold);
            }
            Op::Arrive if self.told == 0 => {
                assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
            }
            Op::Arrive => {
                self.told -= 1;
                self.required = self.required.saturating_sub(1);
                let floating = self.take_free(BufferKind::Floating);
                let kind = floating.or_else(|| self.take_free(BufferKind::Exclusive)).unwrap();
                assert_eq!(ledger.on_spent(), Ok(kind));
                self.reading.push(kind);
            }
            Op::Backlog(backlog) => {
                self.required = backlog + self.initial;
                let wanted = if self.waiting { 0 } else { self.wanted() };
                assert_eq!(ledger.on_backlog(*backlog), wanted);
                self.take_from_pool(ledger, wanted);
            }
            Op::Offer if self.waiting && self.pool > 0 => {
                self.waiting = false;
                let wanted = self.wanted();
                assert_eq!(ledger.on_offered(), Ok(wanted));
                self.take_from_pool(ledger, wanted);
            }
            Op::Offer => {}
            Op::Recycle(_) if self.reading.is_empty() => {}
            Op::Recycle(at) => {
                let kind = self.reading.remove(at.index(self.reading.len()));
                self.recycle(ledger, kind);
            }
        }
    }

    fn recycle(&mut self, ledger: &mut ReceiveLedger, kind: BufferKind) {
        let recycled = ledger.on_recycled(kind).unwrap();
        if kind == BufferKind::Floating {
            assert_eq!(recycled, Recycled::ToPool);
            self.pool += 1;
            return;
        }
        self.free.push(kind);
        let excess = self.free.len() as u32 > self.required;
        if excess && self.take_free(BufferKind::Floating).is_some() {
            assert_eq!(recycled, Recycled::ReturnFloating);
            self.pool += 1;
        } else {
            assert_eq!(recycled, Recycled::Credited);
            self.untold += 1;
        }
    }

    fn compare(&self, ledger: &ReceiveLedger) {
        assert_eq!(numbers(ledger), (self.free.len() as u32, self.required, self.waiting));
        assert_eq!((ledger.announced(), ledger.unannounced()), (self.told, self.untold));
        assert_eq!(self.told + self.untold, ledger.available(), "one credit per free buffer");
    }
}

proptest! {
    #[test]
    fn behaves_as_heaps_of_buffers(initial in 0u32..4, pool in 0u32..6, ops in ops()) {
        let mut ledger = ReceiveLedger::new(initial);
        let mut heaps = Heaps::new(initial, pool);
        for op in &ops {
            heaps.apply(&mut ledger, op);
            heaps.compare(&ledger);
        }
        // Whatever happened, all buffers come home.
        heaps.pool += ledger.close();
        for kind in std::mem::take(&mut heaps.reading) {
            assert_eq!(ledger.on_recycled(kind), Ok(Recycled::ToPool));
            heaps.pool += 1;
        }
        prop_assert_eq!(heaps.pool, initial + pool);
    }
}

#[test]
fn spec_8_10_a_barrier_takes_the_credit_of_channels_without_buffers_of_their_own() {
    for (exclusive, [backlog_2, blocked, backlog_4]) in [(2, [4, 4, 6]), (0, [2, 0, 4])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        let floating = ledger.on_backlog(2);
        ledger.on_floating(floating);
        assert_eq!(ledger.available(), backlog_2);
        assert_eq!(ledger.on_blocked(), backlog_2 - blocked);
        assert_eq!(ledger.available(), blocked);
        assert_eq!(ledger.take_unannounced().is_some(), exclusive > 0);
        ledger.on_resumed();
        assert_eq!((ledger.available(), ledger.unannounced()), (blocked, 0));
        let floating = ledger.on_backlog(4);
        ledger.on_floating(floating);
        assert_eq!((ledger.available(), ledger.required()), (backlog_4, backlog_4));
    }
}

#[test]
fn a_channel_opened_without_its_buffers_grants_them_as_they_come() {
    let mut ledger = ReceiveLedger::opened(2, 0);
    assert_eq!((ledger.wants(), ledger.announced()), (Some(BufferKind::Exclusive), 0));
    assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!(ledger.on_backlog(1), 2, "one that is owed, one for the backlog");
    assert_eq!(ledger.wants(), Some(BufferKind::Exclusive), "what is owed comes first");
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!(ledger.wants(), Some(BufferKind::Floating));
    ledger.on_floating(1);
    assert_eq!((ledger.wants(), ledger.take_unannounced()), (None, Some(credit(3))));
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Err(LedgerError::NotOurs));
}

#[test]
fn a_barrier_leaves_a_channel_its_own_buffers_and_their_credit_waits_for_the_resume() {
    let mut ledger = ReceiveLedger::opened(2, 0);
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    ledger.on_floating(1);
    assert_eq!(ledger.take_unannounced(), Some(credit(2)));
    assert_eq!(ledger.on_blocked(), 1, "the floating one");
    assert_eq!(ledger.wants(), Some(BufferKind::Exclusive), "owed is owed");
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!((ledger.on_backlog(3), ledger.wants()), (0, None), "nothing can come now");
    assert_eq!(ledger.take_unannounced(), None, "the producer would forget it");
    ledger.on_resumed();
    assert_eq!(ledger.take_unannounced(), Some(credit(2)));
    // With credit in its request the producer remembers all of it.
    let mut ledger = ReceiveLedger::opened(2, 1);
    assert_eq!(ledger.on_recycled(BufferKind::Exclusive), Ok(Recycled::Credited));
    assert_eq!((ledger.on_blocked(), ledger.take_unannounced()), (0, Some(credit(1))));
    assert_eq!(ledger.announced(), 2);
}

#[test]
fn spec_8_11_each_data_buffer_lowers_what_is_required() {
    for (exclusive, counts) in [(2, vec![4, 3, 2, 1, 0]), (0, vec![2, 1, 0])] {
        let mut ledger = ReceiveLedger::new(exclusive);
        let floating = ledger.on_backlog(2);
        ledger.on_floating(floating);
        let _ = ledger.take_unannounced();
        let mut seen = vec![ledger.required()];
        while ledger.announced() > 0 {
            ledger.on_spent().unwrap();
            seen.push(ledger.required());
        }
        assert_eq!(seen, counts);
        assert_eq!(ledger.on_spent(), Err(LedgerError::NoCredit));
    }
}

#[test]
fn spec_9_10_credits_that_come_together_are_announced_together() {
    let mut ledger = ReceiveLedger::new(0);
    assert_eq!(ledger.on_backlog(5), 5);
    ledger.on_floating(2);
    ledger.on_floating(3);
    assert_eq!(ledger.take_unannounced().map(NonZeroU32::get), Some(5));
    assert_eq!(ledger.take_unannounced(), None, "nothing is announced as 0");
    ledger.on_recycled(BufferKind::Floating).map(drop).unwrap();
    assert_eq!(ledger.take_unannounced(), None);
}
