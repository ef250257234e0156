//! The times of a TCP connection that the kernel adds up, for which rustix has no call.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Times of the sending direction, each since the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTimes {
    /// Time with bytes that the peer has not acknowledged.
    pub busy: Duration,
    /// Part of `busy` in which the window of the receiver was full.
    pub receiver_limited: Duration,
    /// Part of `busy` in which the send buffer of the kernel was too small.
    pub buffer_limited: Duration,
    /// True if the kernel has bytes now that it has not sent yet.
    pub has_unsent: bool,
}

const UNSENT: usize = offset_of!(libc::tcp_info, tcpi_notsent_bytes);
const BUSY: usize = offset_of!(libc::tcp_info, tcpi_busy_time);
const RECEIVER: usize = offset_of!(libc::tcp_info, tcpi_rwnd_limited);
const BUFFER: usize = offset_of!(libc::tcp_info, tcpi_sndbuf_limited);
const LEN: usize = BUFFER + size_of::<u64>();

impl TcpTimes {
    /// Returns the times of a socket; `None` if it is no TCP socket, or the kernel is older than Linux 4.10.
    #[must_use]
    pub fn of(socket: impl AsFd) -> Option<Self> {
        let mut info = [0_u8; LEN];
        let mut len = libc::socklen_t::try_from(LEN).ok()?;
        let (socket, to) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
        // SAFETY: K1, the kernel writes at most `len` bytes, of which `info` has as many.
        let result = unsafe {
            libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
        };
        if result != 0 || usize::try_from(len) != Ok(LEN) {
            return None;
        }
        let at = |from| {
            let bytes = info.get(from..from + size_of::<u64>())?.try_into().ok()?;
            Some(Duration::from_micros(u64::from_ne_bytes(bytes)))
        };
        Some(Self {
            busy: at(BUSY)?,
            receiver_limited: at(RECEIVER)?,
            buffer_limited: at(BUFFER)?,
            has_unsent: info.get(UNSENT..UNSENT + size_of::<u32>())? != [0; 4],
        })
    }

    /// Time in which neither the receiver nor the send buffer limited the connection: the network did.
    #[must_use]
    pub fn network_limited(&self) -> Duration {
        self.busy.saturating_sub(self.receiver_limited + self.buffer_limited)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_receiver_that_does_not_read_is_no_limit_of_the_network() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("is bound");
        let mut sender = TcpStream::connect(address).expect("listens");
        let (mut receiver, _) = listener.accept().expect("was dialed");
        sender.set_nonblocking(true).expect("is open");
        let mut sent = 0_usize;
        let refused = loop {
            match sender.write(&[0; 1 << 16]) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let limited = || TcpTimes::of(&sender).expect("is TCP").receiver_limited;
        while limited() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let times = TcpTimes::of(&sender).expect("is TCP");
        assert!(times.busy >= times.receiver_limited + times.buffer_limited, "{times:?}");
        assert!(times.network_limited() < times.receiver_limited, "{times:?}");
        assert!(times.has_unsent, "{times:?}");
        receiver.read_exact(&mut vec![0; sent]).expect("was sent");
        assert!(!TcpTimes::of(&sender).expect("is TCP").has_unsent);
    }

    #[test]
    fn other_sockets_have_no_times() {
        let (socket, _peer) = UnixStream::pair().expect("descriptors");
        assert_eq!(TcpTimes::of(&socket), None);
    }

    #[test]
    fn parts_that_exceed_the_whole_leave_nothing() {
        let ms = Duration::from_millis;
        let times = |busy| TcpTimes {
            busy,
            receiver_limited: ms(2),
            buffer_limited: ms(3),
            has_unsent: false,
        };
        assert_eq!(times(ms(12)).network_limited(), ms(7));
        assert_eq!(times(ms(4)).network_limited(), ms(0));
    }
}
