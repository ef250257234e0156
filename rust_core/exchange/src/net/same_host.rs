//! Connections between processes of one host and one user: Unix sockets, which take descriptors along.
//!
//! Who listens on a TCP address listens as well on a socket in the abstract namespace that is named after
//! it. That namespace belongs to the network namespace, as the address does: so the name stands for the
//! same process wherever it can be found at all, and nothing of it stays behind on disk.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::sync::Arc;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;

/// Room for one descriptor.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(1));

/// A connection to a process of this host.
pub(crate) struct SameHost {
    pub(super) socket: UnixStream,
    /// We dialed: descriptors are taken. The kernel drops those that are sent to who takes none.
    takes: bool,
    descriptor: Option<OwnedFd>,
    /// Where its events are reported, once they are.
    registration: Option<(Arc<Registry>, Token)>,
    /// Room to write is reported too.
    reports_room: bool,
}

fn name_of(address: SocketAddr) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("headgate {address}"))
}

/// Listens beside this TCP address; none where that cannot be.
pub(crate) fn listen(address: SocketAddr) -> Option<net::UnixListener> {
    let listener = net::UnixListener::bind_addr(&name_of(address).ok()?).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

impl SameHost {
    /// Connects to who listens beside this TCP address; none where nobody does, or somebody else.
    pub(crate) fn connect(address: SocketAddr) -> Option<Self> {
        let socket = UnixStream::connect_addr(&name_of(address).ok()?).ok()?;
        Self::new(socket, true)
    }

    /// A connection that was dialed; none of another user's process.
    pub(crate) fn accepted(socket: UnixStream) -> Option<Self> {
        Self::new(socket, false)
    }

    fn new(socket: UnixStream, takes: bool) -> Option<Self> {
        let new = Self { socket, takes, descriptor: None, registration: None, reports_room: true };
        is_ours(&new.socket).then_some(new)
    }

    /// Has its events reported under `token`.
    pub(crate) fn register(&mut self, registry: &Arc<Registry>, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.socket, token, interest)?;
        self.registration = Some((Arc::clone(registry), token));
        Ok(())
    }

    /// Has room reported only after a write that found none. Unlike TCP, a Unix socket reports it whenever
    /// the peer has read, which would wake this thread for each of its messages.
    fn wrote(&mut self, written: io::Result<usize>) -> io::Result<usize> {
        let wanted = match &written {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(_) => return written,
        };
        if self.reports_room != wanted
            && let Some((registry, token)) = &self.registration
        {
            let room = wanted.then_some(Interest::WRITABLE);
            let interest = room.map_or(Interest::READABLE, |room| room | Interest::READABLE);
            registry.reregister(&mut self.socket, *token, interest)?;
            self.reports_room = wanted;
        }
        written
    }

    pub(crate) fn write_with(
        &mut self,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(fits, "there is room for one");
        let written = self.socket.try_io(|| {
            Ok(sendmsg(
                self.socket.as_fd(),
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            )?)
        });
        self.wrote(written)
    }

    /// The kernel ends a read behind the bytes of a message that has a descriptor.
    pub(crate) fn may_stop_short(&self) -> bool {
        self.descriptor.is_some()
    }

    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Reads, and keeps the descriptor that came along until it is taken: one at a time.
    pub(crate) fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.takes {
            return self.socket.read_vectored(slices);
        }
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = self.socket.try_io(|| {
            Ok(recvmsg(self.socket.as_fd(), slices, &mut control, RecvFlags::CMSG_CLOEXEC)?)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    if self.descriptor.replace(descriptor).is_some() {
                        return Err(io::Error::other("a descriptor that nothing was said of"));
                    }
                }
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let detail = "a descriptor got lost: too many are open, or more than one came";
            return Err(io::Error::other(detail));
        }
        Ok(received.bytes)
    }

    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.socket.write_vectored(slices);
        self.wrote(written)
    }
}

/// Whether the process at the other end is of our user: anybody may take or dial a name.
fn is_ours(socket: &UnixStream) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    const TOKEN: Token = Token(7);

    fn pair(poll: &Poll) -> (SameHost, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        let mut ours = SameHost::accepted(ours).expect("both ends are of our user");
        let registry = Arc::new(poll.registry().try_clone().expect("a descriptor"));
        ours.register(&registry, TOKEN).expect("not registered before");
        (ours, theirs)
    }

    /// Whether room is reported now. What reads and writes bring about is there when they return.
    fn reports_room(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).expect("epoll answers");
        events.iter().any(mio::event::Event::is_writable)
    }

    #[test]
    fn what_the_peer_reads_is_room_only_for_who_found_none() {
        let mut poll = Poll::new().expect("descriptors");
        let (mut ours, mut theirs) = pair(&poll);
        assert!(reports_room(&mut poll), "a new connection");
        let (bytes, mut read) = ([1; 4096], [0; 4096]);
        for _ in 0..3 {
            let written = ours.write_vectored(&[IoSlice::new(&bytes)]).expect("there is room");
            assert_eq!(theirs.read(&mut read).expect("just written"), written);
            assert!(!reports_room(&mut poll), "nobody waits for it");
        }
        for _ in 0..2 {
            let full = loop {
                if let Err(error) = ours.write_vectored(&[IoSlice::new(&bytes)]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            assert!(!reports_room(&mut poll), "there is none");
            while theirs.read(&mut read).is_ok() {}
            assert!(reports_room(&mut poll), "there is some again");
        }
    }

    #[test]
    fn room_that_comes_before_it_is_asked_for_is_reported() {
        let mut poll = Poll::new().expect("descriptors");
        let (mut ours, mut theirs) = pair(&poll);
        assert!(reports_room(&mut poll), "a new connection");
        let (bytes, mut read) = ([1; 4096], [0; 4096]);
        while ours.socket.write_vectored(&[IoSlice::new(&bytes)]).is_ok() {}
        ours.reports_room = false;
        while theirs.read(&mut read).is_ok() {}
        assert!(ours.wrote(Err(io::ErrorKind::WouldBlock.into())).is_err());
        assert!(reports_room(&mut poll), "it came between the write and the wish");
    }
}
