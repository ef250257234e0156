//! What connections run over.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::error::Result;
use crate::net::lease::Lease;

/// One connection's bytes, both ways; never blocks.
pub(crate) trait Stream: Read + Write {
    /// Whether descriptors can go with the bytes: both ends are on one host, and of one user.
    fn is_same_host(&self) -> bool {
        false
    }

    /// Whether the last read may have left bytes behind, although it got fewer than it had room for.
    fn may_stop_short(&self) -> bool {
        false
    }

    /// Writes bytes of which the first takes a descriptor along.
    fn write_with(&mut self, bytes: &[u8], _descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        self.write(bytes)
    }

    /// The descriptor that came with the bytes read so far.
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

/// Makes streams, and watches what outlives them.
pub(crate) trait Link {
    /// One connection.
    type Stream: Stream;

    /// A stream to this peer that reports its events under `token`.
    fn dial(&mut self, peer: SocketAddr, token: usize) -> Result<Self::Stream>;

    /// Makes an accepted stream report its events under `token`.
    fn register(&mut self, stream: &mut Self::Stream, token: usize) -> io::Result<()>;

    /// Makes a lease whose connection is gone report its end under `token`.
    fn watch(&mut self, lease: &mut Lease, token: usize) -> io::Result<()>;

    /// Ends a stream so that the peer still gets what was written.
    fn close(stream: &mut Self::Stream);
}
