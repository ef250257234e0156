//! Connections over sockets: TCP, with TLS or without, or Unix sockets between processes of one host and user.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use headgate_memory::TcpTimes;
use headgate_tls::{Tls, TlsStream};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::lease::Lease;
use crate::link::{Link, Stream};
use crate::same_host::SameHost;
use crate::tcp;

/// Most reads that drain a connection before it is closed.
const MAX_UNREAD: usize = 64;
/// Bytes that one of them discards.
const DISCARDED: usize = 4096;

/// Sockets that one epoll instance watches.
pub struct Sockets {
    registry: Arc<Registry>,
    /// True if a Unix socket is tried before TCP.
    same_host: bool,
    /// Encrypts what goes over TCP; None for connections in the clear.
    tls: Option<Tls>,
}

/// One connection.
pub enum Socket {
    /// Over TCP, in the clear.
    Tcp(TcpStream),
    /// Over TCP, encrypted.
    Tls(Box<TlsStream<TcpStream>>),
    /// Within the host.
    SameHost(SameHost),
}

impl Sockets {
    /// Opens sockets whose events this registry reports.
    pub fn new(registry: Registry, same_host: bool, tls: Option<Tls>) -> Self {
        Self { registry: Arc::new(registry), same_host, tls }
    }

    /// Takes a TCP connection that a peer dialed.
    pub(crate) fn accepted(&self, socket: TcpStream) -> io::Result<Socket> {
        Ok(match &self.tls {
            Some(tls) => Socket::Tls(Box::new(TlsStream::accepted(socket, tls)?)),
            None => Socket::Tcp(socket),
        })
    }

    fn dialed(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<Socket> {
        Ok(match &self.tls {
            Some(tls) => Socket::Tls(Box::new(TlsStream::dialed(socket, peer, tls)?)),
            None => Socket::Tcp(socket),
        })
    }

    fn register_tcp(&self, socket: &mut TcpStream, token: usize) -> io::Result<()> {
        tcp::set_options(socket)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(socket, Token(token), interest)
    }
}

impl Link for Sockets {
    type Stream = Socket;

    fn dial(
        &mut self,
        peer: SocketAddr,
        token: usize,
        tries_same_host: bool,
    ) -> io::Result<Socket> {
        let near = self.same_host && tries_same_host;
        let near = if near { SameHost::connect(peer) } else { None };
        let mut socket = match near {
            Some(near) => Socket::SameHost(near),
            None => {
                let socket = TcpStream::connect(peer)?;
                self.dialed(socket, peer)?
            }
        };
        self.register(&mut socket, token)?;
        Ok(socket)
    }

    fn register(&mut self, socket: &mut Socket, token: usize) -> io::Result<()> {
        fail_point!("connection.registered", text => return Err(io::Error::other(text)));
        match socket {
            Socket::Tcp(socket) => self.register_tcp(socket, token),
            Socket::Tls(stream) => self.register_tcp(stream.socket_mut(), token),
            Socket::SameHost(near) => near.register(&self.registry, Token(token)),
        }
    }

    fn watch(&mut self, lease: &mut Lease, token: usize) -> io::Result<()> {
        lease.watch(&self.registry, Token(token))
    }

    /// Drains the socket first: closing it with unread bytes would reset the connection and discard the
    /// bytes that the peer has not read yet.
    fn close(socket: &mut Socket) {
        let _ = match socket {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Tls(stream) => {
                stream.say_end();
                stream.socket_mut().shutdown(Shutdown::Write)
            }
            Socket::SameHost(near) => near.socket.shutdown(Shutdown::Write),
        };
        let mut scratch = [0; DISCARDED];
        for _ in 0..MAX_UNREAD {
            if !matches!(socket.read(&mut scratch), Ok(count) if count > 0) {
                return;
            }
        }
    }
}

impl Stream for Socket {
    fn is_same_host(&self) -> bool {
        matches!(self, Self::SameHost(_))
    }

    fn may_stop_short(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            // A read stops at the end of a record.
            Self::Tls(_) => true,
            Self::SameHost(near) => near.may_stop_short(),
        }
    }

    fn binding(&self) -> Option<[u8; 32]> {
        match self {
            Self::Tls(stream) => stream.binding(),
            Self::Tcp(_) | Self::SameHost(_) => None,
        }
    }

    fn has_unsent(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.has_unsent(),
            Self::Tcp(_) | Self::SameHost(_) => false,
        }
    }

    fn tcp_times(&self) -> Option<TcpTimes> {
        match self {
            Self::Tcp(socket) => TcpTimes::of(socket),
            Self::Tls(stream) => TcpTimes::of(stream.socket()),
            Self::SameHost(_) => None,
        }
    }

    fn write_with(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::SameHost(near) => near.write_with(bytes, descriptor),
        }
    }

    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => None,
            Self::SameHost(near) => near.take_descriptor(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read_vectored(slices),
            Self::Tls(stream) => stream.read_vectored(slices),
            Self::SameHost(near) => near.read_vectored(slices),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
            Self::SameHost(near) => near.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Tcp(_) | Self::SameHost(_) => Ok(()),
        }
    }
}
