//! Random names and nonces from the operating system. Nobody must be able to predict them.

use crate::error::{ExchangeError, Result};

/// Returns random bytes.
///
/// # Errors
/// When the operating system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    #[cfg(test)]
    if let Some(bytes) = seeded::next() {
        return Ok(bytes);
    }
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ExchangeError::Memory(error.to_string()))?;
    Ok(bytes)
}

/// Random bytes of a simulated schedule. They come from its seed, so that the schedule can be
/// repeated.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use proptest::prelude::Rng;
    use proptest::test_runner::TestRng;

    thread_local! {
        static SOURCE: RefCell<Option<TestRng>> = const { RefCell::new(None) };
    }

    /// Sets the source for this thread, or removes it.
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
