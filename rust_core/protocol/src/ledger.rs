//! The consumer's side of credit: how many free buffers a channel holds and who knows of them.

use std::num::NonZeroU32;

use thiserror::Error;

/// Where a buffer of a channel came from, so where it goes back to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BufferKind {
    /// Belongs to the channel as long as it lives.
    Exclusive,
    /// Borrowed from the gate's pool while the backlog asks for it.
    Floating,
}

/// What becomes of a buffer that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Recycled {
    /// The channel keeps it and grants its credit again.
    Credited,
    /// The channel keeps this one in place of a free floating buffer: one of those goes to the pool.
    ReturnFloating,
    /// It goes to the pool itself.
    ToPool,
}

/// Free buffers and credit of one channel, in numbers only: the driver moves the buffers.
///
/// A free buffer is either announced, so that the producer may fill it, or not announced yet:
/// `available == unannounced + announced`, checked in debug builds after every call.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ReceiveLedger {
    /// Exclusive buffers: free, being read, or owed.
    promised: u32,
    exclusive: u32,
    floating: u32,
    required: u32,
    unannounced: u32,
    announced: u32,
    waiting: bool,
    /// The request announced nothing: the producer forgets its credit whenever it is resumed.
    revocable: bool,
    /// A barrier arrived that the producer waits behind, and its credit will be forgotten.
    revoked: bool,
    closed: bool,
}

impl ReceiveLedger {
    /// A channel with `exclusive` buffers, all free. The partition request announces them.
    #[must_use]
    pub const fn new(exclusive: u32) -> Self {
        Self::opened(exclusive, exclusive)
    }

    /// A channel that is promised `exclusive` buffers, of which `free` are there; the request
    /// announces these. Each of the others comes through [`on_recycled`](Self::on_recycled).
    ///
    /// # Panics
    /// When more are there than promised.
    #[must_use]
    pub const fn opened(exclusive: u32, free: u32) -> Self {
        assert!(free <= exclusive, "a channel opens with what it was promised");
        Self {
            promised: exclusive,
            exclusive: free,
            floating: 0,
            required: exclusive,
            unannounced: 0,
            announced: free,
            waiting: false,
            revocable: free == 0,
            revoked: false,
            closed: false,
        }
    }

    /// What the channel lacks: an exclusive buffer that is owed to it, or else a floating one for the
    /// backlog.
    #[must_use]
    pub const fn wants(&self) -> Option<BufferKind> {
        if self.closed {
            None
        } else if self.exclusive < self.promised {
            Some(BufferKind::Exclusive)
        } else if self.shortfall() > 0 {
            Some(BufferKind::Floating)
        } else {
            None
        }
    }

    /// The producer has `backlog` data buffers waiting. Returns how many floating buffers to take
    /// from the pool now: 0 if there are enough, or if the channel waits for the pool already.
    pub fn on_backlog(&mut self, backlog: u32) -> u32 {
        if self.closed || self.revoked {
            return 0;
        }
        // A wish, never an allocation: the pool bounds what is granted.
        self.required = backlog.saturating_add(self.promised);
        if self.waiting { 0 } else { self.shortfall() }
    }

    /// `count` floating buffers were taken for this channel.
    pub fn on_floating(&mut self, count: u32) {
        debug_assert!(!self.closed, "no buffer is taken for a closed channel");
        self.floating += count;
        self.unannounced += count;
        self.check();
    }

    /// The pool had fewer buffers than asked for. Returns true if the channel must be registered
    /// to be offered the next ones, false if it is registered already or needs none.
    pub fn on_pool_empty(&mut self) -> bool {
        if self.waiting || self.shortfall() == 0 {
            return false;
        }
        self.waiting = true;
        true
    }

    /// The pool offers buffers to a channel that waited; it waits no longer. Returns how many to
    /// take, 0 refuses. After taking fewer, call [`on_pool_empty`](Self::on_pool_empty) again.
    pub fn on_offered(&mut self) -> Result<u32, LedgerError> {
        if self.closed {
            return Ok(0);
        }
        if !self.waiting {
            return Err(LedgerError::NotWaiting);
        }
        self.waiting = false;
        Ok(self.shortfall())
    }

