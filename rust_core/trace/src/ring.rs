//! A ring of the newest events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::SystemTime;

use crate::event::{Event, Kind};

/// One recorded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the event in this process; those of a trace increase.
    pub number: u64,
    /// Time of the event.
    pub at: SystemTime,
    /// Kind of the event.
    pub kind: Kind,
    /// The event.
    pub event: Event,
}

/// Recorded events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The newest events, the oldest of them first.
    pub entries: Vec<Entry>,
    /// Number of events that were recorded and are not among `entries`.
    pub missing: u64,
}

/// A slot is locked for one write or one copy, and nobody waits for its lock: a thread that finds it taken gives up its
/// event. So a slot that was locked during a fork costs the child this slot, and not its life.
pub(crate) struct Ring {
    slots: Box<[Mutex<Option<Entry>>]>,
    /// Number of the next event.
    next: AtomicU64,
    /// Number of the first event since the last `clear`.
    first: AtomicU64,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| Mutex::new(None)).collect(),
            next: AtomicU64::new(0),
            first: AtomicU64::new(0),
        }
    }

    pub(crate) fn push(&self, kind: Kind, event: Event) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, at: SystemTime::now(), kind, event };
        let slot = &self.slots[(number % self.slots.len() as u64) as usize];
        if let Some(mut slot) = try_lock(slot)
            // A thread that was stopped for a whole round must not put an old event over a new one.
            && slot.as_ref().is_none_or(|there| there.number < number)
        {
            *slot = Some(entry);
        }
    }

    pub(crate) fn last(&self, most: usize) -> Trace {
        let (first, end) = (self.first.load(Ordering::Relaxed), self.next.load(Ordering::Relaxed));
        let copy = |slot: &Mutex<Option<Entry>>| {
            try_lock(slot)?.as_ref().filter(|entry| entry.number >= first).cloned()
        };
        let mut entries: Vec<Entry> = self.slots.iter().filter_map(copy).collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        entries.drain(..entries.len().saturating_sub(most));
        // Events that were recorded during the copy are among the entries, and not counted.
        let missing = (end - first).saturating_sub(entries.len() as u64);
        Trace { entries, missing }
    }

    pub(crate) fn clear(&self) {
        self.first.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Takes a lock that is free, also after a panic of its holder: an entry is replaced as a whole.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn gates(trace: &Trace) -> Vec<u64> {
        let gate = |entry: &Entry| match entry.event {
            Event::Waits { gate } => gate,
            _ => panic!("nobody recorded {entry:?}"),
        };
        trace.entries.iter().map(gate).collect()
    }

    fn push(ring: &Ring, gates: impl IntoIterator<Item = u64>) {
        gates.into_iter().for_each(|gate| ring.push(Kind::Gate, Event::Waits { gate }));
    }

    #[test]
    fn the_newest_events_are_kept_and_the_others_counted() {
        let ring = Ring::new(4);
        assert_eq!(ring.last(9), Trace::default());
        push(&ring, 0..3);
        assert_eq!((gates(&ring.last(9)), ring.last(9).missing), (vec![0, 1, 2], 0));
        push(&ring, 3..7);
        assert_eq!((gates(&ring.last(9)), ring.last(9).missing), (vec![3, 4, 5, 6], 3));
        assert_eq!((gates(&ring.last(2)), ring.last(2).missing), (vec![5, 6], 5));
        ring.clear();
        assert_eq!(ring.last(9), Trace::default());
        push(&ring, 7..9);
        assert_eq!((gates(&ring.last(9)), ring.last(9).missing), (vec![7, 8], 0));
    }

    #[test]
    fn a_locked_slot_costs_its_event_and_nobody_waits_for_it() {
        let ring = Ring::new(2);
        let locked = ring.slots[0].lock().expect("nobody panics");
        push(&ring, 0..2);
        assert_eq!((gates(&ring.last(9)), ring.last(9).missing), (vec![1], 1));
        drop(locked);
        push(&ring, 2..3);
        assert_eq!((gates(&ring.last(9)), ring.last(9).missing), (vec![1, 2], 1));
    }

    #[test]
    fn events_of_many_threads_are_all_kept_or_counted() {
        let ring = Ring::new(64);
        thread::scope(|scope| {
            for thread in 0..4 {
                let ring = &ring;
                scope.spawn(move || push(ring, (0..1000).map(|event| 1000 * thread + event)));
            }
            scope.spawn(|| {
                for _ in 0..100 {
                    let trace = ring.last(64);
                    assert!(trace.entries.is_sorted_by(|one, next| one.number < next.number));
                }
            });
        });
        let trace = ring.last(64);
        assert_eq!(trace.entries.len() as u64 + trace.missing, 4000);
        assert!(!trace.entries.is_empty());
    }
}
