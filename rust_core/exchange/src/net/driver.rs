//! The I/O thread's loop.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::net::mailbox::{LISTENER, WAKER};
use crate::net::peers::Peers;
use crate::net::tcp::Tcp;
use crate::net::{Command, Context};

/// How long a closing environment waits for what it still has to say.
const LINGER: Duration = Duration::from_millis(500);
/// Between attempts to accept while the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Driver {
    poll: Poll,
    listener: Option<TcpListener>,
    peers: Peers<Tcp>,
    /// The last accept failed for want of descriptors: epoll will not tell again, so ask.
    accept_again: bool,
}

impl Driver {
    pub(crate) fn new(
        poll: Poll,
        listener: Option<std::net::TcpListener>,
        context: Context,
    ) -> io::Result<Self> {
        let peers = Peers::new(Tcp::new(poll.registry().try_clone()?), context);
        let mut driver = Self { poll, listener: None, peers, accept_again: false };
        if let Some(listener) = listener {
            driver.listen(listener)?;
        }
        Ok(driver)
    }

    fn listen(&mut self, listener: std::net::TcpListener) -> io::Result<()> {
        let mut listener = TcpListener::from_std(listener);
        self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
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
                    LISTENER => self.accept(now),
                    Token(token) => {
                        if let Some(connection) = self.peers.connection(token) {
                            connection.readable |= event.is_readable();
                            if event.is_writable() {
                                connection.can_write();
                            }
                        }
                    }
                }
            }
            if self.accept_again {
                self.accept(now);
            }
            self.peers.context.mailbox.drain(&mut commands);
            for command in commands.drain(..) {
                match command {
                    Command::Shutdown => return self.shut_down(&mut events),
                    Command::Listen(listener) => {
                        self.listen(listener).expect("epoll takes another descriptor");
                    }
                    other => self.peers.handle(other, now),
                }
            }
            self.peers.serve_all(now);
            self.peers.expire(now);
            self.peers.beat(now);
        }
    }

    /// Sleeps until a socket or the mailbox has something, or a deadline is near.
    fn wait(&mut self, events: &mut Events) {
        let mailbox = &self.peers.context.mailbox;
        let timeout = if self.peers.is_readable() || !mailbox.prepare_sleep() {
            Some(Duration::ZERO)
        } else {
            let deadline = self.peers.deadline();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if self.accept_again {
                Some(left.unwrap_or(ACCEPT_PAUSE).min(ACCEPT_PAUSE))
            } else {
                left
            }
        };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                panic!("epoll failed: {error}");
            }
            _ => self.peers.context.mailbox.woke(),
        }
    }

    fn accept(&mut self, now: Instant) {
        self.accept_again = false;
        loop {
            let accepted = match &self.listener {
                Some(listener) => listener.accept(),
                None => return,
            };
            match accepted {
                Ok((socket, peer)) => self.peers.accept(socket, peer, now),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.accept_again = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    /// Says goodbye, waits a little until it is heard, and ends.
    fn shut_down(mut self, events: &mut Events) {
        self.listener = None;
        self.peers.say_goodbye();
        let deadline = Instant::now() + LINGER;
        while Instant::now() < deadline {
            self.peers.end_idle();
            if self.peers.is_empty() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.poll.poll(events, Some(left)).is_err() {
                return;
            }
            let now = Instant::now();
            for event in &*events {
                let Token(token) = event.token();
                if event.is_writable()
                    && let Some(connection) = self.peers.connection(token)
                {
                    connection.can_write();
                }
                if event.is_readable() {
                    self.peers.read_last(token, now);
                }
            }
        }
    }
}
