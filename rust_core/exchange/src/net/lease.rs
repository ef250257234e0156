//! How a producer learns that nothing of what it lent over a connection is read any more.

use std::io::{self, Read};
use std::os::fd::OwnedFd;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

/// One end of a pair of sockets. The consumer has the other one and keeps it open as long as the
/// connection lives or any lent buffer is read, in whatever process; the kernel closes it with the last
/// of those. So it says more than the end of the connection, and as much as the end of all readers.
pub(crate) struct Lease(UnixStream);

impl Lease {
    /// Our end, and the one for the consumer.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    pub(crate) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.0, token, Interest::READABLE)
    }

    /// Whether the other end is closed.
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
