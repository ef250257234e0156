//! What a gate says of itself in a snapshot.

use std::sync::Arc;

use crate::gate::{Channel, InputGate};
use crate::stats::{ChannelStats, GateStats, Usage};

/// The name of a channel whose producer is not known.
const UNKNOWN: &str = "unknown channel";

impl InputGate {
    pub(crate) fn stats(&self) -> GateStats {
        let stats = |channel: &Option<Arc<Channel>>| match channel.as_deref() {
            Some(Channel::Remote(remote)) => remote.stats(),
            Some(Channel::Local(local)) => local.stats(),
            None => ChannelStats { name: UNKNOWN.to_owned(), ..ChannelStats::default() },
        };
        let channels: Vec<_> = self.channels().iter().map(stats).collect();
        let exclusive: Usage = channels.iter().map(|channel| channel.exclusive).sum();
        let free: usize = channels.iter().map(|channel| channel.free).sum();
        // Taken a moment later than the channels' numbers, so they may not add up.
        let (size, held) = self.pool.usage();
        let floating = Usage {
            used: held.saturating_sub(free).saturating_sub(exclusive.used),
            size: size.saturating_sub(exclusive.size),
        };
        GateStats {
            exclusive,
            floating,
            times: self.timer.times(),
            debloating: self.debloat_stats(),
            channels,
        }
    }
}
