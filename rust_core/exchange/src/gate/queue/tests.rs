//! The queue by itself: the order of reading, and the calls to listeners.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

fn queue(channels: usize) -> GateQueue {
    let queue = GateQueue::new(Idle::new(Vec::new()));
    queue.lock().channels.extend((0..channels).map(|_| Slot::new(None)));
    queue
}

/// Returns the queued channels in order.
fn order(queue: &GateQueue) -> Vec<usize> {
    queue.lock().queue.iter().copied().collect()
}

/// Takes the first channel out of the queue, as the reader does.
fn pop(queue: &GateQueue) -> usize {
    let mut state = queue.lock();
    let index = state.queue.poll().unwrap();
    state.channels[index].queued = false;
    index
}

#[derive(Default)]
struct Told {
    data: AtomicUsize,
    priority: AtomicUsize,
}

impl Told {
    fn counts(&self) -> (usize, usize) {
        (self.data.load(Ordering::Relaxed), self.priority.load(Ordering::Relaxed))
    }
}

impl AvailabilityListener for Told {
    fn data_available(&self) {
        self.data.fetch_add(1, Ordering::Relaxed);
    }

    fn priority_available(&self) {
        self.priority.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn spec_8_01_a_channel_is_queued_once() {
    let queue = queue(2);
    for channel in [0, 1, 0, 1, 1] {
        queue.notify_non_empty(channel);
    }
    assert_eq!(order(&queue), [0, 1]);
    queue.notify_non_empty(7);
    assert_eq!(order(&queue), [0, 1], "there is no such channel");
}

#[test]
fn a_priority_event_promotes_its_channel() {
    let queue = queue(4);
    for channel in 0..3 {
        queue.notify_non_empty(channel);
    }
    queue.notify_priority_event(2, Sequence(5));
    queue.notify_priority_event(3, Sequence(0));
    queue.notify_priority_event(2, Sequence(5));
    assert_eq!(order(&queue), [2, 3, 0, 1]);
    queue.notify_non_empty(3);
    assert_eq!(order(&queue), [2, 3, 0, 1], "it is queued already");
}

#[test]
fn an_outdated_priority_notification_is_ignored_also_where_numbers_wrap() {
    let queue = queue(1);
    for (sequence, read_since) in
        [(Sequence(u32::MAX - 1), true), (Sequence(u32::MAX), true), (Sequence(1), false)]
    {
        queue.notify_priority_event(0, sequence);
        assert_eq!(pop(&queue), 0);
        assert_eq!(queue.taken(0, More::Nothing, Some(sequence)), (false, false));
        queue.notify_priority_event(0, sequence);
        queue.notify_priority_event(0, Sequence(sequence.0.wrapping_sub(1)));
        assert_eq!(order(&queue), [] as [usize; 0], "{sequence} read before: {read_since}");
    }
}

#[test]
fn a_channel_with_another_priority_event_stays_in_front() {
    let queue = queue(2);
    queue.notify_non_empty(0);
    queue.notify_priority_event(1, Sequence(3));
    queue.notify_priority_event(1, Sequence(4));
    assert_eq!(pop(&queue), 1);
    assert_eq!(queue.taken(1, More::Something, Some(Sequence(3))), (true, true));
    assert_eq!(order(&queue), [1, 0]);
    assert_eq!(pop(&queue), 1);
    assert_eq!(queue.taken(1, More::Something, Some(Sequence(4))), (true, false));
    assert_eq!(order(&queue), [0, 1]);
}

#[test]
fn notifications_after_the_end_of_a_channel_are_ignored() {
    let queue = queue(2);
    queue.lock().sealed = true;
    queue.notify_non_empty(0);
    assert!(queue.end(0).unwrap().is_none(), "its producer is not known");
    assert!(queue.end(0).is_err(), "not twice");
    queue.notify_non_empty(0);
    queue.notify_priority_event(0, Sequence(0));
    assert_eq!(order(&queue), [] as [usize; 0]);
    assert!(!queue.lock().is_available());
    queue.end(1).unwrap();
    assert!(queue.lock().is_finished() && queue.lock().is_available(), "for good");
}

#[test]
fn listeners_are_told_once_until_the_reader_found_nothing_more() {
    let queue = queue(2);
    let told = Arc::new(Told::default());
    let listener: Arc<dyn AvailabilityListener> = Arc::clone(&told) as _;
    queue.add_listener(Arc::downgrade(&listener));
    assert_eq!(told.counts(), (0, 0));
    queue.notify_non_empty(0);
    queue.notify_non_empty(1);
    assert_eq!(told.counts(), (1, 0), "the second one changes nothing for the reader");
    pop(&queue);
    assert_eq!(queue.taken(0, More::Nothing, None), (true, false));
    queue.notify_non_empty(0);
    assert_eq!(told.counts(), (1, 0), "the reader knows that there is more");
    pop(&queue);
    pop(&queue);
    assert_eq!(queue.taken(0, More::Nothing, None), (false, false));
    queue.notify_priority_event(1, Sequence(9));
    queue.notify_priority_event(0, Sequence(9));
    assert_eq!(
        told.counts(),
        (2, 1),
        "one because the queue was empty, one because no event had priority"
    );
    let late = Arc::new(Told::default());
    let listener: Arc<dyn AvailabilityListener> = Arc::clone(&late) as _;
    queue.add_listener(Arc::downgrade(&listener));
    assert_eq!(late.counts(), (1, 1), "told at once");
    drop((late, listener));
    queue.close();
    assert_eq!(queue.lock().listeners.len(), 2);
    let listener: Arc<dyn AvailabilityListener> = Arc::clone(&told) as _;
    queue.add_listener(Arc::downgrade(&listener));
    assert_eq!(queue.lock().listeners.len(), 2, "the listener without owner is dropped");
}

#[test]
fn spec_8_04_the_data_ends_when_all_say_so_and_is_drained_only_if_all_drained() {
    for (second, status) in
        [(StopMode::Drain, EndOfDataStatus::Drained), (StopMode::NoDrain, EndOfDataStatus::Stopped)]
    {
        let queue = queue(2);
        queue.lock().sealed = true;
        queue.end_of_data(0, StopMode::Drain);
        queue.end_of_data(0, StopMode::Drain);
        assert_eq!(queue.lock().end_of_data_status(), EndOfDataStatus::NotEndOfData);
        queue.end_of_data(1, second);
        assert_eq!(queue.lock().end_of_data_status(), status);
    }
}

/// The queue as the spec describes it: a list of channels, searched from the front.
#[derive(Default)]
struct Naive {
    /// Queued channels, and true for those with priority.
    waiting: Vec<(usize, bool)>,
    ended: HashSet<usize>,
    /// Priority events of each channel, announced and not read yet.
    urgent: HashMap<usize, Vec<u32>>,
    last_read: HashMap<usize, u32>,
}

impl Naive {
    fn put(&mut self, channel: usize, priority: bool) {
        match self.waiting.iter().position(|(waiting, _)| *waiting == channel) {
            Some(at) if priority && !self.waiting[at].1 => {
                self.waiting.remove(at);
            }
            Some(_) => return,
            None => {}
        }
        let at = match priority {
            true => self.waiting.iter().take_while(|(_, priority)| *priority).count(),
            false => self.waiting.len(),
        };
        self.waiting.insert(at, (channel, priority));
    }

    fn announce(&mut self, channel: usize, number: u32) {
        let read = self.last_read.get(&channel).is_some_and(|last| *last >= number);
        if !self.ended.contains(&channel) && !read {
            self.urgent.entry(channel).or_default().push(number);
            self.put(channel, true);
        }
    }

    fn notify(&mut self, channel: usize) {
        if !self.ended.contains(&channel) {
            self.put(channel, false);
        }
    }

    /// Records a poll: the priority event that was read, and true if the channel has more.
    fn taken(&mut self, channel: usize, more: bool, read: Option<u32>) {
        let urgent = self.urgent.entry(channel).or_default();
        if let Some(number) = read {
            urgent.retain(|announced| *announced > number);
            self.last_read.insert(channel, number);
        }
        if !urgent.is_empty() && !self.ended.contains(&channel) {
            self.put(channel, true);
        } else if more {
            self.notify(channel);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_a_naive_list_does(
        steps in prop::collection::vec((0_u8..6, 0_usize..4, any::<bool>()), 0..120),
    ) {
        let (queue, mut naive) = (queue(4), Naive::default());
        queue.lock().sealed = true;
        let mut numbers = [0_u32; 4];
        for (step, channel, more) in steps {
            match step {
                0 | 1 => {
                    queue.notify_non_empty(channel);
                    naive.notify(channel);
                }
                2 => {
                    // A new event, or an old one announced late.
                    numbers[channel] += u32::from(more);
                    queue.notify_priority_event(channel, Sequence(numbers[channel]));
                    naive.announce(channel, numbers[channel]);
                }
                3 | 4 if !naive.waiting.is_empty() => {
                    let (expected, _) = naive.waiting.remove(0);
                    prop_assert_eq!(pop(&queue), expected);
                    let urgent = naive.urgent.get(&expected).and_then(|all| all.first().copied());
                    let behind = if more { More::Something } else { More::Nothing };
                    let known = queue.taken(expected, behind, urgent.map(Sequence));
                    naive.taken(expected, more, urgent);
                    let priority = naive.waiting.first().is_some_and(|(_, priority)| *priority);
                    prop_assert_eq!(known, (!naive.waiting.is_empty(), priority));
                }
                5 if more => {
                    prop_assert_eq!(queue.end(channel).is_ok(), naive.ended.insert(channel));
                    naive.waiting.retain(|(waiting, _)| *waiting != channel);
                }
                _ => {}
            }
            let waiting: Vec<_> = naive.waiting.iter().map(|(channel, _)| *channel).collect();
            prop_assert_eq!(order(&queue), waiting);
        }
    }
}
