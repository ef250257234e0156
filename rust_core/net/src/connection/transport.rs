//! The stream of one connection and its readiness.

use std::io::{self, ErrorKind, IoSliceMut};
use std::time::Duration;

use crate::limits::NetworkLimits;
use crate::link::Stream;
use crate::outbox::Outbox;

/// A stream, and the readiness that its link last reported. Links report a change once (epoll's
/// edge-triggered mode), so readiness lasts until a read or a write uses it up.
pub(crate) struct Transport<S> {
    stream: S,
    /// True until a write finds no room.
    writable: bool,
    /// True until a read leaves nothing behind.
    readable: bool,
    /// True once the peer has closed its end or the connection broke; the last read tells which.
    ended: bool,
    limits: NetworkLimits,
}

impl<S: Stream> Transport<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            writable: false,
            readable: false,
            ended: false,
            limits: NetworkLimits::default(),
        }
    }

    /// Looks at the kernel's times; returns the time so far for which the network has limited this stream.
    pub(crate) fn network_limited(&mut self) -> Duration {
        self.limits.look(self.stream.tcp_times())
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Records that there may be bytes to read, and that nothing follows them if `ended`.
    pub(crate) fn can_read(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Records that there may be room to write.
    pub(crate) fn can_write(&mut self) {
        self.writable = true;
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Makes one system call that fills `space` first and `staging` after it.
    pub(super) fn read(
        &mut self,
        space: Option<&mut [u8]>,
        staging: &mut [u8],
    ) -> io::Result<usize> {
        let room = space.as_ref().map_or(0, |space| space.len()) + staging.len();
        let read = match space {
            Some(space) => {
                self.stream.read_vectored(&mut [IoSliceMut::new(space), IoSliceMut::new(staging)])
            }
            None => self.stream.read(staging),
        };
        match &read {
            // A short read emptied the stream, so later bytes are reported as a new event. An end
            // that was reported already is not reported again.
            Ok(count) => {
                self.readable = *count == room || self.ended || self.stream.may_stop_short();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(_) => {}
        }
        read
    }

    /// Returns true if bytes that left the outbox still wait for room.
    pub(super) fn has_unsent(&self) -> bool {
        self.stream.has_unsent()
    }

    /// Writes the outbox as far as the stream takes it; returns the number of bytes written.
    pub(super) fn write(&mut self, outbox: &mut Outbox) -> io::Result<usize> {
        let written = outbox.write_to(&mut self.stream)?;
        match self.stream.flush() {
            Ok(()) => self.writable = outbox.is_empty(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(written)
    }
}
