//! Signs of life of one connection, counted in rounds (spec 9.8).

/// What went through a connection since the round before.
#[derive(Default)]
pub(super) struct Pulse {
    sent: bool,
    heard: bool,
    /// The peer beat: it watches this connection, whether or not we do.
    beaten: bool,
    /// Rounds in which nothing was sent.
    quiet: u32,
}

impl Pulse {
    pub(super) fn sent(&mut self) {
        self.sent = true;
    }

    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    pub(super) fn beaten(&mut self) {
        self.beaten = true;
    }

    /// Ends a round; says whether the peer was heard in it.
    pub(super) fn end_round(&mut self) -> bool {
        self.quiet = if std::mem::take(&mut self.sent) { 0 } else { self.quiet.saturating_add(1) };
        std::mem::take(&mut self.heard)
    }

    /// Whether a heartbeat is due: nothing else was said in as many rounds, to a peer that listens.
    pub(super) fn is_due(&mut self, watched: bool, rounds: u32) -> bool {
        let due = self.quiet >= rounds && (watched || self.beaten);
        if due {
            self.beaten = false;
        }
        due
    }
}
