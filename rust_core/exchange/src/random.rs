//! Random names and nonces from the operating system. Nobody must be able to predict them.

use std::sync::Arc;

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
    getrandom::fill(&mut bytes).map_err(|error| refused(std::io::Error::other(error)))?;
    Ok(bytes)
}

fn refused(error: std::io::Error) -> ExchangeError {
    let doing = "the operating system gave no random bytes";
    ExchangeError::System { doing, source: Arc::new(error) }
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_refused_call_is_not_reported_as_a_lack_of_memory() {
        let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = super::refused(cause).to_string();
        assert_eq!(error, "the operating system gave no random bytes: permission denied");
    }
}
