//! Signs of life of one connection, counted in rounds (spec 9.8).

/// The traffic of a connection since the last round.
#[derive(Default)]
pub(super) struct Pulse {
    sent: bool,
    heard: bool,
    /// True once the peer has sent a heartbeat, that is, once it watches this connection.
    peer_beat: bool,
    /// Rounds in a row without anything sent.
    quiet: u32,
}

impl Pulse {
    pub(super) fn sent(&mut self) {
        self.sent = true;
    }

    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    pub(super) fn peer_beat(&mut self) {
        self.peer_beat = true;
    }

    /// Ends a round; returns true if the peer was heard in it.
    pub(super) fn end_round(&mut self) -> bool {
        self.quiet = if std::mem::take(&mut self.sent) { 0 } else { self.quiet.saturating_add(1) };
        std::mem::take(&mut self.heard)
    }

    /// Returns true if a heartbeat is due: nothing was sent in `rounds` rounds, and either end
    /// watches the connection.
    pub(super) fn is_due(&mut self, watched: bool, rounds: u32) -> bool {
        let due = self.quiet >= rounds && (watched || self.peer_beat);
        if due {
            self.peer_beat = false;
        }
        due
    }
}
