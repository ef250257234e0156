//! How a TCP connection finds out that its peer's host is gone.

use std::io;
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};

/// Unacknowledged bytes for this long, or questions, mean that the peer's host is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which the kernel asks whether the peer's host is there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(4);
/// Between its questions; one that gets lost is none.
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
