//! Task events that arrive at the producer's end of a connection.

use bytes::Bytes;
use headgate_protocol::{ChannelId, FrameMask, TaskEventHeader};

use crate::checksum;
use crate::error::{ConnectionError, Result};

/// A task event whose header arrived and whose payload is still arriving.
pub(super) struct IncomingEvent {
    header: TaskEventHeader,
    /// The payload; the decoder has checked that it fits a segment.
    payload: Vec<u8>,
}

impl IncomingEvent {
    pub(super) fn new(header: TaskEventHeader) -> Self {
        Self { header, payload: Vec::with_capacity(header.size as usize) }
    }

    /// Takes payload bytes off the input; returns true if the event is complete.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> bool {
        let missing = self.header.size as usize - self.payload.len();
        let (now, rest) = input.split_at(missing.min(input.len()));
        self.payload.extend_from_slice(now);
        *input = rest;
        self.payload.len() == self.header.size as usize
    }

    /// Returns the event, if its checksum is right.
    pub(super) fn finish(self, mask: FrameMask) -> Result<(ChannelId, Bytes)> {
        let channel = self.header.channel;
        if mask.apply(checksum::of_task_event(&self.header, &self.payload)) != self.header.crc {
            return Err(ConnectionError::Integrity {
                channel: format!("channel {channel}"),
                detail: "checksum of a task event is wrong".to_owned(),
            });
        }
        Ok((channel, Bytes::from(self.payload)))
    }
}
