//! Checks that a channel delivers the items of its script.

use headgate_protocol::{DataType, Sequence};
use headgate_record::Event;

use crate::gate::Received;
use crate::simulator::plan::{Item, Kind};

/// The items of one channel and the position of its reader.
pub(super) struct Reading {
    /// Items in order; adjacent streams are merged into one.
    due: Vec<Item>,
    at: usize,
    /// Bytes read of the stream at `at`.
    offset: usize,
    /// Priority events in order; they overtake the other items.
    priority: Vec<Vec<u8>>,
    priority_at: usize,
    /// True if the producer is in another process, which announces its barriers.
    is_remote: bool,
    /// Position in `due` of the barrier that was announced and not read.
    announced: Option<usize>,
    /// True if that barrier overtakes the items before it.
    converted: bool,
    pub(super) ended: bool,
}

/// The reader's next step after a buffer.
pub(super) enum Then {
    Continue,
    Resume,
    /// Let the barrier with this sequence number overtake.
    Convert(Sequence),
}

impl Reading {
    pub(super) fn new(script: &[Item], is_remote: bool) -> Self {
        let mut due: Vec<Item> = Vec::new();
        let mut priority = Vec::new();
        for item in script {
            match (item.kind, due.last_mut()) {
                (Kind::Priority, _) => priority.push(item.bytes.clone()),
                (Kind::Stream, Some(last)) if last.kind == Kind::Stream => {
                    last.bytes.extend(&item.bytes);
                }
                _ => due.push(item.clone()),
            }
        }
        Self {
            due,
            at: 0,
            offset: 0,
            priority,
            priority_at: 0,
            is_remote,
            announced: None,
            converted: false,
            ended: false,
        }
    }

    /// Records that the announced barrier overtakes the items before it.
    pub(super) fn converted(&mut self) {
        self.converted = true;
    }

    /// Takes a buffer, which must hold the next item.
    pub(super) fn take(&mut self, received: &Received) -> Then {
        let bytes = received.buffer.as_slice();
        assert!(!self.ended, "nothing follows the end");
        match received.data_type {
            // An empty buffer only returns its credit.
            DataType::DataBuffer if bytes.is_empty() => {}
            DataType::DataBuffer => {
                let due = &self.due[self.at];
                assert_eq!(due.kind, Kind::Stream);
                let end = self.offset + bytes.len();
                assert_eq!(&due.bytes[self.offset..end], bytes);
                self.offset = end;
                if end == due.bytes.len() {
                    (self.at, self.offset) = (self.at + 1, 0);
                }
            }
            DataType::PrioritizedEventBuffer => {
                return self.take_priority(bytes, received.sequence);
            }
            DataType::EndOfPartition => {
                assert_eq!((self.at, self.offset), (self.due.len(), 0), "something is missing");
                assert_eq!(self.priority_at, self.priority.len(), "a priority event is missing");
                self.ended = true;
            }
            other => {
                let kind = match other {
                    DataType::AlignedCheckpointBarrier => Kind::Barrier,
                    DataType::TimeoutableAlignedCheckpointBarrier => Kind::TimeoutableBarrier,
                    _ if other.is_event() => Kind::Event,
                    _ => Kind::Page,
                };
                let due = &self.due[self.at];
                assert_eq!((due.kind, due.bytes.as_slice(), self.offset), (kind, bytes, 0));
                if kind == Kind::TimeoutableBarrier && self.is_remote {
                    assert_eq!(
                        self.announced.take(),
                        Some(self.at),
                        "a barrier is announced before it arrives"
                    );
                    assert!(!self.converted, "a converted barrier arrives as a priority event");
                }
                self.at += 1;
                return if other.blocks_upstream() { Then::Resume } else { Then::Continue };
            }
        }
        Then::Continue
    }

    fn take_priority(&mut self, bytes: &[u8], sequence: Sequence) -> Then {
        if let Some(barrier) = self.announced.filter(|_| self.converted)
            && self.due[barrier].bytes == bytes
        {
            (self.announced, self.converted) = (None, false);
            self.due.remove(barrier);
            return Then::Resume;
        }
        if let Ok(Event::EventAnnouncement { announced, .. }) = Event::decode(bytes) {
            let is_barrier = |item: &Item| item.kind == Kind::TimeoutableBarrier;
            let next = self.due[self.at..]
                .iter()
                .position(is_barrier)
                .expect("an announced barrier is due");
            let barrier = self.at + next;
            assert_eq!(self.due[barrier].bytes, announced.encode().expect("was decoded"));
            assert!(self.is_remote && self.announced.replace(barrier).is_none());
            return Then::Convert(sequence);
        }
        assert_eq!(self.priority[self.priority_at], bytes);
        self.priority_at += 1;
        Then::Continue
    }
}
