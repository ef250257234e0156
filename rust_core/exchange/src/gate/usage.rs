//! What a gate says of itself in a snapshot.

use std::sync::Arc;

use crate::gate::{Channel, InputGate};
use crate::stats::ChannelStats;

/// The name of a channel whose producer is not known.
const UNKNOWN: &str = "unknown channel";

impl InputGate {
    pub(crate) fn stats(&self) -> Vec<ChannelStats> {
        let state = self.queue.lock();
        let channels: Vec<_> = state.channels.iter().map(|slot| slot.channel.clone()).collect();
        drop(state);
        let stats = |channel: &Option<Arc<Channel>>| {
            let (credit, queued) = match channel.as_deref() {
                Some(Channel::Remote(remote)) => {
                    let (credit, queued) = remote.usage();
                    (Some(credit), queued)
                }
                Some(Channel::Local(_)) | None => (None, 0),
            };
            let name = channel.as_ref().map_or(UNKNOWN, |channel| channel.name()).to_owned();
            ChannelStats { name, credit, queued }
        };
        channels.iter().map(stats).collect()
    }
}
