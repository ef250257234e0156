//! The end of the recovery of a gate's channels (spec 10.5).

use std::collections::BTreeSet;

use super::effect::ChannelNotOpen;

/// Counts the channels of a gate that have delivered all of their recovered state. Each is blocked
/// behind its `EndOfChannelState` until all have, so that no channel's new data is processed before
/// another one's recovered data.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct UpstreamRecoveryTracker {
    num_channels: usize,
    /// Channels whose `EndOfChannelState` has not been read.
    restoring: BTreeSet<usize>,
}

impl UpstreamRecoveryTracker {
    /// Creates the tracker of a gate with the channels `0..num_channels`.
    #[must_use]
    pub fn new(num_channels: usize) -> Self {
        Self { num_channels, restoring: (0..num_channels).collect() }
    }

    /// Handles the `EndOfChannelState` of a channel. Returns the channels to resume: all of them with
    /// the last event, none before.
    ///
    /// # Errors
    /// The channel has delivered the event before, or the gate has no such channel.
    pub fn on_end_of_channel_state(
        &mut self,
        channel: usize,
    ) -> Result<impl Iterator<Item = usize> + use<>, ChannelNotOpen> {
        if !self.restoring.remove(&channel) {
            return Err(ChannelNotOpen { channel });
        }
        Ok(0..if self.all_channels_recovered() { self.num_channels } else { 0 })
    }

    /// Returns true once all channels have delivered their recovered state.
    #[must_use]
    pub fn all_channels_recovered(&self) -> bool {
        self.restoring.is_empty()
    }
}
