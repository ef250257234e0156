//! A descriptor for event loops: readable when a gate has something to poll.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::gate::AvailabilityListener;

/// A pair of sockets, of which a listener writes to one and an event loop watches the other.
pub struct Readiness {
    watched: UnixStream,
    written: UnixStream,
    /// There is a byte in the pair, or is about to be.
    signalled: AtomicBool,
}

impl Readiness {
    /// A pair with nothing in it.
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

    /// What the event loop watches; open as long as this value lives.
    pub fn descriptor(&self) -> RawFd {
        self.watched.as_raw_fd()
    }

    /// Makes the descriptor unreadable; a poll must follow, as what was told is forgotten.
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
#[allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]
mod tests {
    use super::*;

    fn readable(readiness: &Readiness) -> bool {
        let mut byte = [0];
        let peeked = rustix::net::recv(&readiness.watched, &mut byte, rustix::net::RecvFlags::PEEK);
        peeked.is_ok()
    }

    #[test]
    fn it_is_readable_from_the_first_notice_until_it_is_cleared() {
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
