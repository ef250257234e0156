//! What a channel has to deliver, compared with what it does.

use headgate_protocol::DataType;

use crate::gate::Received;
use crate::net::simulator::plan::{Item, Kind};

/// How far one channel has been read.
pub(super) struct Reading {
    /// In order; neighbouring streams are one.
    due: Vec<Item>,
    at: usize,
    /// Bytes of the stream at `at` that were read.
    offset: usize,
    /// These overtake the others, in their own order.
    priority: Vec<Vec<u8>>,
    priority_at: usize,
    pub(super) ended: bool,
}

impl Reading {
    pub(super) fn new(script: &[Item]) -> Self {
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
        Self { due, at: 0, offset: 0, priority, priority_at: 0, ended: false }
    }

    /// Takes a buffer, which must be the next one.
    pub(super) fn take(&mut self, received: &Received) {
        let bytes = received.buffer.as_slice();
        assert!(!self.ended, "nothing follows the end");
        match received.data_type {
            // Given so that its credit comes back.
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
                assert_eq!(self.priority[self.priority_at], bytes);
                self.priority_at += 1;
            }
            DataType::EndOfPartition => {
                assert_eq!((self.at, self.offset), (self.due.len(), 0), "something is missing");
                assert_eq!(self.priority_at, self.priority.len(), "a priority event is missing");
                self.ended = true;
            }
            other => {
                let kind = if other.is_event() { Kind::Event } else { Kind::Page };
                let due = &self.due[self.at];
                assert_eq!((due.kind, due.bytes.as_slice(), self.offset), (kind, bytes, 0));
                self.at += 1;
            }
        }
    }
}
