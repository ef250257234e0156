//! Task events as they arrive at the producer's end of a connection.

use bytes::Bytes;
use headgate_protocol::{ChannelId, FrameMask, TaskEventHeader};

use crate::checksum;
use crate::error::{ExchangeError, Result};

/// A task event of which the header arrived and the payload arrives.
pub(super) struct IncomingEvent {
    header: TaskEventHeader,
    /// At most a segment, which the decoder checked.
    payload: Vec<u8>,
}

impl IncomingEvent {
    pub(super) fn new(header: TaskEventHeader) -> Self {
        Self { header, payload: Vec::with_capacity(header.size as usize) }
    }

    /// Takes payload bytes off the input; says whether the event is complete.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> bool {
        let missing = self.header.size as usize - self.payload.len();
        let (now, rest) = input.split_at(missing.min(input.len()));
        self.payload.extend_from_slice(now);
        *input = rest;
        self.payload.len() == self.header.size as usize
    }

    /// The complete event, if it is what was sent.
    pub(super) fn finish(self, mask: FrameMask) -> Result<(ChannelId, Bytes)> {
        let channel = self.header.channel;
        if mask.apply(checksum::of_task_event(&self.header, &self.payload)) != self.header.crc {
            return Err(ExchangeError::Integrity {
                channel: format!("channel {channel}"),
                detail: "checksum of a task event is wrong".to_owned(),
            });
        }
        Ok((channel, Bytes::from(self.payload)))
    }
}
