//! What a consumer tells the tasks that produce for it (spec 8.4, 8.7).

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headgate_record::Event;

use crate::error::{ExchangeError, Result};
use crate::gate::{Channel, InputGate};
use crate::lock::lock;

/// Events that are kept for channels that are still to come.
const MAX_KEPT: usize = 1024;

/// What goes from a channel to its producer, beside credit.
#[derive(Debug, Clone)]
pub(crate) enum UpstreamMessage {
    /// An encoded event for the producing task.
    TaskEvent(Bytes),
    /// Every record up to the end of data is processed.
    Acknowledge,
    /// Bytes a buffer should hold from now on.
    BufferSize(NonZeroU32),
}

#[derive(Default)]
struct State {
    /// Channels whose request is on its way, so that events may follow it.
    requested: Vec<Arc<Channel>>,
    /// Channels of the gate that are not in `requested` yet.
    to_request: usize,
    sealed: bool,
    /// The gate is closed, and holds no channel from then on.
    closed: bool,
    /// Every event sent so far, as long as a channel may still have to get them.
    events: Vec<Bytes>,
    /// What buffers should hold, as far as that was said.
    buffer_size: Option<NonZeroU32>,
}

impl State {
    fn forget_events(&mut self) {
        if self.sealed && self.to_request == 0 {
            self.events = Vec::new();
        }
    }
}

/// What one gate tells all its channels: each gets each task event once, in order, and the wish for
/// a buffer size that holds.
#[derive(Default)]
pub(crate) struct Upstream(Mutex<State>);

impl Upstream {
    /// A channel joins the gate; it is requested, or given up, later.
    pub(super) fn added(&self) {
        lock(&self.0).to_request += 1;
    }

    /// No further channel joins.
    pub(super) fn sealed(&self) {
        let mut state = lock(&self.0);
        state.sealed = true;
        state.forget_events();
    }

    /// A channel that joined is never requested.
    pub(crate) fn given_up(&self) {
        let mut state = lock(&self.0);
        state.to_request = state.to_request.saturating_sub(1);
        state.forget_events();
    }

    /// The channel's request is on its way: sends it what others were sent before.
    pub(crate) fn requested(&self, channel: &Arc<Channel>) {
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
        state.requested.push(Arc::clone(channel));
        state.to_request = state.to_request.saturating_sub(1);
        state.forget_events();
    }

    pub(super) fn close(&self) {
        *lock(&self.0) = State { closed: true, ..State::default() };
    }

    fn send(&self, event: &Bytes) -> Result<()> {
        let mut state = lock(&self.0);
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
            state.events.push(event.clone());
        }
        Ok(())
    }
}

impl InputGate {
    /// Sends an event to the tasks behind all channels, those that are still to come included.
    ///
    /// # Errors
    /// An event that cannot be encoded or does not fit a segment, or a gate that is closed. What a
    /// producer says against the event ends its channel.
    pub fn send_task_event(&self, name: &str, body: Bytes) -> Result<()> {
        let event = Event::Custom { name: name.to_owned(), body };
        let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
        let (size, limit) = (bytes.len() as u64, self.pool().segment_size() as u64);
        if size > limit {
            return Err(ExchangeError::EventTooLarge { size, limit });
        }
        self.check_open()?;
        self.queue().upstream.send(&bytes)
    }

    /// Lets the producer of a channel go on behind the barrier that blocked it.
    ///
    /// # Errors
    /// A channel that does not exist or is not blocked: its barrier was not read, or it was resumed.
    pub fn resume_consumption(&self, channel: usize) -> Result<()> {
        self.channel(channel)?.resume()
    }

    /// Tells the producers of all channels how many bytes a buffer should hold from now on; those of
    /// channels to come learn it once they are requested. A wish: the first record, or row, of a
    /// buffer may be larger, and what is on disk ignores it.
    pub fn announce_buffer_size(&self, size: NonZeroU32) {
        let mut state = lock(&self.queue().upstream.0);
        if state.closed {
            return;
        }
        state.buffer_size = Some(size);
        for channel in &state.requested {
            channel.tell(UpstreamMessage::BufferSize(size));
        }
    }

    /// Tells the producer of a channel that all records up to its end of data are processed.
    ///
    /// # Errors
    /// A channel that does not exist.
    pub fn acknowledge_all_records_processed(&self, channel: usize) -> Result<()> {
        self.channel(channel)?.tell(UpstreamMessage::Acknowledge);
        Ok(())
    }
}
