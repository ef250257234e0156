//! Names and nonces from the operating system.

use crate::error::{ExchangeError, Result};

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    #[cfg(test)]
    if let Some(bytes) = seeded::next() {
        return Ok(bytes);
    }
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ExchangeError::Memory(error.to_string()))?;
    Ok(bytes)
}

/// What a schedule calls random comes from its seed, or it could not be run again.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use proptest::prelude::Rng;
    use proptest::test_runner::TestRng;

    thread_local! {
        static SOURCE: RefCell<Option<TestRng>> = const { RefCell::new(None) };
    }

    /// From now on, in this thread.
    pub(crate) fn set(source: Option<TestRng>) {
        SOURCE.set(source);
    }

    pub(super) fn next<const N: usize>() -> Option<[u8; N]> {
        let mut bytes = [0; N];
        SOURCE.with_borrow_mut(|source| {
            source.as_mut().map(|source| {
                source.fill_bytes(&mut bytes);
                bytes
            })
        })
    }
}
