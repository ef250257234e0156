//! A descriptor for event loops, readable while a gate has something to poll.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::gate::AvailabilityListener;

/// A pair of sockets. A listener writes to one, and an event loop watches the other.
pub struct Readiness {
    watched: UnixStream,
    written: UnixStream,
    /// True while a byte is in the pair, or is being written.
    signalled: AtomicBool,
}

impl Readiness {
    /// Creates a pair that is not readable.
    ///
    /// # Errors
    /// [`ExchangeError::Descriptors`] at the limit of open files.
    pub fn new() -> Result<Self> {
        let failed = |error: io::Error| {
            descriptors::exhausted("cannot make a descriptor for an event loop", &error)
                .unwrap_or_else(|| ExchangeError::Internal(format!("no socket pair: {error}")))
        };
        let (watched, written) = UnixStream::pair().map_err(failed)?;
        watched.set_nonblocking(true).map_err(failed)?;
        written.set_nonblocking(true).map_err(failed)?;
        Ok(Self { watched, written, signalled: AtomicBool::new(false) })
    }

    /// Returns the descriptor to watch. It is open as long as this value lives.
    pub fn descriptor(&self) -> RawFd {
        self.watched.as_raw_fd()
    }

    /// Makes the descriptor unreadable. The caller must poll afterwards: a notification may have
    /// been lost.
    pub fn clear(&self) {
        let mut byte = [0];
        while matches!((&self.watched).read(&mut byte), Ok(1)) {}
        self.signalled.store(false, Ordering::SeqCst);
    }
}

impl AvailabilityListener for Readiness {
    fn data_available(&self) {
        if !self.signalled.swap(true, Ordering::SeqCst) {
            let sent = (&self.written).write(&[1]);
            debug_assert!(matches!(sent, Ok(1)), "at most two bytes wait in the pair");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic of a test says what went wrong")]
mod tests {
    use super::*;

    fn readable(readiness: &Readiness) -> bool {
        let mut byte = [0];
        let peeked = rustix::net::recv(&readiness.watched, &mut byte, rustix::net::RecvFlags::PEEK);
        peeked.is_ok()
    }

    #[test]
    fn it_is_readable_from_the_first_notification_until_it_is_cleared() {
        let readiness = Readiness::new().unwrap();
        for _ in 0..3 {
            assert!(!readable(&readiness));
            for _ in 0..100_000 {
                readiness.data_available();
            }
            assert!(readable(&readiness));
            readiness.clear();
        }
    }
}
