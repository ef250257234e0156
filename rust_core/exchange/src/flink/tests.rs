//! Unions of gates (spec 8.5).

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::task::Poll;

use headgate_protocol::DataType;

use super::UnionInputGate;
use crate::error::ExchangeError;
use crate::gate::DataInput;
use crate::gate::tests::{add, custom, drain, event, gate, local, pairs, poll, pool, text};

#[test]
fn spec_section_8_5_a_union_counts_channels_over_its_gates_and_serves_the_gates_in_turn() {
    let pool = pool();
    let (one, two) = (gate(&pool), gate(&pool));
    let a = local(&pool, &one, 1);
    let (b, c) = (local(&pool, &two, 2), local(&pool, &two, 3));
    one.seal();
    two.seal();
    let union = UnionInputGate::new(vec![one, two]).unwrap();
    assert_eq!(union.num_channels(), 3);
    for texts in [["a0", "b0", "c0"], ["a1", "b1", "c1"]] {
        for (partition, text) in [&a, &b, &c].into_iter().zip(texts) {
            add(partition, text);
        }
    }
    let expected = [(0, "a0"), (1, "b0"), (0, "a1"), (2, "c0"), (1, "b1"), (2, "c1")];
    assert_eq!(drain(&union), pairs(&expected));
    assert!(!union.is_available() && !union.is_finished());
    assert!(union.channel_name(2).starts_with("local channel 0303"), "{}", union.channel_name(2));
    for partition in [&a, &b, &c] {
        partition.subpartitions()[0].finish();
    }
    assert_eq!(drain(&union).len(), 3, "the end of each gate is an ordinary event");
    assert!(union.is_finished() && matches!(union.poll_next(), Ok(Poll::Ready(None))));
}

#[test]
fn spec_section_8_5_a_gate_with_a_priority_event_comes_first_unless_it_was_polled_meanwhile() {
    let pool = pool();
    let (one, two) = (gate(&pool), gate(&pool));
    let (a, b) = (local(&pool, &one, 1), local(&pool, &two, 2));
    one.seal();
    two.seal();
    let union = UnionInputGate::new(vec![one, Arc::clone(&two)]).unwrap();
    add(&a, "a0");
    add(&b, "b0");
    event(&b, &custom("urgent"), DataType::PrioritizedEventBuffer);
    let first = poll(&union).unwrap();
    assert_eq!((first.channel, text(&first)), (1, "urgent".to_owned()));
    assert!(first.more_available && !first.more_priority_events);
    assert_eq!(drain(&union), pairs(&[(0, "a0"), (1, "b0")]));
    // A gate that was promoted for an event read meanwhile must not push its data to the front.
    event(&b, &custom("gone"), DataType::PrioritizedEventBuffer);
    assert_eq!(text(&poll(&*two).unwrap()), "gone");
    add(&a, "a1");
    add(&b, "b1");
    assert_eq!(drain(&union).iter().map(|(_, text)| &text[1..]).collect::<String>(), "11");
}

#[test]
fn spec_section_8_5_a_union_needs_two_sealed_gates_and_closes_none_of_them() {
    let pool = pool();
    let gates = [gate(&pool), gate(&pool)];
    let both = || gates.iter().map(Arc::clone).collect::<Vec<_>>();
    assert!(UnionInputGate::new(both()).is_err(), "not sealed");
    let partition = local(&pool, &gates[0], 1);
    gates.iter().for_each(|gate| gate.seal());
    assert!(UnionInputGate::new(vec![Arc::clone(&gates[0])]).is_err(), "one gate");
    let twice = vec![Arc::clone(&gates[0]), Arc::clone(&gates[0])];
    assert!(UnionInputGate::new(twice).is_err(), "one gate twice");
    let union = UnionInputGate::new(both()).unwrap();
    union.close();
    assert!(matches!(union.poll_next(), Err(ExchangeError::Closed(_))));
    add(&partition, "still read");
    assert_eq!(drain(&*gates[0]), pairs(&[(0, "still read")]));
}
