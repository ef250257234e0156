//! Random names and nonces from the operating system. Nobody must be able to predict them.

use std::io;
use std::sync::Arc;

use crate::error::{ExchangeError, Result};

/// Returns random bytes.
///
/// # Errors
/// When the operating system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    bytes().map_err(|error| refused(Arc::new(error)))
}

/// Returns random bytes.
///
/// # Errors
/// When the operating system has none.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    #[cfg(test)]
    if let Some(bytes) = seeded::next() {
        return Ok(bytes);
    }
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Returns the error of an operating system without random bytes.
pub(crate) fn refused(source: Arc<io::Error>) -> ExchangeError {
    ExchangeError::System { doing: "the operating system gave no random bytes", source }
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
    use std::sync::Arc;

    #[test]
    fn a_refused_call_is_not_reported_as_a_lack_of_memory() {
        let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = super::refused(Arc::new(cause)).to_string();
        assert_eq!(error, "the operating system gave no random bytes: permission denied");
    }
}
