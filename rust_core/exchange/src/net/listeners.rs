//! The sockets on which peers connect.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::net::same_host;

/// The sockets on which peers connect: over TCP, and from processes of the same host.
pub(crate) struct Listeners {
    pub(crate) tcp: TcpListener,
    pub(crate) same_host: Option<UnixListener>,
}

impl Listeners {
    /// Listens on a Unix socket beside the TCP one if `same_host` asks for it and the host allows it.
    pub(crate) fn new(tcp: TcpListener, same_host: bool) -> std::io::Result<Self> {
        tcp.set_nonblocking(true)?;
        let address = tcp.local_addr()?;
        let same_host = if same_host { same_host::listen(address) } else { None };
        Ok(Self { tcp, same_host })
    }
}
