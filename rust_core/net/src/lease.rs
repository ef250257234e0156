//! The sign that no buffer lent over a connection is read any more.
//!
//! Decision: ADR 0019.

use std::io::{self, Read};
use std::os::fd::OwnedFd;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

/// Most reads of one look at a lease. Nothing is ever written to it, so more are a peer's bad will.
const MAX_READS: usize = 16;
/// Bytes of one read.
const READ_SIZE: usize = 64;

/// The producer's end of a pair of sockets. The consumer keeps the other end open as long as the
/// connection is open or any process reads a lent buffer; the kernel closes it after the last of them.
/// So the lease can outlast the connection, and its end means that nobody reads the buffers.
pub struct Lease(UnixStream);

impl Lease {
    /// Returns the producer's end and the one to send to the consumer.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    pub(crate) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.0, token, Interest::READABLE)
    }

    /// Returns true if the other end is closed. Reads until nothing is left, since the kernel reports bytes
    /// and the end behind them only once. A peer that writes on and on counts as one that has closed it: its
    /// loans would last for ever.
    pub(crate) fn has_ended(&mut self) -> bool {
        for _ in 0..MAX_READS {
            match self.0.read(&mut [0; READ_SIZE]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net;

    use super::*;

    fn pair() -> (Lease, net::UnixStream) {
        let (ours, theirs) = Lease::new().expect("descriptors");
        (ours, theirs.into())
    }

    #[test]
    fn an_end_behind_bytes_that_nobody_should_write_is_seen_at_once() {
        let (mut ours, mut theirs) = pair();
        assert!(!ours.has_ended(), "the other end is open");
        theirs.write_all(&[1; 200]).expect("there is room");
        assert!(!ours.has_ended(), "the other end is open");
        theirs.write_all(&[1; 200]).expect("there is room");
        drop(theirs);
        // The kernel reports both with one event.
        assert!(ours.has_ended());
    }

    #[test]
    fn a_peer_that_writes_on_and_on_has_ended_its_lease() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[1; MAX_READS * READ_SIZE]).expect("there is room");
        assert!(ours.has_ended());
    }
}
