//! The I/O thread's loop.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token};

use crate::context::Context;
use crate::listeners::Listeners;
use crate::mailbox::{Command, LISTENER, SAME_HOST_LISTENER, WAKER};
use crate::peers::Peers;
use crate::same_host::SameHost;
use crate::sockets::{Socket, Sockets};

/// Time for which a closing environment waits until its last frames are written.
const LINGER: Duration = Duration::from_millis(500);
/// Connections accepted from one listener before those that are open get their turn.
const ACCEPT_QUOTA: usize = 64;
/// Time between attempts to accept while the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The address of a peer that dialed over a Unix socket, which has no address of its own.
const UNNAMED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) struct Driver {
    poll: Poll,
    listener: Option<TcpListener>,
    same_host: Option<UnixListener>,
    peers: Peers<Sockets>,
    /// Time after which to accept again, since epoll does not report the same connections twice: no time
    /// after a full quota, [`ACCEPT_PAUSE`] after a failure.
    accept_again: Option<Duration>,
    /// True if the last round handled commands only, so that this one polls the sockets.
    skipped_poll: bool,
}

impl Driver {
    pub(crate) fn new(
        poll: Poll,
        listeners: Option<Listeners>,
        context: Context,
    ) -> io::Result<Self> {
        let sockets =
            Sockets::new(poll.registry().try_clone()?, context.same_host_link, context.tls.clone());
        let peers = Peers::new(sockets, context);
        let (listener, same_host) = (None, None);
        let mut driver =
            Self { poll, listener, same_host, peers, accept_again: None, skipped_poll: false };
        if let Some(listeners) = listeners {
            driver.listen(listeners)?;
        }
        Ok(driver)
    }

    fn listen(&mut self, listeners: Listeners) -> io::Result<()> {
        let registry = self.poll.registry();
        let mut listener = TcpListener::from_std(listeners.tcp);
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        if let Some(listener) = listeners.same_host {
            let mut listener = UnixListener::from_std(listener);
            registry.register(&mut listener, SAME_HOST_LISTENER, Interest::READABLE)?;
            self.same_host = Some(listener);
        }
        Ok(())
    }

    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut commands = Vec::new();
        loop {
            self.wait(&mut events);
            let now = Instant::now();
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER | SAME_HOST_LISTENER => self.accept(now),
                    Token(token) => {
                        if !report(&mut self.peers, event) {
                            self.peers.check_lease(token);
                        }
                    }
                }
            }
            if self.accept_again.is_some() {
                self.accept(now);
            }
            self.peers.context.mailbox.drain(&mut commands);
            for command in commands.drain(..) {
                match command {
                    Command::Shutdown => {
                        self.peers.context.waits.io_worked();
                        return self.shut_down(&mut events);
                    }
                    Command::Listen(listeners) => {
                        self.listen(listeners).expect("epoll takes another descriptor");
                    }
                    other => self.peers.handle(other, now),
                }
            }
            self.peers.serve_all(now);
            self.peers.expire(now);
            if self.peers.beat(now) {
                self.peers.context.waits.io_worked();
            }
        }
    }

    /// Sleeps until a socket or the mailbox has work, or a deadline is due. Skips every other poll while
    /// the mailbox has commands, which saves a system call.
    fn wait(&mut self, events: &mut Events) {
        let mailbox = &self.peers.context.mailbox;
        let timeout = if self.peers.is_readable() {
            Some(Duration::ZERO)
        } else if !mailbox.prepare_sleep() {
            self.skipped_poll = !self.skipped_poll;
            if self.skipped_poll {
                events.clear();
                return;
            }
            Some(Duration::ZERO)
        } else {
            self.skipped_poll = false;
            let deadline = self.peers.deadline();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            self.accept_again.into_iter().chain(left).min()
        };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                panic!("epoll failed: {error}");
            }
            _ => self.peers.context.mailbox.woke(),
        }
    }

    fn accept(&mut self, now: Instant) {
        let Self { listener, same_host, peers, .. } = self;
        let tcp = listener.as_ref().and_then(|listener| {
            accept_some(|| listener.accept(), |(socket, peer)| peers.accept_tcp(socket, peer, now))
        });
        let near = same_host.as_ref().and_then(|listener| {
            accept_some(
                || listener.accept(),
                |(socket, _)| {
                    if let Some(near) = SameHost::accepted(socket) {
                        peers.accept(Socket::SameHost(near), UNNAMED, now);
                    }
                },
            )
        });
        self.accept_again = [tcp, near].into_iter().flatten().min();
    }

    /// Sends a goodbye on every connection and waits at most [`LINGER`] until it is written.
    fn shut_down(mut self, events: &mut Events) {
        (self.listener, self.same_host) = (None, None);
        self.peers.say_goodbye();
        let deadline = Instant::now() + LINGER;
        loop {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return;
            }
            self.peers.end_idle(now);
            if self.peers.is_empty() {
                return;
            }
            if self.poll.poll(events, Some(left)).is_err() {
                return;
            }
            let now = Instant::now();
            for event in &*events {
                if report(&mut self.peers, event) {
                    let Token(token) = event.token();
                    self.peers.read_last(token, now);
                }
            }
        }
    }
}

