//! Channels take turns, data needs credit, events do not.

use std::collections::{BTreeMap, VecDeque};

use headgate_protocol::{ChannelId, CreditError, Next, SendQueue, SendQueueError};
use proptest::prelude::*;

use crate::frames::credit;

const A: ChannelId = ChannelId(1);
const B: ChannelId = ChannelId(2);

fn queue(channels: &[(ChannelId, u32)]) -> SendQueue<&'static str> {
    let mut queue = SendQueue::new();
    for (channel, credit) in channels {
        queue.open(*channel, *credit, "view").unwrap();
    }
    queue
}

/// Sends one data buffer of the next channel; `next` is the buffer behind it.
fn send_data(queue: &mut SendQueue<&'static str>, next: Next) -> Option<ChannelId> {
    let channel = queue.poll()?;
    queue.sent(channel, false, next).unwrap();
    Some(channel)
}

#[test]
fn spec_9_07_two_channels_alternate() {
    let mut queue = queue(&[(A, 10), (B, 10)]);
    queue.notify(A, Next::Data);
    queue.notify(B, Next::Data);
    queue.notify(A, Next::Data);
    let order: Vec<_> = (0..6).map(|_| send_data(&mut queue, Next::Data).unwrap()).collect();
    assert_eq!(order, [A, B, A, B, A, B]);
}

#[test]
fn spec_9_04_data_stops_at_the_credit_and_events_pass() {
    let mut queue = queue(&[(A, 2)]);
    queue.notify(A, Next::Data);
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert_eq!((queue.credit(A), queue.poll()), (Some(0), None));
    queue.notify(A, Next::Event);
    assert_eq!(queue.poll(), Some(A));
    queue.sent(A, true, Next::Data).unwrap();
    assert!(!queue.has_available());
    queue.grant(A, credit(1), Next::Data).unwrap();
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert_eq!(queue.poll(), None, "one credit, one buffer");
}

#[test]
fn spec_9_05_a_channel_without_initial_credit_announces_its_backlog() {
    let mut queue = queue(&[(A, 0), (B, 1)]);
    assert!(queue.announces_backlog(A, Next::Data) && !queue.announces_backlog(B, Next::Data));
    assert!(!queue.announces_backlog(A, Next::None) && !queue.announces_backlog(A, Next::Event));
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), None, "and no data before there is credit");
    queue.grant(A, credit(2), Next::Data).unwrap();
    assert!(!queue.announces_backlog(A, Next::Data), "headers carry the backlog now");
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert!(queue.announces_backlog(A, Next::Data));
    assert!(!queue.announces_backlog(ChannelId(9), Next::Data));
}

#[test]
fn a_resumed_channel_keeps_its_credit_only_with_exclusive_buffers() {
    let mut queue = queue(&[(A, 0), (B, 2)]);
    queue.grant(A, credit(3), Next::None).unwrap();
    queue.resume(A, Next::Data).unwrap();
    queue.resume(B, Next::Data).unwrap();
    assert_eq!((queue.credit(A), queue.credit(B)), (Some(0), Some(2)));
    assert_eq!((queue.poll(), queue.poll()), (Some(B), None));
    let unknown = SendQueueError::UnknownChannel { channel: ChannelId(9) };
    assert_eq!(queue.resume(ChannelId(9), Next::Data), Err(unknown));
}

#[test]
fn a_notification_during_a_turn_counts_once() {
    let mut queue = queue(&[(A, 1)]);
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), Some(A));
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), None);
    queue.sent(A, false, Next::Data).unwrap();
    assert_eq!(queue.poll(), None, "the credit is spent");
}

#[test]
fn a_turn_without_a_buffer_costs_nothing() {
    let mut queue = queue(&[(A, 1)]);
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), Some(A));
    queue.not_sent(A, Next::None).unwrap();
    assert_eq!((queue.credit(A), queue.poll()), (Some(1), None));
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), Some(A));
}

#[test]
fn spec_9_08_nothing_is_sent_after_a_cancel() {
    let mut queue = queue(&[(A, 5), (B, 5)]);
    queue.notify(A, Next::Data);
    queue.notify(B, Next::Data);
    assert_eq!(queue.cancel(A), Some("view"));
    assert_eq!(queue.cancel(A), None);
    queue.notify(A, Next::Event);
    assert_eq!(send_data(&mut queue, Next::None), Some(B));
    assert_eq!(queue.poll(), None);
    let unknown = Err(SendQueueError::UnknownChannel { channel: A });
    assert_eq!(queue.grant(A, credit(1), Next::Data), unknown);
    // A channel with the same id starts afresh.
    queue.open(A, 1, "second").unwrap();
    assert_eq!(queue.poll(), None);
    queue.notify(A, Next::Data);
    assert_eq!(queue.poll(), Some(A));
    assert_eq!(queue.cancel(A), Some("second"), "during its turn as well");
    assert_eq!(queue.sent(A, false, Next::Data), unknown);
}

