//! Free segments go to the channels of a gate in turn, promised ones first.

use headgate_protocol::BufferKind::{self, Exclusive, Floating};
use headgate_protocol::SegmentQueue;
use proptest::prelude::*;

/// Takes all channels out of the queue, in their order.
fn order(queue: &SegmentQueue<u8>) -> Vec<u8> {
    let mut queue = queue.clone();
    let mut order = Vec::new();
    while let Some(channel) = queue.next().copied() {
        queue.update(&channel, None);
        order.push(channel);
    }
    order
}

#[test]
fn a_missing_exclusive_segment_comes_before_floating_ones() {
    let mut queue = SegmentQueue::new();
    for (channel, kind) in [(1, Floating), (2, Exclusive), (3, Floating), (4, Exclusive)] {
        queue.update(&channel, Some(kind));
    }
    assert!(queue.misses_exclusive());
    assert_eq!(order(&queue), [2, 4, 1, 3]);
}

#[test]
fn a_channel_keeps_its_turn_until_it_wants_another_kind() {
    let mut queue = SegmentQueue::new();
    for channel in [1, 2, 3] {
        queue.update(&channel, Some(Floating));
    }
    queue.update(&1, Some(Floating));
    assert_eq!(order(&queue), [1, 2, 3], "asked again");
    queue.update(&3, Some(Exclusive));
    assert_eq!(order(&queue), [3, 1, 2]);
    queue.update(&3, Some(Floating));
    queue.update(&1, None);
    assert_eq!(order(&queue), [2, 3]);
    assert!(!queue.misses_exclusive());
    queue.clear();
    assert_eq!(queue.next(), None);
    queue.update(&2, Some(Floating));
    assert_eq!(order(&queue), [2], "a cleared channel can be queued again");
}

#[test]
fn during_an_admission_only_exclusive_segments_are_handed_out() {
    let mut queue = SegmentQueue::new();
    queue.update(&1, Some(Floating));
    queue.begin_admission();
    queue.begin_admission();
    assert_eq!(queue.next(), None);
    queue.update(&2, Some(Exclusive));
    assert_eq!(queue.next(), Some(&2));
    queue.update(&2, None);
    queue.end_admission();
    assert_eq!(queue.next(), None, "one admission goes on");
    queue.end_admission();
    assert_eq!(queue.next(), Some(&1));
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
        let mut queue = SegmentQueue::new();
        let (mut exclusive, mut floating) = (Vec::new(), Vec::new());
        for (channel, wants) in steps {
            queue.update(&channel, wants);
            for (list, kind) in [(&mut exclusive, Exclusive), (&mut floating, Floating)] {
                match (wants == Some(kind), list.contains(&channel)) {
                    (true, false) => list.push(channel),
                    (false, true) => list.retain(|other| *other != channel),
                    _ => {}
                }
            }
            prop_assert_eq!(queue.misses_exclusive(), !exclusive.is_empty());
            prop_assert_eq!(order(&queue), [&exclusive[..], &floating[..]].concat());
        }
    }
}
