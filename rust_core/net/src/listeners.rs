//! The sockets on which peers connect.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use socket2::SockRef;

use crate::same_host;

/// Connections that the kernel keeps until they are accepted, if its own limit allows it. It drops further
/// ones, whoever dials.
const BACKLOG: i32 = 4096;

/// The sockets on which peers connect: over TCP, and from processes of the same host.
pub struct Listeners {
    /// Listens over TCP.
    pub tcp: TcpListener,
    /// Listens to processes of this host; None if that is not wanted or not allowed.
    pub same_host: Option<UnixListener>,
}

impl Listeners {
    /// Listens on a Unix socket beside the TCP one if `same_host` asks for it and the host allows it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(tcp: TcpListener, same_host: bool) -> std::io::Result<Self> {
        tcp.set_nonblocking(true)?;
        SockRef::from(&tcp).listen(BACKLOG)?;
        let address = tcp.local_addr()?;
        let same_host = if same_host { same_host::listen(address) } else { None };
        Ok(Self { tcp, same_host })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_wait_for_their_acceptance_and_none_is_dropped() {
        let most = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux");
        let most: usize = most.trim().parse().expect("a number");
        let listeners = Listeners::new(TcpListener::bind("127.0.0.1:0").expect("a port"), false);
        let address = listeners.as_ref().expect("it listens").tcp.local_addr().expect("it listens");
        let dial = || TcpStream::connect_timeout(&address, Duration::from_secs(20));
        let waiting: Vec<_> = (0..most.min(300)).map(|_| dial().expect("it is queued")).collect();
        assert!(!waiting.is_empty());
    }
}