#[test]
fn misuse_is_an_error() {
    let mut queue = queue(&[(A, 0)]);
    assert_eq!(queue.open(A, 9, "other"), Err("other"));
    assert_eq!(queue.view(A), Some(&"view"));
    assert_eq!(queue.sent(A, true, Next::None), Err(SendQueueError::NotPolled { channel: A }));
    assert_eq!(queue.not_sent(A, Next::None), Err(SendQueueError::NotPolled { channel: A }));
    queue.notify(A, Next::Event);
    assert_eq!(queue.poll(), Some(A));
    let source = CreditError::Exhausted;
    assert_eq!(
        queue.sent(A, false, Next::None),
        Err(SendQueueError::Credit { channel: A, source }),
        "data in the turn of an event"
    );
    queue.grant(A, credit(u32::MAX), Next::None).unwrap();
    let source = CreditError::Overflow { available: u32::MAX, granted: 1 };
    assert_eq!(
        queue.grant(A, credit(1), Next::Data),
        Err(SendQueueError::Credit { channel: A, source })
    );
}

#[test]
fn drain_gives_all_views_back() {
    let mut queue = queue(&[(A, 1), (B, 1)]);
    queue.notify(B, Next::Data);
    *queue.view_mut(B).unwrap() = "changed";
    assert_eq!((queue.len(), queue.channels().collect::<Vec<_>>()), (2, vec![A, B]));
    assert_eq!(queue.drain().collect::<Vec<_>>(), [(A, "view"), (B, "changed")]);
    assert!(queue.is_empty() && !queue.has_available());
}

#[test]
fn a_channel_is_starved_from_data_without_credit_until_credit_or_its_end() {
    let mut queue = queue(&[(A, 0), (B, 1)]);
    queue.notify(A, Next::Event);
    queue.notify(B, Next::Data);
    assert_eq!(queue.num_starved(), 0, "events need no credit, and B has credit");
    queue.notify(A, Next::Data);
    queue.notify(A, Next::Data);
    assert_eq!(queue.num_starved(), 1);
    assert_eq!(queue.poll(), Some(A), "the event");
    queue.sent(A, true, Next::Data).unwrap();
    assert_eq!(send_data(&mut queue, Next::Data), Some(B));
    assert_eq!(queue.num_starved(), 2);
    queue.grant(A, credit(1), Next::Data).unwrap();
    assert_eq!(queue.num_starved(), 1);
    queue.cancel(B);
    assert_eq!(queue.num_starved(), 0);
    assert_eq!(send_data(&mut queue, Next::Data), Some(A));
    assert_eq!(queue.num_starved(), 1);
    queue.drain().for_each(drop);
    assert_eq!(queue.num_starved(), 0);
}

#[derive(Clone, Debug)]
enum Op {
    Cancel(u32),
    Grant(u32, u32),
    Notify(u32),
    Open(u32, u32),
    Push(u32, bool),
    /// Takes a turn, during which a buffer is pushed.
    Send(Option<(u32, bool)>),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let channel = 0u32..4;
    let push = (channel.clone(), prop::bool::weighted(0.25));
    let op = prop_oneof![
        2 => (channel.clone(), 0u32..3).prop_map(|(channel, credit)| Op::Open(channel, credit)),
        1 => channel.clone().prop_map(Op::Cancel),
        3 => (channel.clone(), 1u32..3).prop_map(|(channel, credit)| Op::Grant(channel, credit)),
        1 => channel.prop_map(Op::Notify),
        8 => push.clone().prop_map(|(channel, event)| Op::Push(channel, event)),
        8 => proptest::option::weighted(0.3, push).prop_map(Op::Send),
    ];
    prop::collection::vec(op, 0..150)
}

/// A simple queue that checks every channel after every step.
#[derive(Debug, Default)]
struct Naive {
    /// Credit and buffers (true is an event) of each open channel.
    channels: BTreeMap<u32, (u32, VecDeque<bool>)>,
    order: Vec<u32>,
    /// True for a channel that had data and no credit when the queue was last told of it.
    seen: BTreeMap<u32, bool>,
}

