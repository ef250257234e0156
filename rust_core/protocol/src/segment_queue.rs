//! The channels of a gate that wait for segments, in the order in which they get them.

use std::collections::BTreeMap;

use crate::{BufferKind, PrioritizedDeque};

/// Decides which channel of a gate gets the next free segment, and when the pool is asked for one.
///
/// The driver [updates](Self::update) a channel whenever its [`wants`](crate::ReceiveLedger::wants)
/// may have changed. To hand out segments it repeats, until [`next`](Self::next) returns `None` or
/// the pool is empty: take a free segment, take the channel out of the queue, offer it the segment,
/// and update it again. So each waiting channel gets one segment per turn.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SegmentQueue<C> {
    /// Waiting channels, each once. Those that miss an exclusive segment are the priority elements.
    waiting: PrioritizedDeque<C>,
    /// The kind of segment that each channel in `waiting` waits for.
    kinds: BTreeMap<C, BufferKind>,
    /// Channels that are being admitted to the gate.
    admissions: usize,
    /// True while the pool has a listener that calls [`on_available`](Self::on_available).
    listening: bool,
}

impl<C: Clone + Ord> SegmentQueue<C> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            waiting: PrioritizedDeque::new(),
            kinds: BTreeMap::new(),
            admissions: 0,
            listening: false,
        }
    }

    /// Records what `channel` wants now: queues it, moves it, or takes it out of the queue. A
    /// channel that waits for the same kind already keeps its turn.
    pub fn update(&mut self, channel: &C, wants: Option<BufferKind>) {
        let before = match wants {
            Some(kind) => self.kinds.insert(channel.clone(), kind),
            None => self.kinds.remove(channel),
        };
        if before == wants {
            return;
        }
        if before.is_some() {
            let removed = self.waiting.remove_first(|other| other == channel);
            debug_assert!(removed.is_ok(), "`kinds` and `waiting` have the same channels");
        }
        match wants {
            Some(BufferKind::Exclusive) => self.waiting.add_priority(channel.clone()),
            Some(BufferKind::Floating) => self.waiting.add(channel.clone()),
            None => {}
        }
    }

    /// Returns the channel that gets the next free segment, if any may have one now.
    #[must_use]
    pub fn next(&self) -> Option<&C> {
        // During an admission the free segments belong to the new channel: given out as floating
        // ones they would be missing there.
        if self.admissions > 0 && !self.misses_exclusive() { None } else { self.waiting.peek() }
    }

    /// Returns true if a channel waits for an exclusive segment.
    #[must_use]
    pub const fn misses_exclusive(&self) -> bool {
        self.waiting.priority_len() > 0
    }

    /// Begins the admission of a channel to the gate; no floating segment is handed out meanwhile.
    pub const fn begin_admission(&mut self) {
        self.admissions += 1;
    }

    /// Ends the admission of a channel. The driver hands out segments next.
    pub const fn end_admission(&mut self) {
        self.admissions -= 1;
    }

    /// Returns true while the pool calls back as soon as it has a free segment.
    #[must_use]
    pub const fn is_listening(&self) -> bool {
        self.listening
    }

    /// Records that the pool is empty and has a listener now.
    pub const fn on_empty(&mut self) {
        self.listening = true;
    }

    /// Records that the pool called its listener, which it does once. The driver hands out segments
    /// next.
    pub const fn on_available(&mut self) {
        self.listening = false;
    }

    /// Takes all channels out of the queue.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.kinds.clear();
    }
}

impl<C: Clone + Ord> Default for SegmentQueue<C> {
    fn default() -> Self {
        Self::new()
    }
}
