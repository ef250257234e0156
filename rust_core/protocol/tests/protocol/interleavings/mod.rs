//! A small connection and the gate's pool behind it, in every order in which their parts can act:
//! no deadlock; nothing lost, duplicated or reordered; no credit or segment created or lost; events
//! pass without credit.
//!
//! The parts are the types that ship: [`SendQueue`](headgate_protocol::SendQueue),
//! [`ReceiveChannel`](headgate_protocol::ReceiveChannel) and
//! [`SegmentQueue`](headgate_protocol::SegmentQueue), driven as the I/O thread and the gate's pool
//! drive them.

mod kinds;
mod setup;
mod world;

use headgate_protocol::DataType;
use headgate_protocol::DataType::{
    AlignedCheckpointBarrier as BARRIER, DataBuffer as DATA, EndOfPartition as END,
    EventBuffer as EVENT,
};

use crate::exhaust::exhaust;
use setup::Setup;
use world::{Seen, World};

impl Setup<'_> {
    fn search(&self) -> Seen {
        let visit = |world: &World| {
            self.check(world);
            let actions = self.actions(world);
            if actions.is_empty() {
                self.check_end(world);
            }
            actions
        };
        let mut seen = Seen::default();
        let size =
            exhaust(self.start(), visit, |after, action| self.apply(after, action, &mut seen));
        seen.size = size;
        println!("{self:?}: {} states, {} ends", size.states, size.ends);
        seen
    }
}

const DATA_ONLY: [&[DataType]; 2] = [&[DATA, DATA, DATA, END], &[DATA, DATA, DATA, END]];
const WITH_EVENTS: [&[DataType]; 2] = [&[DATA, EVENT, DATA, END], &[EVENT, DATA, DATA, END]];
const SHORT: [&[DataType]; 2] = [&[DATA, DATA, END], &[DATA, DATA, END]];
const SHORTEST: [&[DataType]; 2] = [&[DATA, DATA, END], &[DATA, END]];
const EVENTS_LAST: [&[DataType]; 2] = [&[DATA, EVENT, EVENT, END], &[DATA, EVENT, EVENT, END]];
const ONE_EACH: Setup<'_> = Setup {
    scripts: DATA_ONLY,
    exclusive: 1,
    pool: 0,
    absent: 0,
    threads: true,
    joins: false,
    reads: true,
    cancels: false,
};

const BARRIERS: [&[DataType]; 2] = [&[DATA, BARRIER, DATA, END], &[BARRIER, EVENT, DATA, END]];
const ONE_BARRIER: [&[DataType]; 2] = [&[DATA, BARRIER, DATA, END], &[DATA, END]];
/// No exclusive segments: the producer announces its backlog.
const NONE_OF_THEIR_OWN: Setup<'_> = Setup { exclusive: 0, pool: 1, ..ONE_EACH };

#[test]
fn a_barrier_blocks_until_it_is_resumed() {
    let seen = Setup { scripts: BARRIERS, ..ONE_EACH }.search();
    assert!(seen.resumes > 0 && seen.events_without_credit > 0, "{seen:?}");
    let seen = Setup { scripts: BARRIERS, pool: 1, cancels: true, ..ONE_EACH }.search();
    assert!(seen.resumes > 0 && seen.discarded > 0, "{seen:?}");
}

#[test]
fn spec_9_05_channels_without_buffers_of_their_own_never_stand_still() {
    let seen = NONE_OF_THEIR_OWN.search();
    assert!(seen.announcements > 0 && seen.waits > 0, "{seen:?}");
    let seen = Setup { scripts: BARRIERS, ..NONE_OF_THEIR_OWN }.search();
    assert!(seen.announcements > 0 && seen.resumes > 0, "{seen:?}");
    let seen = Setup { scripts: SHORT, pool: 2, cancels: true, ..NONE_OF_THEIR_OWN }.search();
    assert!(seen.announcements > 0 && seen.discarded > 0, "{seen:?}");
}

#[test]
fn a_channel_opens_without_the_segments_that_were_promised_to_it() {
    let none_there = Setup { scripts: SHORT, absent: 2, ..ONE_EACH };
    let seen = none_there.search();
    assert!(seen.announcements > 0 && seen.stops_without_credit > 0, "{seen:?}");
    let seen = Setup { scripts: ONE_BARRIER, pool: 1, ..none_there }.search();
    assert!(seen.resumes > 0 && seen.waits > 0, "{seen:?}");
    let seen =
        Setup { scripts: ONE_BARRIER, pool: 1, absent: 3, threads: false, ..none_there }.search();
    assert!(seen.resumes > 0 && seen.waits > 0, "{seen:?}");
    let seen = Setup { scripts: ONE_BARRIER, cancels: true, ..none_there }.search();
    assert!(seen.discarded > 0 && seen.resumes > 0, "{seen:?}");
    let one_missing = Setup { exclusive: 2, absent: 1, ..none_there };
    let seen = Setup { scripts: ONE_BARRIER, ..one_missing }.search();
    assert!(seen.announcements == 0 && seen.resumes > 0, "{seen:?}");
}

#[test]
fn a_channel_joins_while_another_waits_for_floating_segments() {
    let joins = Setup { scripts: SHORTEST, pool: 1, joins: true, ..ONE_EACH };
    let seen = joins.search();
    assert!(seen.deferrals > 0 && seen.waits > 0, "{seen:?}");
    let seen = Setup { absent: 2, ..joins }.search();
    assert!(seen.deferrals > 0 && seen.announcements > 0, "{seen:?}");
    let seen = Setup { cancels: true, ..joins }.search();
    assert!(seen.deferrals > 0 && seen.discarded > 0 && seen.refusals > 0, "{seen:?}");
}

#[test]
fn one_credit_each() {
    let seen = ONE_EACH.search();
    assert!(seen.stops_without_credit > 0 && seen.waits > 0, "{seen:?}");
    let seen = Setup { scripts: WITH_EVENTS, ..ONE_EACH }.search();
    assert!(seen.stops_without_credit > 0 && seen.events_without_credit > 0, "{seen:?}");
}

#[test]
fn one_credit_each_and_one_to_share() {
    let seen = Setup { scripts: WITH_EVENTS, pool: 1, ..ONE_EACH }.search();
    assert!(seen.waits > 0 && seen.refusals > 0, "{seen:?}");
}

#[test]
fn one_credit_each_and_two_to_share() {
    let seen = Setup { scripts: SHORT, pool: 2, ..ONE_EACH }.search();
    assert!(seen.waits > 0 && seen.refusals > 0, "{seen:?}");
}

#[test]
fn two_credits_each() {
    let seen = Setup { exclusive: 2, threads: false, ..ONE_EACH }.search();
    assert!(seen.stops_without_credit > 0, "{seen:?}");
}

#[test]
fn events_pass_a_consumer_that_does_not_read() {
    let seen = Setup { scripts: EVENTS_LAST, reads: false, ..ONE_EACH }.search();
    assert!(seen.events_without_credit > 0 && seen.size.ends > 0, "{seen:?}");
}

#[test]
fn a_cancel_at_any_time_harms_nobody_else() {
    let seen = Setup { scripts: SHORT, pool: 1, cancels: true, ..ONE_EACH }.search();
    assert!(seen.discarded > 0 && seen.waits > 0, "{seen:?}");
}
