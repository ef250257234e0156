//! The TCP options that detect the loss of a peer's host.

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// Time without an acknowledgement after which the peer's host counts as lost.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time after which the kernel sends a keepalive probe.
const KEEPALIVE_TIME: Duration = Duration::from_secs(4);
/// Time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;

pub(crate) fn set_options(socket: &TcpStream) -> io::Result<()> {
    let options = SockRef::from(socket);
    options.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    options.set_tcp_keepalive(&keepalive)?;
    options.set_tcp_user_timeout(Some(USER_TIMEOUT))
}
