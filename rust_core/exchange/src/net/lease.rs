//! The sign that no buffer lent over a connection is read any more.
//!
//! Decision: ADR 0019.

use std::io::{self, Read};
use std::os::fd::OwnedFd;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

/// The producer's end of a pair of sockets. The consumer keeps the other end open as long as the
/// connection is open or any process reads a lent buffer; the kernel closes it after the last of them.
/// So the lease can outlast the connection, and its end means that nobody reads the buffers.
pub(crate) struct Lease(UnixStream);

impl Lease {
    /// Returns the producer's end and the one to send to the consumer.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    pub(crate) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.0, token, Interest::READABLE)
    }

    /// Returns true if the other end is closed.
    pub(crate) fn has_ended(&mut self) -> bool {
        match self.0.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }
}
