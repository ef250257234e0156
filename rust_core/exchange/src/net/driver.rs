//! The I/O thread's loop.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headgate_protocol::ChannelId;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::net::connection::Connection;
use crate::net::mailbox::{FIRST_CONNECTION, LISTENER, WAKER};
use crate::net::{Command, Context};

/// Connections that have not proved themselves; the oldest goes when one more comes.
const MAX_PENDING: usize = 64;
/// How long a closing environment waits for what it still has to say.
const LINGER: Duration = Duration::from_millis(500);
/// Between attempts to accept while the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Unacknowledged bytes for this long, or questions, mean that the peer's host is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which the kernel asks whether the peer's host is there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(4);
/// Between its questions; one that gets lost is none.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
/// Reads of what a peer had sent when its connection was closed.
const MAX_UNREAD: usize = 64;

pub(crate) struct Driver {
    poll: Poll,
    listener: Option<TcpListener>,
    connections: HashMap<usize, Connection>,
    next_token: usize,
    /// The connection to each peer we read from.
    dialed: HashMap<SocketAddr, usize>,
    /// The connection each channel is read on.
    channels: HashMap<ChannelId, usize>,
    context: Context,
    /// The last accept failed for want of descriptors: epoll will not tell again, so ask.
    accept_again: bool,
}

impl Driver {
    pub(crate) fn new(
        poll: Poll,
        listener: Option<std::net::TcpListener>,
        context: Context,
    ) -> io::Result<Self> {
        let mut driver = Self {
            poll,
            listener: None,
            connections: HashMap::new(),
            next_token: FIRST_CONNECTION,
            dialed: HashMap::new(),
            channels: HashMap::new(),
            context,
            accept_again: false,
        };
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
                        if let Some(connection) = self.connections.get_mut(&token) {
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
            self.context.mailbox.drain(&mut commands);
            for command in commands.drain(..) {
                if matches!(command, Command::Shutdown) {
                    return self.shut_down(&mut events);
                }
                self.handle(command, now);
            }
            self.serve_all(now);
            self.expire(now);
        }
    }

    /// Sleeps until a socket or the mailbox has something, or a deadline is near.
    fn wait(&mut self, events: &mut Events) {
        let busy = self.connections.values().any(|connection| connection.readable);
        let timeout = if busy || !self.context.mailbox.prepare_sleep() {
            Some(Duration::ZERO)
        } else {
            let deadline = self.connections.values().filter_map(Connection::deadline).min();
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
            _ => self.context.mailbox.woke(),
        }
    }

