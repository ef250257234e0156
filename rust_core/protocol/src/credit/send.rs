//! The producer's credit: the data buffers it may still send.

use std::num::NonZeroU32;

use thiserror::Error;

/// The number of data buffers that the consumer has room for. Events need no credit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SendCredit {
    available: u32,
}

impl SendCredit {
    /// Creates the credit of a partition request.
    #[must_use]
    pub const fn new(initial: u32) -> Self {
        Self { available: initial }
    }

    /// Data buffers that may be sent now.
    #[must_use]
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// Adds credit that the consumer granted.
    pub fn grant(&mut self, more: NonZeroU32) -> Result<(), CreditError> {
        let (available, granted) = (self.available, more.get());
        let sum = available.checked_add(granted);
        self.available = sum.ok_or(CreditError::Overflow { available, granted })?;
        Ok(())
    }

    /// Drops all credit, which the consumer revoked.
    pub const fn revoke(&mut self) {
        self.available = 0;
    }

    /// Spends the credit for one data buffer.
    pub fn spend(&mut self) -> Result<(), CreditError> {
        self.available = self.available.checked_sub(1).ok_or(CreditError::Exhausted)?;
        Ok(())
    }
}

/// Impossible credit.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CreditError {
    /// A data buffer was sent without credit.
    #[error("a data buffer was sent without credit")]
    Exhausted,
    /// The sum does not fit the counter.
    #[error("{granted} credits granted on top of {available} pass the limit of {max}", max = u32::MAX)]
    Overflow {
        /// Credit before the grant.
        available: u32,
        /// Granted credit.
        granted: u32,
    },
}
