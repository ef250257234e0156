//! The producer's side of credit: what it may still send.

use std::num::NonZeroU32;

use thiserror::Error;

/// How many data buffers a consumer has room for. Events cost nothing and are not counted here.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SendCredit {
    available: u32,
}

impl SendCredit {
    /// The credit a partition request brings.
    #[must_use]
    pub const fn new(initial: u32) -> Self {
        Self { available: initial }
    }

    /// Data buffers that may be sent now.
    #[must_use]
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// The consumer grants `more`.
    pub fn grant(&mut self, more: NonZeroU32) -> Result<(), CreditError> {
        let (available, granted) = (self.available, more.get());
        let sum = available.checked_add(granted);
        self.available = sum.ok_or(CreditError::Overflow { available, granted })?;
        Ok(())
    }

    /// The consumer took all of it back.
    pub const fn revoke(&mut self) {
        self.available = 0;
    }

    /// One data buffer is sent.
    pub fn spend(&mut self) -> Result<(), CreditError> {
        self.available = self.available.checked_sub(1).ok_or(CreditError::Exhausted)?;
        Ok(())
    }
}

/// Credit that cannot be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CreditError {
    /// A data buffer was sent that the consumer has no room for.
    #[error("a data buffer was sent without credit")]
    Exhausted,
    /// More was granted than can be counted.
    #[error("{granted} credits granted on top of {available} pass the limit of {max}", max = u32::MAX)]
    Overflow {
        /// Credits there were.
        available: u32,
        /// Credits granted.
        granted: u32,
    },
}
