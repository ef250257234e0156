//! Frames that cost their sender nothing, counted per second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headgate_protocol::{Budget, BudgetLimits, Frame};

use crate::error::Result;
use crate::net::peer_error;

const WINDOW: Duration = Duration::from_secs(1);

pub(crate) struct FloodGuard {
    budget: Budget,
    since: Instant,
}

impl FloodGuard {
    pub(crate) fn new(now: Instant) -> Self {
        Self { budget: Budget::new(BudgetLimits::default()), since: now }
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        if now - self.since >= WINDOW {
            self.budget.reset();
            self.since = now;
        }
    }

    /// A peer over its budget breaks the protocol.
    pub(crate) fn charge(&mut self, frame: &Frame, peer: SocketAddr) -> Result<()> {
        self.budget.charge(frame).map_err(|error| peer_error::protocol(&error, peer))
    }
}
