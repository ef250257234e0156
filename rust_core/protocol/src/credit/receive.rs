//! The consumer's credit: how many free buffers a channel holds, and how many of them the producer
//! may fill.

use std::num::NonZeroU32;

use thiserror::Error;

/// The two kinds of buffer that a channel counts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BufferKind {
    /// Promised to the channel for as long as it lives.
    Exclusive,
    /// Borrowed from the gate's pool while the producer's backlog needs it.
    Floating,
}

/// Free buffers and credit of one channel, as numbers: the driver moves the buffers themselves.
///
/// The buffers of a pool are alike, so the ledger alone decides their kind: a buffer that the pool
/// [offers](Self::on_offered) is exclusive if an exclusive one is missing, and floating otherwise.
/// A free buffer is either announced, so that the producer may fill it, or not announced yet.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ReceiveLedger {
    /// Exclusive buffers of the channel: free, being read, or not delivered yet.
    promised: u32,
    /// Free exclusive buffers. Invariant: at most `promised`.
    exclusive: u32,
    /// Free floating buffers. Invariant: 0 while an exclusive buffer is missing.
    floating: u32,
    /// Free buffers the channel would like to have: `promised` and the producer's backlog.
    required: u32,
    /// Free buffers that the producer does not know of.
    /// Invariant: `unannounced + announced == exclusive + floating`.
    unannounced: u32,
    /// Free buffers that the producer knows of and has not filled.
    announced: u32,
    /// True if the request announced no credit: the producer then drops its credit at each resume.
    revocable: bool,
    /// True from a barrier until the resume, if the producer will drop its credit at that resume.
    revoked: bool,
    /// True once no buffer can arrive any more, so none is wanted.
    stopped: bool,
}

impl ReceiveLedger {
    /// Creates the ledger of a channel with `exclusive` buffers, all free and announced by the
    /// partition request.
    #[must_use]
    pub const fn new(exclusive: u32) -> Self {
        Self::opened(exclusive, exclusive)
    }

    /// Creates the ledger of a channel that is promised `exclusive` buffers. `free` of them are
    /// there and announced by the partition request; the pool offers the others later.
    ///
    /// # Panics
    /// When more buffers are free than promised.
    #[must_use]
    pub const fn opened(exclusive: u32, free: u32) -> Self {
        assert!(free <= exclusive, "free buffers are promised buffers");
        Self {
            promised: exclusive,
            exclusive: free,
            floating: 0,
            required: exclusive,
            unannounced: 0,
            announced: free,
            revocable: free == 0,
            revoked: false,
            stopped: false,
        }
    }

    /// Returns the kind of buffer the channel needs next: a missing exclusive one first, then a
    /// floating one for the backlog.
    #[must_use]
    pub const fn wants(&self) -> Option<BufferKind> {
        if self.stopped {
            None
        } else if self.exclusive < self.promised {
            Some(BufferKind::Exclusive)
        } else if self.shortfall() > 0 {
            Some(BufferKind::Floating)
        } else {
            None
        }
    }

    /// Records that `backlog` data buffers wait at the producer.
    pub const fn on_backlog(&mut self, backlog: u32) {
        if !self.stopped && !self.revoked {
            // A wish and not an allocation: the pool limits what the channel gets.
            self.required = backlog.saturating_add(self.promised);
        }
    }

    /// Takes a buffer that the pool offers. Returns false if the channel needs none any more: then
    /// the buffer goes back to the pool.
    #[must_use]
    pub fn on_offered(&mut self) -> bool {
        match self.wants() {
            None => return false,
            Some(BufferKind::Exclusive) => self.exclusive += 1,
            Some(BufferKind::Floating) => self.floating += 1,
        }
        self.unannounced += 1;
        self.check();
        true
    }

    /// Spends one credit: a data buffer arrives and fills a free floating buffer, or else a free
    /// exclusive one. Events need no credit. An error changes nothing.
    pub fn on_spent(&mut self) -> Result<(), NoCredit> {
        if self.announced == 0 {
            return Err(NoCredit);
        }
        self.announced -= 1;
        self.required = self.required.saturating_sub(1);
        if self.floating > 0 {
            self.floating -= 1;
        } else {
            self.exclusive -= 1;
        }
        self.check();
        Ok(())
    }

    /// Records the arrival of a barrier, behind which the producer waits for a resume. Returns how
    /// many free buffers go back to the pool.
    ///
    /// If the request announced no credit, the producer drops all credit when it resumes. The
    /// channel then gives up its floating buffers, and announces its exclusive ones again after the
    /// [resume](Self::on_resumed).
    #[must_use]
    pub const fn on_blocked(&mut self) -> u32 {
        if self.stopped || !self.revocable {
            return 0;
        }
        let given_up = self.floating;
        self.revoked = true;
        self.floating = 0;
        self.required = self.promised;
        self.unannounced = self.exclusive;
        self.announced = 0;
        given_up
    }

    /// Records that the resume is sent: the producer keeps the credit that is announced after it.
    pub const fn on_resumed(&mut self) {
        self.revoked = false;
    }

    /// Takes all credit that the producer does not know of yet, to announce it in one frame.
    /// Returns `None` while the producer would drop it.
    pub fn take_unannounced(&mut self) -> Option<NonZeroU32> {
        if self.revoked {
            return None;
        }
        let credit = NonZeroU32::new(std::mem::take(&mut self.unannounced))?;
        self.announced += credit.get();
        self.check();
        Some(credit)
    }

    /// Records that no buffer can arrive any more: the channel keeps its free buffers and wants no
    /// others.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    /// Closes the channel. Returns how many free buffers go back to the pool; 0 when called again.
    pub fn close(&mut self) -> u32 {
        let free = self.available();
        *self = Self { stopped: true, ..Self::new(0) };
        free
    }

    /// Exclusive buffers, including those that are being read or not delivered yet.
    #[must_use]
    pub const fn promised(&self) -> u32 {
        self.promised
    }

    /// Exclusive buffers that are being read or not delivered yet.
    #[must_use]
    pub const fn exclusive_out(&self) -> u32 {
        self.promised - self.exclusive
    }

    /// Free buffers.
    #[must_use]
    pub const fn available(&self) -> u32 {
        self.exclusive + self.floating
    }

    /// Free buffers the channel would like to have: its exclusive ones and the backlog.
    #[must_use]
    pub const fn required(&self) -> u32 {
        self.required
    }

    /// Buffers that wait at the producer beyond the channel's exclusive ones.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.required.saturating_sub(self.promised)
    }

    /// Free buffers that the producer does not know of.
    #[must_use]
    pub const fn unannounced(&self) -> u32 {
        self.unannounced
    }

    /// Free buffers that the producer knows of and has not filled.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.announced
    }

    const fn shortfall(&self) -> u32 {
        if self.revoked { 0 } else { self.required.saturating_sub(self.available()) }
    }

    fn check(&self) {
        debug_assert_eq!(
            u64::from(self.available()),
            u64::from(self.unannounced) + u64::from(self.announced),
            "credit is conserved"
        );
        debug_assert!(self.exclusive <= self.promised, "exclusive buffers are promised ones");
        debug_assert!(
            self.floating == 0 || self.exclusive == self.promised,
            "a missing exclusive buffer comes before floating ones, and is the last to be filled"
        );
    }
}

/// The producer sent a data buffer for which it had no credit.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a data buffer arrived without credit")]
pub struct NoCredit;
