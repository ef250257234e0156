//! Connections over TCP.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::net::peers::Link;

/// Unacknowledged bytes for this long, or questions, mean that the peer's host is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which the kernel asks whether the peer's host is there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(4);
/// Between its questions; one that gets lost is none.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
/// Reads of what a peer had sent when its connection was closed.
const MAX_UNREAD: usize = 64;

/// Sockets that one epoll instance watches.
pub(crate) struct Tcp {
    registry: Registry,
}

impl Tcp {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

impl Link for Tcp {
    type Stream = TcpStream;

    fn dial(&mut self, peer: SocketAddr, token: usize) -> Result<TcpStream> {
        let failed = |error: io::Error| {
            let exhausted =
                descriptors::exhausted(format_args!("cannot connect to {peer}"), &error);
            exhausted.unwrap_or_else(|| ExchangeError::Connect { peer, detail: error.to_string() })
        };
        let mut socket = TcpStream::connect(peer).map_err(failed)?;
        self.register(&mut socket, token).map_err(failed)?;
        Ok(socket)
    }

    fn register(&mut self, socket: &mut TcpStream, token: usize) -> io::Result<()> {
        fail_point!("connection.registered", error => return Err(io::Error::other(error.to_string())));
        let options = SockRef::from(&*socket);
        options.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_TIME)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES);
        options.set_tcp_keepalive(&keepalive)?;
        options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(socket, Token(token), interest)
    }

    /// Without a reset: unread bytes at a close would discard what the peer has not read yet.
    fn close(socket: &mut TcpStream) {
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut scratch = [0; 4096];
        for _ in 0..MAX_UNREAD {
            if !matches!(socket.read(&mut scratch), Ok(count) if count > 0) {
                return;
            }
        }
    }
}