    /// A data buffer arrives: one free buffer is filled, a floating one if there is one. Events do
    /// not come here. An error changes nothing.
    pub fn on_spent(&mut self) -> Result<BufferKind, LedgerError> {
        if self.announced == 0 {
            return Err(LedgerError::NoCredit);
        }
        self.announced -= 1;
        self.required = self.required.saturating_sub(1);
        let kind = if self.floating > 0 {
            self.floating -= 1;
            BufferKind::Floating
        } else {
            self.exclusive -= 1;
            BufferKind::Exclusive
        };
        self.check();
        Ok(kind)
    }

    /// A buffer that [`on_spent`](Self::on_spent) gave was read and is free again, or one that is
    /// owed to the channel came.
    pub fn on_recycled(&mut self, kind: BufferKind) -> Result<Recycled, LedgerError> {
        if self.closed || kind == BufferKind::Floating {
            return Ok(Recycled::ToPool);
        }
        if self.exclusive == self.promised {
            return Err(LedgerError::NotOurs);
        }
        self.exclusive += 1;
        let recycled = if self.floating > 0 && self.exclusive + self.floating > self.required {
            self.floating -= 1;
            Recycled::ReturnFloating
        } else {
            self.unannounced += 1;
            Recycled::Credited
        };
        self.check();
        Ok(recycled)
    }

    /// A barrier that blocks the producer arrived. Of a channel whose request announced nothing the
    /// producer will forget all credit: it gives its floating buffers up, and announces its own
    /// again once it is [resumed](Self::on_resumed). Returns how many it gives up.
    pub const fn on_blocked(&mut self) -> u32 {
        if self.closed || !self.revocable {
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

    /// The producer is told to go on behind a barrier: what is announced from now on reaches it
    /// after that.
    pub const fn on_resumed(&mut self) {
        self.revoked = false;
    }

    /// Takes all credit that the producer does not know of yet, to send it in one frame. None while
    /// the producer would forget it.
    pub fn take_unannounced(&mut self) -> Option<NonZeroU32> {
        if self.revoked {
            return None;
        }
        let credit = NonZeroU32::new(std::mem::take(&mut self.unannounced))?;
        self.announced += credit.get();
        self.check();
        Some(credit)
    }

    /// The channel ends. Returns how many free buffers go back to the pool; those still being read
    /// follow through [`on_recycled`](Self::on_recycled). A second call returns 0.
    pub fn close(&mut self) -> u32 {
        let free = self.available();
        *self = Self { closed: true, ..Self::new(0) };
        free
    }

    /// Exclusive buffers, those that are owed or being read included.
    #[must_use]
    pub const fn promised(&self) -> u32 {
        self.promised
    }

    /// Exclusive buffers that are owed or being read.
    #[must_use]
    pub const fn exclusive_out(&self) -> u32 {
        self.promised - self.exclusive
    }

    /// Free buffers.
    #[must_use]
    pub const fn available(&self) -> u32 {
        self.exclusive + self.floating
    }

    /// Buffers the channel wants to have free: the backlog and its own.
    #[must_use]
    pub const fn required(&self) -> u32 {
        self.required
    }

    /// Buffers that the producer has waiting beyond those that the channel has of its own.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.required.saturating_sub(self.promised)
    }

    /// Free buffers that the producer does not know of.
    #[must_use]
    pub const fn unannounced(&self) -> u32 {
        self.unannounced
    }

    /// Free buffers that the producer was told of and has not filled.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.announced
    }

    /// Whether the channel is registered with the pool.
    #[must_use]
    pub const fn waiting(&self) -> bool {
        self.waiting
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
        debug_assert!(self.exclusive <= self.promised, "exclusive buffers come back once");
    }
}

/// A step the ledger does not allow.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LedgerError {
    /// The producer sent data that it had no credit for.
    #[error("a data buffer arrived without credit")]
    NoCredit,
    /// All exclusive buffers are free, yet one more came back.
    #[error("an exclusive buffer came back that was not out")]
    NotOurs,
    /// The pool offered buffers that nobody waits for.
    #[error("the pool offered buffers to a channel that does not wait for any")]
    NotWaiting,
}
