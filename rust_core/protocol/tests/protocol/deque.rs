//! Priority first, otherwise first in, first out.

use headgate_protocol::{NotFound, PrioritizedDeque};
use proptest::prelude::*;

fn drain<T>(deque: &mut PrioritizedDeque<T>) -> Vec<T> {
    std::iter::from_fn(|| deque.poll()).collect()
}

#[test]
fn spec_3_01_prioritize_moves_to_the_front() {
    let mut deque = PrioritizedDeque::new();
    (0..4).for_each(|element| deque.add(element));
    assert!(deque.prioritize(|element| *element == 3));
    assert_eq!(drain(&mut deque), [3, 0, 1, 2]);
}

#[test]
fn spec_3_02_priorities_keep_their_order() {
    let mut deque = PrioritizedDeque::new();
    deque.add_priority('a');
    deque.add('x');
    deque.add_priority('b');
    deque.add('y');
    assert_eq!(drain(&mut deque), ['a', 'b', 'x', 'y']);
}

#[test]
fn spec_3_04_removing_a_priority_element_shrinks_the_section() {
    let mut deque = PrioritizedDeque::new();
    deque.add('x');
    deque.add_priority('a');
    deque.add_priority('b');
    assert_eq!(deque.remove_first(|element| *element == 'a'), Ok('a'));
    assert_eq!(deque.priority_len(), 1);
    deque.add_priority('c');
    assert_eq!(drain(&mut deque), ['b', 'c', 'x']);
}

#[test]
fn spec_3_05_prioritize_twice_counts_once() {
    let mut deque = PrioritizedDeque::new();
    (0..3).for_each(|element| deque.add(element));
    assert!(deque.prioritize(|element| *element == 2));
    assert!(deque.prioritize(|element| *element == 2));
    assert!(!deque.prioritize(|element| *element == 9));
    assert_eq!((deque.priority_len(), deque.len()), (1, 3));
    assert_eq!(drain(&mut deque), [2, 0, 1]);
}

#[test]
fn equal_elements_stay_apart() {
    let mut deque = PrioritizedDeque::new();
    [1, 2, 1, 2].into_iter().for_each(|element| deque.add(element));
    assert_eq!(deque.remove_first(|element| *element == 2), Ok(2));
    assert_eq!(deque.iter().copied().collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(deque.remove_first(|element| *element == 9), Err(NotFound));
    assert_eq!(deque.len(), 3);
}

#[derive(Clone, Debug)]
enum Op {
    Add,
    AddPriority,
    Clear,
    Poll,
    PollLast,
    Prioritize(usize),
    Remove(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => Just(Op::Add),
        4 => Just(Op::AddPriority),
        4 => Just(Op::Poll),
        2 => Just(Op::PollLast),
        3 => (0usize..12).prop_map(Op::Prioritize),
        3 => (0usize..12).prop_map(Op::Remove),
        1 => Just(Op::Clear),
    ];
    prop::collection::vec(op, 0..80)
}

proptest! {
    /// Compares with two plain lists, one per section.
    #[test]
    fn behaves_as_two_lists(ops in ops()) {
        let mut deque = PrioritizedDeque::new();
        let (mut priority, mut ordinary) = (Vec::new(), Vec::new());
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Add => { deque.add(number); ordinary.push(number); }
                Op::AddPriority => { deque.add_priority(number); priority.push(number); }
                Op::Clear => { deque.clear(); priority.clear(); ordinary.clear(); }
                Op::Poll => {
                    let from = if priority.is_empty() { &mut ordinary } else { &mut priority };
                    let want = (!from.is_empty()).then(|| from.remove(0));
                    prop_assert_eq!(deque.poll(), want);
                }
                Op::PollLast => {
                    let want = ordinary.pop().or_else(|| priority.pop());
                    prop_assert_eq!(deque.poll_last(), want);
                }
                Op::Prioritize(at) => {
                    let all = [priority.clone(), ordinary.clone()].concat();
                    let element = all.get(at).copied().unwrap_or(usize::MAX);
                    prop_assert_eq!(deque.prioritize(|other| *other == element), at < all.len());
                    if let Some(at) = ordinary.iter().position(|other| *other == element) {
                        priority.push(ordinary.remove(at));
                    }
                }
                Op::Remove(at) => {
                    let all = [priority.clone(), ordinary.clone()].concat();
                    let element = all.get(at).copied().unwrap_or(usize::MAX);
                    let want = all.get(at).copied().ok_or(NotFound);
                    prop_assert_eq!(deque.remove_first(|other| *other == element), want);
                    priority.retain(|other| *other != element);
                    ordinary.retain(|other| *other != element);
                }
            }
            let mut all = [priority.clone(), ordinary.clone()].concat();
            prop_assert_eq!(deque.iter().copied().collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(deque.priority_len(), priority.len());
            prop_assert_eq!((deque.len(), deque.is_empty()), (all.len(), all.is_empty()));
            prop_assert_eq!(deque.peek(), all.first());
            prop_assert_eq!(deque.peek_last(), all.last());
            prop_assert_eq!(deque.peek_mut(), all.first_mut());
            prop_assert_eq!(deque.peek_last_mut(), all.last_mut());
        }
    }
}
