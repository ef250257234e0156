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

use mio::net::UnixStream;
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
        is_ours(&socket).then_some(Self { socket, takes: true, descriptor: None })
    }

    /// A connection that was dialed; none of another user's process.
    pub(crate) fn accepted(socket: UnixStream) -> Option<Self> {
        is_ours(&socket).then_some(Self { socket, takes: false, descriptor: None })
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
        self.socket.try_io(|| {
            Ok(sendmsg(
                self.socket.as_fd(),
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            )?)
        })
    }

    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Reads, and keeps the descriptor that came along until it is taken. One at a time: the kernel ends
    /// a read behind the bytes of a message that has one.
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
        self.socket.write_vectored(slices)
    }
}

/// Whether the process at the other end is of our user: anybody may take or dial a name.
fn is_ours(socket: &UnixStream) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid())
}