/// Accepts connections up to the quota. Returns the time after which to accept again; `None` once none
/// waits.
fn accept_some<T>(accept: impl Fn() -> io::Result<T>, mut take: impl FnMut(T)) -> Option<Duration> {
    for _ in 0..ACCEPT_QUOTA {
        match accept() {
            Ok(accepted) => take(accepted),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(_) => return Some(ACCEPT_PAUSE),
        }
    }
    Some(Duration::ZERO)
}

/// Passes an event of a socket on to its connection; returns false if that has ended.
fn report(peers: &mut Peers<Sockets>, event: &Event) -> bool {
    let ended = event.is_read_closed() || event.is_error();
    let Token(token) = event.token();
    peers.report(token, event.is_readable(), ended, event.is_writable())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use mio::net::{TcpStream, UnixStream};

    use super::*;
    use crate::mailbox::Mailbox;
    use crate::testing::context;

    struct Rounds {
        poll: Poll,
        peers: Peers<Sockets>,
    }

    impl Rounds {
        fn new() -> Self {
            let poll = Poll::new().expect("descriptors");
            let registry = poll.registry().try_clone().expect("a descriptor");
            let mailbox = Arc::new(Mailbox::new(&registry).expect("a descriptor"));
            let link = Sockets::new(registry, false, None);
            let peers = Peers::new(link, context(mailbox, &Arc::default()));
            Self { poll, peers }
        }

        fn accept(&mut self, socket: Socket) {
            self.peers.accept(socket, UNNAMED, Instant::now());
        }

        /// Runs one round once a socket reports an event.
        fn turn(&mut self) {
            let mut events = Events::with_capacity(4);
            self.poll.poll(&mut events, Some(Duration::from_secs(60))).expect("epoll answers");
            assert!(!events.is_empty(), "no socket reports an event");
            for event in &events {
                assert!(report(&mut self.peers, event), "is open");
            }
            self.peers.serve_all(Instant::now());
        }
    }

    fn same_host() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        (Socket::SameHost(SameHost::accepted(ours).expect("of our user")), theirs)
    }

    fn over_tcp() -> (Socket, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let theirs = std::net::TcpStream::connect(address).expect("listens");
        let (ours, _) = listener.accept().expect("dialed");
        ours.set_nonblocking(true).expect("is open");
        (Socket::Tcp(TcpStream::from_std(ours)), theirs)
    }

    #[test]
    fn connections_without_end_do_not_keep_the_thread_from_the_open_ones() {
        let mut taken = 0;
        assert_eq!(accept_some(|| Ok(()), |()| taken += 1), Some(Duration::ZERO));
        assert_eq!(taken, ACCEPT_QUOTA);
        let fails = |kind: ErrorKind| accept_some(|| Err::<(), _>(kind.into()), |()| ());
        assert_eq!(fails(ErrorKind::WouldBlock), None);
        assert_eq!(fails(ErrorKind::Other), Some(ACCEPT_PAUSE));
    }

    #[test]
    fn an_end_that_arrives_with_the_last_bytes_is_noticed() {
        fn check((ours, mut theirs): (Socket, impl Write)) {
            let mut rounds = Rounds::new();
            theirs.write_all(b"HD").expect("there is room");
            drop(theirs);
            rounds.accept(ours);
            while !rounds.peers.is_empty() {
                rounds.turn();
            }
        }
        check(same_host());
        check(over_tcp());
    }

    #[test]
    fn an_end_that_arrives_after_the_last_bytes_is_noticed() {
        fn check((ours, mut theirs): (Socket, impl Write)) {
            let mut rounds = Rounds::new();
            theirs.write_all(b"HD").expect("there is room");
            rounds.accept(ours);
            rounds.turn();
            assert!(!rounds.peers.is_readable(), "all bytes were read");
            drop(theirs);
            while !rounds.peers.is_empty() {
                rounds.turn();
            }
        }
        check(same_host());
        check(over_tcp());
    }
}