impl Naive {
    fn next(&self, channel: u32) -> Next {
        match self.channels.get(&channel).and_then(|(_, buffers)| buffers.front()) {
            None => Next::None,
            Some(true) => Next::Event,
            Some(false) => Next::Data,
        }
    }

    /// Queues the channel if it can send and is not queued.
    fn line_up(&mut self, channel: u32) {
        let (next, credit) = (self.next(channel), self.channels.get(&channel).map(|open| open.0));
        let can_send = next == Next::Event || next == Next::Data && credit > Some(0);
        if can_send && !self.order.contains(&channel) {
            self.order.push(channel);
        }
    }

    /// Notes what the queue is told of a channel.
    fn see(&mut self, channel: u32, next: Next) {
        if let Some((credit, _)) = self.channels.get(&channel) {
            self.seen.insert(channel, next == Next::Data && *credit == 0);
        }
    }

    fn push(&mut self, queue: &mut SendQueue<u32>, channel: u32, event: bool, in_turn: bool) {
        let Some((_, buffers)) = self.channels.get_mut(&channel) else {
            return queue.notify(ChannelId(channel), Next::Data);
        };
        buffers.push_back(event);
        queue.notify(ChannelId(channel), self.next(channel));
        self.see(channel, self.next(channel));
        if !in_turn {
            self.line_up(channel);
        }
    }

    fn apply(&mut self, queue: &mut SendQueue<u32>, op: &Op) {
        match *op {
            Op::Open(channel, credit) => {
                let opened = queue.open(ChannelId(channel), credit, channel).is_ok();
                assert_eq!(opened, !self.channels.contains_key(&channel));
                self.channels.entry(channel).or_insert_with(|| (credit, VecDeque::new()));
            }
            Op::Cancel(channel) => {
                let view = queue.cancel(ChannelId(channel));
                assert_eq!(view, self.channels.remove(&channel).map(|_| channel));
                self.order.retain(|other| *other != channel);
                self.seen.remove(&channel);
            }
            Op::Grant(channel, more) => {
                let next = self.next(channel);
                let granted = queue.grant(ChannelId(channel), credit(more), next).is_ok();
                assert_eq!(granted, self.channels.contains_key(&channel));
                if let Some((credit, _)) = self.channels.get_mut(&channel) {
                    *credit += more;
                    self.line_up(channel);
                    self.see(channel, next);
                }
            }
            Op::Notify(channel) => {
                queue.notify(ChannelId(channel), self.next(channel));
                self.see(channel, self.next(channel));
            }
            Op::Push(channel, event) => self.push(queue, channel, event, false),
            Op::Send(push) => self.send(queue, push),
        }
    }

    fn send(&mut self, queue: &mut SendQueue<u32>, push: Option<(u32, bool)>) {
        let turn = (!self.order.is_empty()).then(|| self.order.remove(0));
        assert_eq!(queue.poll(), turn.map(ChannelId));
        let Some(channel) = turn else { return };
        if let Some((other, event)) = push {
            self.push(queue, other, event, other == channel);
        }
        let (credit, buffers) = self.channels.get_mut(&channel).unwrap();
        let event = buffers.pop_front().expect("a turn comes with a buffer");
        if !event {
            *credit = credit.checked_sub(1).expect("a turn with data comes with credit");
        }
        assert_eq!(queue.sent(ChannelId(channel), event, self.next(channel)), Ok(()));
        self.see(channel, self.next(channel));
        self.line_up(channel);
    }
}

proptest! {
    #[test]
    fn behaves_as_a_line_of_people(ops in ops()) {
        let (mut queue, mut naive) = (SendQueue::new(), Naive::default());
        for op in &ops {
            naive.apply(&mut queue, op);
            prop_assert_eq!(queue.has_available(), !naive.order.is_empty());
            prop_assert_eq!(queue.len(), naive.channels.len());
            prop_assert_eq!(queue.num_starved(), naive.seen.values().filter(|seen| **seen).count());
            for (channel, (credit, _)) in &naive.channels {
                prop_assert_eq!(queue.credit(ChannelId(*channel)), Some(*credit));
                prop_assert_eq!(queue.view(ChannelId(*channel)), Some(channel));
            }
        }
        // All that stand in line have their turn, in that order.
        while !naive.order.is_empty() {
            naive.send(&mut queue, None);
        }
        prop_assert_eq!(queue.poll(), None);
    }
}
