//! Connections between processes of one host and one user: Unix sockets, which carry descriptors.
//!
//! A process that listens on a TCP address also listens on a Unix socket in the abstract namespace that
//! is named after the address. The abstract namespace belongs to the network namespace, as the address
//! does, so the name always leads to the same process as the address. It leaves nothing on disk.
//!
//! Decision: ADR 0019.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::sync::{Arc, LazyLock};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Uid, geteuid};

/// Room for one descriptor.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(1));

/// Descriptors that may come before the first of them is taken: those of a frame that is cut, and of the
/// next one.
pub const MOST_DESCRIPTORS: usize = 2;

/// Linux's number for users without one, unless the host is configured otherwise.
const DEFAULT_OVERFLOW_UID: u32 = 65534;

/// A connection to a process of this host.
pub struct SameHost {
    pub(super) socket: UnixStream,
    /// True on the side that dialed. The kernel drops descriptors sent to the other side.
    takes_descriptors: bool,
    /// Descriptors that came and were not taken, at most [`MOST_DESCRIPTORS`].
    descriptors: VecDeque<OwnedFd>,
    /// The registry and token that report the socket's events.
    registration: Option<(Arc<Registry>, Token)>,
    /// True if room to write is reported too.
    reports_room: bool,
}

fn name_of(address: SocketAddr) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("headgate {address}"))
}

/// Listens on the Unix socket of this TCP address; returns `None` if the host does not allow it.
pub fn listen(address: SocketAddr) -> Option<net::UnixListener> {
    let listener = net::UnixListener::bind_addr(&name_of(address).ok()?).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

impl SameHost {
    /// Connects to the process that listens on this TCP address; returns `None` if it is on another host
    /// or belongs to another user.
    pub(crate) fn connect(address: SocketAddr) -> Option<Self> {
        let socket = UnixStream::connect_addr(&name_of(address).ok()?).ok()?;
        Self::new(socket, true)
    }

    /// Takes an accepted connection; returns `None` if the peer belongs to another user.
    pub fn accepted(socket: UnixStream) -> Option<Self> {
        Self::new(socket, false)
    }

    fn new(socket: UnixStream, takes_descriptors: bool) -> Option<Self> {
        let (descriptors, registration) = (VecDeque::new(), None);
        let new = Self { socket, takes_descriptors, descriptors, registration, reports_room: true };
        is_same_user(&new.socket).then_some(new)
    }

    /// Registers the socket, so that its events are reported under `token`.
    pub(crate) fn register(&mut self, registry: &Arc<Registry>, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.socket, token, interest)?;
        self.registration = Some((Arc::clone(registry), token));
        Ok(())
    }

    /// Asks for events about room only after a write that found none. Unlike TCP, a Unix socket reports
    /// room after every read of the peer, which would wake this thread for each message.
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

    /// The kernel ends a read after the bytes of a message that carries a descriptor.
    pub(crate) fn may_stop_short(&self) -> bool {
        !self.descriptors.is_empty()
    }

    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Reads, and keeps the descriptor that came with the bytes until it is taken. A read that ends within
    /// a frame may have the frame's descriptor, and the next read that of the next frame.
    pub(crate) fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.takes_descriptors {
            return self.socket.read_vectored(slices);
        }
        let mut space = [MaybeUninit::uninit(); CONTROL];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = self.socket.try_io(|| {
            Ok(recvmsg(self.socket.as_fd(), slices, &mut control, RecvFlags::CMSG_CLOEXEC)?)
        })?;
        let mut came = 0;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    came += 1;
                    // A frame announces one, and its descriptor comes with it: a second one would be taken for
                    // that of the next frame.
                    if came > 1 || self.descriptors.len() == MOST_DESCRIPTORS {
                        return Err(io::Error::other("descriptors came that nothing announced"));
                    }
                    self.descriptors.push_back(descriptor);
                }
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let detail =
                "a descriptor was lost: this process has too many open, or several came at once";
            return Err(io::Error::other(detail));
        }
        Ok(received.bytes)
    }

    pub(crate) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.socket.write_vectored(slices);
        self.wrote(written)
    }
}