    fn handle(&mut self, command: Command, now: Instant) {
        match command {
            Command::Open { peer, process, channel, request } => {
                match self.dial(peer, process, now) {
                    Ok(token) => {
                        self.channels.insert(channel.id(), token);
                        let connection = self.connections.get_mut(&token).expect("just dialed");
                        connection.open(channel, request);
                    }
                    Err(error) => channel.fail(error),
                }
            }
            Command::Credit(channel) => {
                if let Some(connection) = self.connection_of(channel.id()) {
                    connection.announce(&channel);
                }
            }
            Command::Cancel(channel) => {
                if let Some(connection) = self.connection_of(channel.id()) {
                    connection.cancel(&channel);
                }
                self.channels.remove(&channel.id());
            }
            Command::Data { connection, channel } => {
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.on_data(channel);
                }
            }
            Command::Listen(listener) => {
                self.listen(listener).expect("epoll takes another descriptor");
            }
            Command::Shutdown => unreachable!("handled by the loop"),
        }
    }

    fn connection_of(&mut self, channel: ChannelId) -> Option<&mut Connection> {
        self.connections.get_mut(self.channels.get(&channel)?)
    }

    fn dial(&mut self, peer: SocketAddr, process: [u8; 16], now: Instant) -> Result<usize> {
        if let Some(token) = self.dialed.get(&peer) {
            return Ok(*token);
        }
        let failed = |error: io::Error| {
            let exhausted =
                descriptors::exhausted(format_args!("cannot connect to {peer}"), &error);
            exhausted.unwrap_or_else(|| ExchangeError::Connect { peer, detail: error.to_string() })
        };
        let socket = TcpStream::connect(peer).map_err(failed)?;
        let token = self.next_token;
        let mut connection = Connection::dial(token, socket, peer, process, &self.context, now)?;
        self.register(&mut connection, token).map_err(failed)?;
        self.connections.insert(token, connection);
        self.dialed.insert(peer, token);
        Ok(token)
    }

    fn accept(&mut self, now: Instant) {
        self.accept_again = false;
        loop {
            let accepted = match &self.listener {
                Some(listener) => listener.accept(),
                None => return,
            };
            match accepted {
                Ok((socket, peer)) => {
                    let token = self.next_token;
                    let connection = Connection::accept(token, socket, peer, &self.context, now);
                    let Ok(mut connection) = connection else {
                        continue;
                    };
                    if self.register(&mut connection, token).is_ok() {
                        self.connections.insert(token, connection);
                        self.limit_pending();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.accept_again = error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn register(&mut self, connection: &mut Connection, token: usize) -> io::Result<()> {
        self.next_token += 1;
        fail_point!("connection.registered", error => return Err(io::Error::other(error.to_string())));
        let socket = SockRef::from(&*connection.socket_mut());
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_TIME)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(connection.socket_mut(), Token(token), interest)
    }

    fn limit_pending(&mut self) {
        let pending = |c: &&Connection| c.is_pending_server();
        if self.connections.values().filter(pending).count() > MAX_PENDING {
            // Tokens count up, so the smallest is the oldest.
            let unproved = self.connections.iter().filter(|(_, c)| c.is_pending_server());
            if let Some(oldest) = unproved.map(|(token, _)| *token).min() {
                self.connections.remove(&oldest);
            }
        }
    }

    /// Reads and writes wherever something is due.
    fn serve_all(&mut self, now: Instant) {
        let mut broken = Vec::new();
        for (token, connection) in &mut self.connections {
            let read =
                if connection.readable { connection.read(&self.context, now) } else { Ok(()) };
            if let Err(cause) = read.and_then(|()| connection.flush(&self.context)) {
                broken.push((*token, cause));
            }
        }
        for (token, cause) in broken {
            self.disconnect(token, &cause);
        }
    }

    fn expire(&mut self, now: Instant) {
        let expired = |c: &Connection| c.deadline().is_some_and(|deadline| deadline <= now);
        let late: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| expired(connection))
            .map(|(token, connection)| (*token, connection.expired()))
            .collect();
        for (token, cause) in late {
            self.disconnect(token, &cause);
        }
    }

    fn disconnect(&mut self, token: usize, cause: &ExchangeError) {
        let Some(mut connection) = self.connections.remove(&token) else {
            return;
        };
        if self.dialed.get(&connection.peer()) == Some(&token) {
            self.dialed.remove(&connection.peer());
        }
        self.channels.retain(|_, on| *on != token);
        fail_point!("connection.ended");
        close_gently(connection.socket_mut());
        connection.disconnected(cause);
    }

    /// Says goodbye, waits a little until it is heard, and ends.
    fn shut_down(mut self, events: &mut Events) {
        self.listener = None;
        fail_point!("connection.goodbye");
        for connection in self.connections.values_mut() {
            connection.say_goodbye();
        }
        let deadline = Instant::now() + LINGER;
        while Instant::now() < deadline {
            let mut ended = Vec::new();
            for (token, connection) in &mut self.connections {
                let flushed = connection.flush(&self.context);
                if flushed.is_err() || connection.is_idle() {
                    ended.push(*token);
                }
            }
            for token in ended {
                if let Some(mut connection) = self.connections.remove(&token) {
                    close_gently(connection.socket_mut());
                }
            }
            if self.connections.is_empty() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.poll.poll(events, Some(left)).is_err() {
                return;
            }
            let now = Instant::now();
            for event in &*events {
                let Some(connection) = self.connections.get_mut(&event.token().0) else {
                    continue;
                };
                if event.is_writable() {
                    connection.can_write();
                }
                if event.is_readable() && connection.read(&self.context, now).is_err() {
                    self.connections.remove(&event.token().0);
                }
            }
        }
    }
}

/// Ends the stream without a reset: unread bytes at a close would discard what the peer has not
/// read yet.
fn close_gently(socket: &mut TcpStream) {
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut scratch = [0; 4096];
    for _ in 0..MAX_UNREAD {
        if !matches!(socket.read(&mut scratch), Ok(count) if count > 0) {
            return;
        }
    }
}
