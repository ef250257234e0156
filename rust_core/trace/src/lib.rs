//! The trace of a process: the last events on its connections, at its gates and of its kept files, for a person who
//! looks for the cause of a fault.
//!
//! Nothing is recorded before [`set`] is called. Then [`record`] puts an event into a ring of [`CAPACITY`] events. It
//! waits for no other thread, so the I/O thread and a forked child may record at any moment.
//!
//! Decision: ADR 0001.

#![forbid(unsafe_code)]

mod event;
mod ring;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

pub use event::{Event, Kind, text};
use ring::Ring;
pub use ring::{Entry, Trace};

/// Number of events that are kept; a newer one takes the place of the oldest.
pub const CAPACITY: usize = 4096;

/// The kinds that are recorded, one bit each.
static RECORDED: AtomicU8 = AtomicU8::new(0);
/// Allocated by the first [`set`] that records something.
static RING: OnceLock<Ring> = OnceLock::new();

/// Records these kinds in this process from now on, and no others. What was recorded before stays.
pub fn set(kinds: &[Kind]) {
    if !kinds.is_empty() {
        RING.get_or_init(|| Ring::new(CAPACITY));
    }
    let bits = kinds.iter().fold(0, |bits, kind| bits | *kind as u8);
    RECORDED.store(bits, Ordering::Relaxed);
}

/// Returns the kinds that are recorded now.
pub fn recorded() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| is_recorded(*kind)).collect()
}

/// Records an event if its kind is wanted. If not, that costs one relaxed load, and the event is not made.
#[inline]
pub fn record(kind: Kind, event: impl FnOnce() -> Event) {
    if is_recorded(kind) {
        push(kind, event());
    }
}

/// Returns the newest events, at most `most`, the oldest of them first.
pub fn last(most: usize) -> Trace {
    RING.get().map_or_else(Trace::default, |ring| ring.last(most))
}

/// Forgets all events, such as those of the parent in a forked child.
pub fn clear() {
    if let Some(ring) = RING.get() {
        ring.clear();
    }
}

#[inline]
fn is_recorded(kind: Kind) -> bool {
    RECORDED.load(Ordering::Relaxed) & kind as u8 != 0
}

#[cold]
fn push(kind: Kind, event: Event) {
    if let Some(ring) = RING.get() {
        ring.push(kind, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_made_only_if_its_kind_is_recorded() {
        let made = |kind| {
            let mut was_made = false;
            record(kind, || {
                was_made = true;
                Event::Waits { gate: 1 }
            });
            was_made
        };
        assert!(Kind::ALL.into_iter().all(|kind| !made(kind)));
        assert_eq!((recorded(), last(9)), (vec![], Trace::default()));

        set(&[Kind::Net, Kind::Kept]);
        assert_eq!(recorded(), [Kind::Net, Kind::Kept]);
        assert_eq!(Kind::ALL.map(made), [true, false, true]);
        assert_eq!(last(9).entries.len(), 2);

        set(&[]);
        assert!(Kind::ALL.into_iter().all(|kind| !made(kind)));
        assert_eq!(last(9).entries.len(), 2, "what was recorded stays");
        clear();
        assert_eq!(last(9), Trace::default());
    }
}
