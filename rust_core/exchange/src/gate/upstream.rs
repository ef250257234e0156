//! Messages from a gate to the tasks that produce for it (spec 8.4, 8.7).

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headgate_memory::lock;
use headgate_net::UpstreamMessage;
use headgate_record::Event;

use crate::error::{ExchangeError, Result};
use crate::gate::channel::InputChannel;

/// Task events that are kept for channels to come.
const MAX_KEPT: usize = 1024;

#[derive(Default)]
struct State {
    /// Channels whose request is sent, so that messages may follow it.
    requested: Vec<Arc<dyn InputChannel>>,
    /// Channels of the gate that are not in `requested` yet.
    to_request: usize,
    sealed: bool,
    /// True once the gate is closed; no channel is kept from then on.
    closed: bool,
    /// Every task event so far, while another channel may still join.
    events: Vec<Bytes>,
    /// The last announced buffer size.
    buffer_size: Option<NonZeroU32>,
}

impl State {
    fn drop_events_if_complete(&mut self) {
        if self.sealed && self.to_request == 0 {
            self.events = Vec::new();
        }
    }
}

/// Sends each task event to every channel of a gate once and in order, and the current buffer size
/// to every channel, those included that join later.
#[derive(Default)]
pub(crate) struct Upstream(Mutex<State>);

impl Upstream {
    /// Records a channel that joins the gate. It is requested, or given up, later.
    pub(super) fn added(&self) {
        lock(&self.0).to_request += 1;
    }

    /// Records that no further channel joins.
    pub(super) fn sealed(&self) {
        let mut state = lock(&self.0);
        state.sealed = true;
        state.drop_events_if_complete();
    }

    /// Records that a channel that joined is never requested.
    pub(crate) fn given_up(&self) {
        let mut state = lock(&self.0);
        state.to_request = state.to_request.saturating_sub(1);
        state.drop_events_if_complete();
    }

    /// Records that the channel's request is sent, and sends it the messages so far.
    pub(crate) fn requested(&self, channel: Arc<dyn InputChannel>) {
        let mut state = lock(&self.0);
        if state.closed {
            return;
        }
        if let Some(size) = state.buffer_size {
            channel.tell(UpstreamMessage::BufferSize(size));
        }
        for event in &state.events {
            channel.tell(UpstreamMessage::TaskEvent(event.clone()));
        }
        state.requested.push(channel);
        state.to_request = state.to_request.saturating_sub(1);
        state.drop_events_if_complete();
    }

    pub(super) fn close(&self) {
        *lock(&self.0) = State { closed: true, ..State::default() };
    }

    /// Sends a task event of at most `limit` bytes to all channels.
    ///
    /// # Errors
    /// [`ExchangeError::EventTooLarge`], [`ExchangeError::Event`] for one that cannot be encoded,
    /// [`ExchangeError::TaskEvent`] if too many wait for channels to come.
    pub(super) fn send_task_event(&self, name: &str, body: Bytes, limit: usize) -> Result<()> {
        let event = Event::Custom { name: name.to_owned(), body };
        let event = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
        let (size, limit) = (event.len() as u64, limit as u64);
        if size > limit {
            return Err(ExchangeError::EventTooLarge { size, limit });
        }
        let mut state = lock(&self.0);
        if state.closed {
            return Err(ExchangeError::Closed("input gate"));
        }
        let keep = !state.sealed || state.to_request > 0;
        if keep && state.events.len() == MAX_KEPT {
            return Err(ExchangeError::TaskEvent(format!(
                "{MAX_KEPT} task events are kept for channels that are still to come"
            )));
        }
        for channel in &state.requested {
            channel.tell(UpstreamMessage::TaskEvent(event.clone()));
        }
        if keep {
            state.events.push(event);
        }
        Ok(())
    }

    /// Announces the buffer size to all channels; ignored once the gate is closed.
    pub(super) fn announce_buffer_size(&self, size: NonZeroU32) {
        let mut state = lock(&self.0);
        if state.closed {
            return;
        }
        state.buffer_size = Some(size);
        for channel in &state.requested {
            channel.tell(UpstreamMessage::BufferSize(size));
        }
    }
}
