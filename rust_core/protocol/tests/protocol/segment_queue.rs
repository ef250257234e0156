//! Free segments go to the channels of a gate in turn, promised ones first.

use headgate_protocol::BufferKind::{self, Exclusive, Floating};
use headgate_protocol::{QueuedFor, SegmentQueue};
use proptest::prelude::*;

/// A queue and the places of its channels, as a driver keeps them.
#[derive(Clone, Default)]
struct Channels {
    queue: SegmentQueue<u8>,
    queued_for: [QueuedFor; 5],
}

impl Channels {
    fn update(&mut self, channel: u8, wants: Option<BufferKind>) {
        self.queue.update(&channel, &mut self.queued_for[usize::from(channel)], wants);
    }

    /// The channels in the order in which they get segments.
    fn order(&self) -> Vec<u8> {
        let mut channels = self.clone();
        let mut order = Vec::new();
        while let Some(channel) = channels.queue.next().copied() {
            channels.update(channel, None);
            order.push(channel);
        }
        order
    }
}

#[test]
fn a_missing_exclusive_segment_comes_before_floating_ones() {
    let mut channels = Channels::default();
    for (channel, kind) in [(1, Floating), (2, Exclusive), (3, Floating), (4, Exclusive)] {
        channels.update(channel, Some(kind));
    }
    assert!(channels.queue.misses_exclusive());
    assert_eq!(channels.order(), [2, 4, 1, 3]);
}

#[test]
fn a_channel_keeps_its_turn_until_it_wants_another_kind() {
    let mut channels = Channels::default();
    for channel in [1, 2, 3] {
        channels.update(channel, Some(Floating));
    }
    channels.update(1, Some(Floating));
    assert_eq!(channels.order(), [1, 2, 3], "asked again");
    channels.update(3, Some(Exclusive));
    assert_eq!(channels.order(), [3, 1, 2]);
    channels.update(3, Some(Floating));
    channels.update(1, None);
    assert_eq!(channels.order(), [2, 3]);
    assert!(!channels.queue.misses_exclusive());
    assert_eq!(channels.queue.drain().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(channels.queue.next(), None);
    channels.queued_for = Default::default();
    channels.update(2, Some(Floating));
    assert_eq!(channels.order(), [2], "a channel can be queued again");
}

#[test]
fn during_an_admission_only_exclusive_segments_are_handed_out() {
    let mut channels = Channels::default();
    channels.update(1, Some(Floating));
    channels.queue.begin_admission();
    channels.queue.begin_admission();
    assert_eq!(channels.queue.next(), None);
    channels.update(2, Some(Exclusive));
    assert_eq!(channels.queue.next(), Some(&2));
    channels.update(2, None);
    channels.queue.end_admission();
    assert_eq!(channels.queue.next(), None, "one admission goes on");
    channels.queue.end_admission();
    assert_eq!(channels.queue.next(), Some(&1));
}

#[test]
fn the_pool_has_one_listener_at_a_time() {
    let mut queue = SegmentQueue::<u8>::default();
    assert!(!queue.is_listening());
    queue.on_empty();
    assert!(queue.is_listening());
    queue.on_available();
    assert!(!queue.is_listening());
}

fn wants() -> impl Strategy<Value = Option<BufferKind>> {
    prop_oneof![Just(None), Just(Some(Exclusive)), Just(Some(Floating))]
}

proptest! {
    /// The queue against two plain lists.
    #[test]
    fn behaves_as_one_list_per_kind(
        steps in prop::collection::vec((0u8..5, wants()), 0..60),
    ) {
        let mut channels = Channels::default();
        let (mut exclusive, mut floating) = (Vec::new(), Vec::new());
        for (channel, wants) in steps {
            channels.update(channel, wants);
            for (list, kind) in [(&mut exclusive, Exclusive), (&mut floating, Floating)] {
                match (wants == Some(kind), list.contains(&channel)) {
                    (true, false) => list.push(channel),
                    (false, true) => list.retain(|other| *other != channel),
                    _ => {}
                }
            }
            prop_assert_eq!(channels.queue.misses_exclusive(), !exclusive.is_empty());
            prop_assert_eq!(channels.order(), [&exclusive[..], &floating[..]].concat());
        }
    }
}
