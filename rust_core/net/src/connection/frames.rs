//! The frames of one peer, and the limit on those that cost their sender nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headgate_protocol::{Budget, BudgetLimits, Frame, FrameDecoder};

use crate::connection::pulse::Pulse;
use crate::error::Result;
use crate::peer_error;

const WINDOW: Duration = Duration::from_secs(1);

/// Decodes the frames of one peer.
pub(super) struct FrameReader {
    decoder: FrameDecoder,
    /// Frames that the peer may still send in this window.
    budget: Budget,
    window_start: Instant,
}

impl FrameReader {
    pub(super) fn new(decoder: FrameDecoder, now: Instant) -> Self {
        Self { decoder, budget: Budget::new(BudgetLimits::default()), window_start: now }
    }

    /// Renews the budget once per window.
    pub(super) fn tick(&mut self, now: Instant) {
        if now - self.window_start >= WINDOW {
            self.budget.reset();
            self.window_start = now;
        }
    }

    /// Decodes the next frame; returns `None` if more bytes are needed. A peer over its budget breaks
    /// the protocol.
    pub(super) fn decode(
        &mut self,
        input: &mut &[u8],
        peer: SocketAddr,
        pulse: &mut Pulse,
    ) -> Result<Option<Frame>> {
        let frame = self.decoder.decode(input).map_err(|error| peer_error::frame(&error, peer))?;
        if let Some(frame) = &frame {
            self.budget.charge(frame).map_err(|error| peer_error::protocol(&error, peer))?;
            if *frame == Frame::Heartbeat {
                pulse.peer_beat();
            }
        }
        Ok(frame)
    }
}
