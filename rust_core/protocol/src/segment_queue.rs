//! The channels of a gate that wait for segments, in the order in which they get them.

use crate::{BufferKind, PrioritizedDeque};

/// The kind of segment that a channel is queued for, if it is queued.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct QueuedFor(Option<BufferKind>);

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
    /// Channels that are being admitted to the gate.
    admissions: usize,
    /// True while the pool has a listener that calls [`on_available`](Self::on_available).
    listening: bool,
}

impl<C: Clone + PartialEq> SegmentQueue<C> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: PrioritizedDeque::new(), admissions: 0, listening: false }
    }

    /// Records what `channel` wants now: queues it, moves it, or takes it out of the queue. A
    /// channel that waits for the same kind already keeps its turn.
    ///
    /// The driver keeps `queued_for` with the channel, so that this takes no search for a channel that
    /// stays where it is.
    pub fn update(&mut self, channel: &C, queued_for: &mut QueuedFor, wants: Option<BufferKind>) {
        let before = std::mem::replace(&mut queued_for.0, wants);
        if before == wants {
            return;
        }
        if before.is_some() {
            let removed = self.waiting.remove_first(|other| other == channel);
            debug_assert!(removed.is_ok(), "`queued_for` says that it is queued");
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

    /// Takes all channels out of the queue. The driver resets the [`QueuedFor`] of each.
    pub fn drain(&mut self) -> impl Iterator<Item = C> + use<C> {
        let mut waiting = std::mem::take(&mut self.waiting);
        std::iter::from_fn(move || waiting.poll())
    }
}

impl<C: Clone + PartialEq> Default for SegmentQueue<C> {
    fn default() -> Self {
        Self::new()
    }
}
