//! What a gate's owner asks of the checkpoints that its reader takes (ADR 0032).

use std::sync::{Arc, Mutex};

use headgate_memory::lock;
use headgate_protocol::{ChannelStateBuilder, CheckpointId, Sequence};

use crate::error::{ExchangeError, Result};
use crate::gate::channel::InputChannel;

/// An input whose reader can take checkpoints. Channels are numbered as in
/// [`Received`](crate::Received).
pub trait CheckpointedInput {
    /// The wishes of the owner.
    fn checkpointing(&self) -> &Checkpointing;

    /// Returns the channels for a barrier handler.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: channels can be added.
    fn checkpointed_channels(&self) -> Result<CheckpointedChannels>;

    /// Returns a channel, which may have ended; `None` if its producer is not known yet.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: there is no such channel.
    fn checkpointed_channel(&self, channel: usize) -> Result<Option<CheckpointedChannel>>;

    /// Ends the wait of [`wait_available`](crate::DataInput::wait_available), or the next one, at
    /// once. Any thread may call it.
    fn wake_up(&self);

    /// Hands barriers, their announcements, cancel markers and ends of channels to a barrier handler
    /// in the reader. With `after_finish` a channel that ends counts as one whose barrier arrived,
    /// else its end aborts the checkpoint.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: channels can be added, the input was read, or it was called before.
    fn enable_checkpointing(&self, after_finish: bool) -> Result<()> {
        self.checkpointed_channels()?;
        self.checkpointing().enable(after_finish)
    }

    /// Aborts a checkpoint that the coordinator gave up, before more data is read. One that has not
    /// begun never will. Any thread may call it.
    ///
    /// # Errors
    /// [`ExchangeError::State`] without checkpoints.
    fn abort_checkpoint(&self, checkpoint: CheckpointId, reason: String) -> Result<()> {
        self.checkpointing().abort(checkpoint, reason)?;
        self.wake_up();
        Ok(())
    }

    /// Lets the producer of a channel continue behind the barrier that blocks it.
    ///
    /// # Errors
    /// The channel does not exist, its barrier was not read yet, or it was resumed already.
    fn resume_consumption(&self, channel: usize) -> Result<()> {
        self.checkpointed_channel(channel)?.ok_or(UNKNOWN)?.0.resume()
    }

    /// Lets a barrier that a channel announced overtake the buffers that arrived before it: it is
    /// read next, as a priority event. The channel stays blocked until it is resumed. Returns false
    /// if the barrier does not wait: it was read or converted already, or the channel is local, which
    /// announces none.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: there is no such channel.
    fn convert_to_priority(&self, channel: usize, sequence: Sequence) -> Result<bool> {
        let channel = self.checkpointed_channel(channel)?.ok_or(UNKNOWN)?;
        Ok(channel.0.convert_to_priority(sequence))
    }

    /// Returns `after_finish` and the channels for the barrier handler if checkpoints are enabled; once only.
    fn take_checkpointed(&self) -> Option<(bool, CheckpointedChannels)> {
        let after_finish = self.checkpointing().take()?;
        self.checkpointed_channels().ok().map(|channels| (after_finish, channels))
    }
}

const UNKNOWN: ExchangeError = ExchangeError::State("the channel's producer is not known yet");

/// A channel, for the checkpoints of its reader.
pub struct CheckpointedChannel(pub(super) Arc<dyn InputChannel>);

impl CheckpointedChannel {
    /// Starts to copy the data in flight for a checkpoint. False if the barrier of a newer one was
    /// seen.
    pub(crate) fn start_persisting(&self, checkpoint: CheckpointId) -> Result<bool> {
        self.0.start_persisting(checkpoint)
    }

    /// Copies no further data for this checkpoint.
    pub(crate) fn stop_persisting(&self, checkpoint: CheckpointId) {
        self.0.stop_persisting(checkpoint);
    }

    /// Takes what was copied for a checkpoint.
    pub(crate) fn take_persisted(&self, checkpoint: CheckpointId) -> Option<ChannelStateBuilder> {
        self.0.take_persisted(checkpoint)
    }
}

/// The channels that a barrier handler waits for.
#[derive(Debug)]
pub struct CheckpointedChannels {
    /// Number of channels, ended ones included.
    pub count: usize,
    /// Channels that have ended.
    pub ended: Vec<usize>,
}

/// The wishes of one input's owner.
#[derive(Default)]
pub struct Checkpointing(Mutex<State>);

#[derive(Default)]
struct State {
    phase: Phase,
    aborts: Vec<(CheckpointId, String)>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Phase {
    /// Nothing was read.
    #[default]
    Off,
    /// Nothing was read, and no reader knows of it yet.
    Enabled { after_finish: bool },
    /// A reader has the barrier handler.
    On,
    /// The input is read without checkpoints.
    ReadWithout,
}

impl Checkpointing {
    fn enable(&self, after_finish: bool) -> Result<()> {
        let mut state = lock(&self.0);
        match state.phase {
            Phase::Off => state.phase = Phase::Enabled { after_finish },
            Phase::Enabled { .. } | Phase::On => {
                return Err(ExchangeError::State("checkpoints are enabled already"));
            }
            Phase::ReadWithout => {
                return Err(ExchangeError::State(
                    "the gate has been read without checkpoints: enable them before the first read, and \
                     for a union on the union",
                ));
            }
        }
        Ok(())
    }

    fn abort(&self, checkpoint: CheckpointId, reason: String) -> Result<()> {
        let mut state = lock(&self.0);
        if matches!(state.phase, Phase::Off | Phase::ReadWithout) {
            return Err(ExchangeError::State(
                "the gate takes no checkpoints: enable them before the first read",
            ));
        }
        state.aborts.push((checkpoint, reason));
        Ok(())
    }

    /// Returns `after_finish` to the reader that takes checkpoints.
    fn take(&self) -> Option<bool> {
        let mut state = lock(&self.0);
        let Phase::Enabled { after_finish } = state.phase else { return None };
        state.phase = Phase::On;
        Some(after_finish)
    }

    /// Records that a reader has read something.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: checkpoints are enabled, and this reader has no barrier handler.
    pub fn begin_reading(&self) -> Result<()> {
        let mut state = lock(&self.0);
        match state.phase {
            Phase::Off => state.phase = Phase::ReadWithout,
            Phase::Enabled { .. } => {
                return Err(ExchangeError::State(
                    "the gate takes checkpoints: read it, or the union, by a reader of records",
                ));
            }
            Phase::On | Phase::ReadWithout => {}
        }
        Ok(())
    }

    /// Returns the checkpoints that were given up since the last call, with the reasons.
    pub(crate) fn take_aborts(&self) -> Vec<(CheckpointId, String)> {
        std::mem::take(&mut lock(&self.0).aborts)
    }

    /// Returns true if [`take_aborts`](Self::take_aborts) would return any.
    pub(crate) fn has_aborts(&self) -> bool {
        !lock(&self.0).aborts.is_empty()
    }
}
