//! The transport that connections run over: sockets, or pipes in tests.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use headgate_memory::TcpTimes;

use crate::lease::Lease;

/// The byte stream of one connection, in both directions; never blocks.
pub trait Stream: Read + Write {
    /// Returns true if descriptors can travel with the bytes: both ends are on one host and belong to
    /// one user.
    fn is_same_host(&self) -> bool {
        false
    }

    /// Returns true if a read that did not fill its buffers may still have left bytes behind.
    fn may_stop_short(&self) -> bool {
        false
    }

    /// Writes bytes; the descriptor travels with the first of them.
    fn write_with(&mut self, bytes: &[u8], _descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        self.write(bytes)
    }

    /// Returns bytes that only the two ends of this stream know, for the handshake to cover; None if the
    /// stream is not encrypted, or not yet.
    fn binding(&self) -> Option<[u8; 32]> {
        None
    }

    /// Returns true if bytes that were written still wait for room; a flush writes them.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Returns the kernel's times of this stream, if it counts them.
    fn tcp_times(&self) -> Option<TcpTimes> {
        None
    }

    /// Takes the first descriptor that came with the bytes read so far.
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

/// Opens streams, and watches the leases that outlive them.
pub trait Link {
    /// The stream of one connection.
    type Stream: Stream;

    /// Opens a stream to this peer that reports its events under `token`: one within the host if
    /// `tries_same_host`, and the peer is there.
    ///
    /// # Errors
    /// The operating system's.
    fn dial(
        &mut self,
        peer: SocketAddr,
        token: usize,
        tries_same_host: bool,
    ) -> io::Result<Self::Stream>;

    /// Makes an accepted stream report its events under `token`.
    fn register(&mut self, stream: &mut Self::Stream, token: usize) -> io::Result<()>;

    /// Makes a lease report its end under `token`, after its connection has ended.
    fn watch(&mut self, lease: &mut Lease, token: usize) -> io::Result<()>;

    /// Closes a stream; the peer still receives the bytes that were written.
    fn close(stream: &mut Self::Stream);
}