/// Returns true if the peer belongs to the same user. Any user may listen on or dial an abstract name.
fn is_same_user(socket: &UnixStream) -> bool {
    socket_peercred(socket).is_ok_and(|peer| is_user(peer.uid, geteuid(), overflow_uid()))
}

/// Compares users. In a user namespace the kernel reports every user that has no number there by one
/// number, `overflow`, which says of nobody who it is: also not to a process that itself runs by it.
fn is_user(peer: Uid, ours: Uid, overflow: Uid) -> bool {
    peer == ours && peer != overflow
}

/// Returns the number that the kernel reports for users without a number in this namespace.
fn overflow_uid() -> Uid {
    static OVERFLOW: LazyLock<Uid> = LazyLock::new(|| {
        let configured = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
        let number = configured.ok().and_then(|text| text.trim().parse().ok());
        Uid::from_raw(number.unwrap_or(DEFAULT_OVERFLOW_UID))
    });
    *OVERFLOW
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    const TOKEN: Token = Token(7);

    #[test]
    fn the_number_that_stands_for_all_unmapped_users_is_nobodys() {
        let [ours, other, overflow] = [1000, 1001, 65534].map(Uid::from_raw);
        assert!(is_user(ours, ours, overflow));
        assert!(!is_user(other, ours, overflow));
        assert!(!is_user(overflow, ours, overflow));
        assert!(!is_user(overflow, overflow, overflow));
        let configured = std::fs::read_to_string("/proc/sys/kernel/overflowuid").expect("Linux");
        assert_eq!(overflow_uid().as_raw().to_string(), configured.trim());
    }

    fn pair(poll: &Poll) -> (SameHost, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        let mut ours = SameHost::accepted(ours).expect("both ends belong to one user");
        let registry = Arc::new(poll.registry().try_clone().expect("a descriptor"));
        ours.register(&registry, TOKEN).expect("not registered before");
        (ours, theirs)
    }

    /// Returns true if room is reported now. Events of reads and writes are there when those return.
    fn reports_room(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).expect("epoll answers");
        events.iter().any(mio::event::Event::is_writable)
    }

    #[test]
    fn room_is_reported_only_after_a_write_that_found_none() {
        let mut poll = Poll::new().expect("descriptors");
        let (mut ours, mut theirs) = pair(&poll);
        assert!(reports_room(&mut poll), "a new connection");
        let (bytes, mut read) = ([1; 4096], [0; 4096]);
        for _ in 0..3 {
            let written = ours.write_vectored(&[IoSlice::new(&bytes)]).expect("there is room");
            assert_eq!(theirs.read(&mut read).expect("just written"), written);
            assert!(!reports_room(&mut poll), "no write has found the socket full");
        }
        for _ in 0..2 {
            let full = loop {
                if let Err(error) = ours.write_vectored(&[IoSlice::new(&bytes)]) {
                    break error;
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            assert!(!reports_room(&mut poll), "the socket is full");
            while theirs.read(&mut read).is_ok() {}
            assert!(reports_room(&mut poll), "the peer has made room");
        }
    }

    #[test]
    fn room_that_comes_before_its_events_are_asked_for_is_reported() {
        let mut poll = Poll::new().expect("descriptors");
        let (mut ours, mut theirs) = pair(&poll);
        assert!(reports_room(&mut poll), "a new connection");
        let (bytes, mut read) = ([1; 4096], [0; 4096]);
        while ours.socket.write_vectored(&[IoSlice::new(&bytes)]).is_ok() {}
        ours.reports_room = false;
        while theirs.read(&mut read).is_ok() {}
        assert!(ours.wrote(Err(io::ErrorKind::WouldBlock.into())).is_err());
        assert!(reports_room(&mut poll), "room came between the write and the registration");
    }
}
