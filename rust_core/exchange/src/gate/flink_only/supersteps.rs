//! Supersteps in a gate's queue: channels that reached the end are paused until all have.

use crate::error::{ExchangeError, Result};
use crate::gate::queue::GateQueue;

/// Pauses and resumes the channels of a gate.
pub(in crate::gate) trait Supersteps {
    /// Pauses a channel: of what it has, only priority events are read.
    fn pause(&self, channel: usize);

    /// Resumes all channels.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if a channel is neither paused nor ended.
    fn resume_all(&self) -> Result<()>;
}

impl Supersteps for GateQueue {
    fn pause(&self, channel: usize) {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return;
        };
        if slot.ended || std::mem::replace(&mut slot.paused, true) {
            return;
        }
        if !slot.has_priority() {
            state.dequeue(channel);
        }
        state.paused += 1;
    }

    fn resume_all(&self) -> Result<()> {
        self.change(|state| {
            if !state.has_reached_end_of_superstep() {
                return Err(ExchangeError::State(
                    "a channel has not reached the end of the superstep: read on before the next",
                ));
            }
            state.paused = 0;
            for index in 0..state.channels.len() {
                if std::mem::take(&mut state.channels[index].paused) {
                    // Notifications were ignored while it was paused: it may have buffers.
                    state.queue_channel(index);
                }
            }
            Ok(())
        })
    }
}
