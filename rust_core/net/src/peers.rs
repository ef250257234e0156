//! All connections of an environment, by peer and by channel.
//!
//! A [`Link`] opens the streams, so that the same code runs over sockets and, in tests, over pipes
//! whose delays and ends a seed chooses.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;

use headgate_protocol::{ChannelId, Frame, HEARTBEAT_INTERVAL, HeartbeatMonitor};
use headgate_trace::{Event, Kind, record, text};

use crate::client::PartitionRequestClient;
use crate::connection::Connection;
use crate::context::Context;
use crate::error::{ConnectionError, Result};
use crate::link::{Link, Stream};
use crate::loans::Outstanding;
use crate::mailbox::{Command, FIRST_CONNECTION};
use crate::newcomers::{Newcomers, Source, Standing};
use crate::outbox::Outbox;
use crate::peer_error;
use crate::redial::{Dial, Redial};
use crate::sockets::Sockets;

/// Most bytes of frames without payload, and of task events for partitions that have not appeared, that all connections
/// may keep.
const KEPT_LIMIT: usize = 8 << 20;

/// The connections of one environment.
pub struct Peers<L: Link> {
    link: L,
    /// By token, in order, so that a run in the simulator depends on its seed alone.
    connections: BTreeMap<usize, Connection<L::Stream>>,
    next_token: usize,
    /// The accepted ones whose peers have not proved themselves.
    newcomers: Newcomers,
    /// Buffers that peers may still read, by the token of the ended connection.
    outstanding: BTreeMap<usize, Outstanding>,
    /// The connections that are dialed again, by token. Their channels wait meanwhile.
    redials: BTreeMap<usize, Redial>,
    /// The connection to each peer that this process reads from.
    dialed: HashMap<SocketAddr, usize>,
    /// The connection each channel is read on.
    channels: HashMap<ChannelId, usize>,
    /// Functions to call, each at its time.
    calls: Vec<(Instant, Box<dyn FnOnce() + Send>)>,
    /// Counts the silent rounds of the connections that have channels.
    monitor: HeartbeatMonitor,
    /// End of the current round of heartbeats; `None` while no connection is watched.
    round: Option<Instant>,
    pub(crate) context: Context,
}

/// Returns the error for the peer that has the most of what waits for all.
fn does_not_read(own: usize, kept: usize, peer: SocketAddr) -> ConnectionError {
    let detail = format!(
        "it does not read: of {kept} bytes of frames and task events that wait for peers, {own} wait for it, and all \
         together may have {KEPT_LIMIT}"
    );
    peer_error::protocol(&detail, peer)
}

/// Records the end of a connection while the environment ends.
fn record_close(connection: usize, peer: SocketAddr) {
    record(Kind::Net, || Event::Closed { connection, peer });
}

impl<L: Link> Peers<L> {
    /// Creates an environment's connections, of which there are none yet.
    pub fn new(link: L, context: Context) -> Self {
        Self {
            link,
            connections: BTreeMap::new(),
            next_token: FIRST_CONNECTION,
            newcomers: Newcomers::new(),
            outstanding: BTreeMap::new(),
            redials: BTreeMap::new(),
            dialed: HashMap::new(),
            channels: HashMap::new(),
            calls: Vec::new(),
            monitor: HeartbeatMonitor::default(),
            round: None,
            context,
        }
    }

    /// Records what an event says of a connection: that there may be bytes to read, that nothing follows them, that
    /// there may be room to write. Returns false if the connection has ended.
    pub fn report(&mut self, token: usize, readable: bool, ended: bool, writable: bool) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else { return false };
        if readable || ended {
            connection.transport.can_read(ended);
        }
        if writable {
            connection.transport.can_write();
        }
        true
    }

    /// Returns true if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the time at which the next connection is dialed again.
    pub fn next_redial(&self) -> Option<Instant> {
        self.redials.values().map(|redial| redial.at).min()
    }

    /// Returns true if a connection may have bytes to read.
    pub fn is_readable(&self) -> bool {
        self.connections.values().any(|connection| connection.transport.is_readable())
    }

    /// Returns the time at which [`expire`](Self::expire) or [`beat`](Self::beat) is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let calls = self.calls.iter().map(|(at, _)| *at);
        self.connections
            .values()
            .filter_map(Connection::deadline)
            .chain(calls)
            .chain(self.next_redial())
            .chain(self.round)
            .min()
    }

    /// Executes a command of another thread.
    pub fn handle(&mut self, command: Command, now: Instant) {
        match command {
            Command::Open { peer, process, channel, request } => {
                match self.dial(peer, process, now) {
                    Ok(token) => {
                        self.channels.insert(channel.id(), token);
                        let (client, outbox) = self.client_at(token).expect("just dialed");
                        client.open(channel, request, outbox);
                    }
                    Err(error) => channel.fail(error),
                }
            }
            Command::Credit(channel) => {
                if let Some((client, outbox)) = self.client_of(channel.id()) {
                    client.announce(&*channel, outbox);
                }
            }
            Command::Cancel(channel) => {
                if let Some((client, outbox)) = self.client_of(channel.id()) {
                    client.cancel(&*channel, outbox);
                }
                self.channels.remove(&channel.id());
            }
            Command::Tell(channel, message) => {
                if let Some((client, outbox)) = self.client_of(channel.id()) {
                    client.tell(&*channel, message, outbox);
                }
            }
            Command::Resume(channel) => {
                if let Some((client, outbox)) = self.client_of(channel.id()) {
                    client.resume(&*channel, outbox);
                }
            }
            Command::Return { connection, loan } => {
                let connection = self.connections.get_mut(&connection);
                if let Some((_, outbox)) = connection.and_then(Connection::client) {
                    outbox.push_frame(&Frame::Return { loan });
                }
            }
            Command::Data { connection, channel } => {
                let connection = self.connections.get_mut(&connection);
                if let Some((serve, outbox)) = connection.and_then(Connection::serve) {
                    serve.on_data(channel, outbox);
                }
            }
            Command::PartitionCreated { connection, channel } => {
                let connection = self.connections.get_mut(&connection);
                if let Some((serve, outbox)) = connection.and_then(Connection::serve) {
                    serve.on_created(channel, &self.context, now, outbox);
                }
            }
            Command::After { timeout, call } => self.calls.push((now + timeout, call)),
            Command::Listen(_) | Command::Shutdown => unreachable!("handled by the driver"),
        }
    }

    fn client_of(
        &mut self,
        channel: ChannelId,
    ) -> Option<(&mut PartitionRequestClient, &mut Outbox)> {
        self.client_at(*self.channels.get(&channel)?)
    }

    fn client_at(&mut self, token: usize) -> Option<(&mut PartitionRequestClient, &mut Outbox)> {
        match self.connections.get_mut(&token) {
            Some(connection) => connection.client(),
            None => {
                self.redials.get_mut(&token).map(|redial| (&mut redial.client, &mut redial.outbox))
            }
        }
    }

    fn dial(&mut self, peer: SocketAddr, process: [u8; 16], now: Instant) -> Result<usize> {
        if let Some(token) = self.dialed.get(&peer) {
            return Ok(*token);
        }
        let token = self.next_token;
        self.next_token += 1;
        self.open(token, Dial::new(peer, process, now), &mut PartitionRequestClient::default())?;
        self.dialed.insert(peer, token);
        Ok(token)
    }

    /// Opens a connection; takes the client unless that fails.
    fn open(
        &mut self,
        token: usize,
        dial: Dial,
        client: &mut PartitionRequestClient,
    ) -> Result<()> {
        let peer = dial.peer;
        let failed = |error| ConnectionError::Connect { peer, source: Arc::new(error) };
        let stream = self.link.dial(peer, token, dial.tries_same_host).map_err(failed)?;
        let connection = Connection::dial(token, stream, dial, client, &self.context)?;
        self.connections.insert(token, connection);
        record(Kind::Net, || Event::Dialed { connection: token, peer });
        Ok(())
    }

    /// Opens the connections whose time to be dialed again has come.
    fn redial(&mut self, now: Instant) {
        let due = self.redials.iter().filter(|(_, redial)| redial.at <= now);
        let due: Vec<_> = due.map(|(token, _)| *token).collect();
        for token in due {
            let Some(Redial { dial, mut client, .. }) = self.redials.remove(&token) else {
                continue;
            };
            let peer = dial.peer;
            if let Err(error) = self.open(token, dial, &mut client) {
                self.forget(token, peer);
                client.fetch.disconnected(&error);
            }
        }
    }

    /// Makes the next channel to a peer dial anew.
    fn forget(&mut self, token: usize, peer: SocketAddr) {
        if self.dialed.get(&peer) == Some(&token) {
            self.dialed.remove(&peer);
        }
        self.channels.retain(|_, on| *on != token);
    }

    /// Accepts a connection; drops it if it cannot be set up.
    pub fn accept(&mut self, mut stream: L::Stream, peer: SocketAddr, now: Instant) {
        let token = self.next_token;
        self.next_token += 1;
        if self.link.register(&mut stream, token).is_err() {
            return;
        }
        let source = if stream.is_same_host() { Source::SameHost } else { Source::of(peer.ip()) };
        if let Ok(connection) = Connection::accept(token, stream, peer, &self.context, now) {
            self.connections.insert(token, connection);
            record(Kind::Net, || Event::Accepted { connection: token, peer });
            let closed = self.newcomers.came(token, source);
            self.make_room(closed);
        }
    }

    /// Reads and writes on all connections that are ready.
    pub fn serve_all(&mut self, now: Instant) {
        let mut named = Vec::new();
        let mut kept: usize = self.connections.values().map(Connection::kept).sum();
        let mut first = 0;
        while let Some((&token, connection)) = self.connections.range_mut(first..).next() {
            first = token + 1;
            let (standing, before) = (connection.standing(), connection.kept());
            let turn = connection.turn(&self.context, now);
            kept = kept - before + connection.kept();
            match connection.standing() {
                same if same == standing => {}
                Some(Standing::Proved) => self.newcomers.left(token),
                Some(Standing::Named) => named.push(token),
                Some(Standing::Stranger) | None => {}
            }
            if let Err(cause) = turn {
                kept -= connection.kept();
                self.disconnect(token, &cause, now);
            }
            kept = self.limit_kept(kept, now);
        }
        // Only now, since one that would be closed may have proved itself in this round.
        for token in named {
            let closed = self.newcomers.named(token);
            self.make_room(closed);
        }
    }

    /// Closes a connection whose peer has not proved itself, since there are too many of them.
    fn make_room(&mut self, closed: Option<usize>) {
        if let Some(connection) = closed.and_then(|token| self.connections.remove(&token)) {
            connection.record_end("closed to make room for others");
        }
    }

    /// Ends the connections that keep the most for peers that do not read, while all together keep too much.
    /// Takes and returns what all keep.
    fn limit_kept(&mut self, mut kept: usize, now: Instant) -> usize {
        while kept > KEPT_LIMIT {
            let by_bytes = |(_, one): &(&usize, &mut Connection<L::Stream>)| one.kept();
            let Some((&token, greediest)) = self.connections.iter_mut().max_by_key(by_bytes) else {
                break;
            };
            let before = greediest.kept();
            // Other threads may have added frames since the last round, which had no chance to be written.
            let flushed = greediest.flush(&self.context, now);
            let own = greediest.kept();
            kept = kept - before + own;
            let cause = match flushed {
                Ok(()) if kept <= KEPT_LIMIT => break,
                Ok(()) => {
                    greediest.refuse(does_not_read(own, kept, greediest.peer()), &self.context)
                }
                Err(cause) => cause,
            };
            kept -= own;
            self.disconnect(token, &cause, now);
        }
        kept
    }

    /// Ends handshakes that took too long, and requests whose partition has not appeared in time. Dials again and
    /// calls what is due.
    pub fn expire(&mut self, now: Instant) {
        let expired =
            |c: &Connection<L::Stream>| c.deadline().is_some_and(|deadline| deadline <= now);
        let mut late = Vec::new();
        for (token, connection) in self.connections.iter_mut().filter(|(_, c)| expired(c)) {
            if let Err(cause) = connection.expire(now, &self.context) {
                late.push((*token, cause));
            }
        }
        for (token, cause) in late {
            self.disconnect(token, &cause, now);
        }
        self.redial(now);
        for (_, call) in self.calls.extract_if(.., |(at, _)| *at <= now) {
            call();
        }
    }

    /// Ends a round of heartbeats if it is due: watches the connections that have channels, sends
    /// heartbeats on quiet ones, and drops silent peers. Returns true if a round has ended.
    pub(crate) fn beat(&mut self, now: Instant) -> bool {
        if self.round.is_some_and(|end| now < end) {
            return false;
        }
        // Counted in rounds, so that a process that was stopped itself takes no peer for silent.
        let quiet = self.context.idle_timeout.as_nanos() / 4 / HEARTBEAT_INTERVAL.as_nanos();
        let quiet = u32::try_from(quiet.max(1)).unwrap_or(u32::MAX);
        let ends = self.round.is_some();
        for (token, connection) in &mut self.connections {
            let name = *token as u64;
            match (connection.is_watched(), self.monitor.is_monitored(name)) {
                (true, false) => self.monitor.monitor(name, self.context.idle_timeout),
                (false, true) => self.monitor.unmonitor(name),
                _ => {}
            }
            if ends {
                self.context.waits.network_limited(connection.transport.network_limited());
                if connection.end_round(quiet) {
                    self.monitor.heard(name);
                }
            }
        }
        if ends {
            self.monitor.end_round();
            self.drop_silent(now);
        }
        let next = (!self.connections.is_empty()).then_some(now + HEARTBEAT_INTERVAL);
        self.round = next.filter(|_| !self.monitor.is_idle());
        ends
    }

    fn drop_silent(&mut self, now: Instant) {
        let mut lost = Vec::new();
        for (token, connection) in &mut self.connections {
            if let Some(silence) = self.monitor.silence(*token as u64) {
                lost.push((*token, connection.silent(silence)));
            } else if let Err(cause) = connection.flush(&self.context, now) {
                lost.push((*token, cause));
            }
        }
        for (token, cause) in lost {
            self.disconnect(token, &cause, now);
        }
    }

    fn disconnect(&mut self, token: usize, cause: &ConnectionError, now: Instant) {
        let Some(mut connection) = self.connections.remove(&token) else {
            return;
        };
        self.monitor.unmonitor(token as u64);
        self.newcomers.left(token);
        fail_point!("connection.ended");
        self.close(&mut connection);
        if let Some(redial) = connection.redial(cause, now) {
            let peer = redial.dial.peer;
            let again = || Event::DialedAgain { connection: token, peer, cause: text(cause) };
            record(Kind::Net, again);
            self.redials.insert(token, redial);
            return;
        }
        connection.record_end(cause);
        self.forget(token, connection.peer());
        let outstanding = connection.disconnected(cause);
        self.watch(token, outstanding);
    }

    fn close(&self, connection: &mut Connection<L::Stream>) {
        self.context.waits.network_limited(connection.transport.network_limited());
        L::close(connection.transport.stream_mut());
    }

    /// Keeps lent buffers until their lease ends.
    fn watch(&mut self, token: usize, outstanding: Option<Outstanding>) {
        if let Some(mut outstanding) = outstanding
            // An unwatched loan lasts as long as this environment.
            && self.link.watch(&mut outstanding.lease, token).is_ok()
        {
            self.outstanding.insert(token, outstanding);
        }
    }

    /// Handles an event of a lease whose connection has ended; returns true if the lease has ended too,
    /// which ends its loans.
    pub fn check_lease(&mut self, token: usize) -> bool {
        if let Some(outstanding) = self.outstanding.get_mut(&token)
            && outstanding.lease.has_ended()
            && let Some(outstanding) = self.outstanding.remove(&token)
        {
            outstanding.end();
            return true;
        }
        false
    }

    /// Sends a goodbye on every connection to a producer, and dials no more.
    pub fn say_goodbye(&mut self) {
        fail_point!("connection.goodbye");
        self.redials.clear();
        for connection in self.connections.values_mut() {
            connection.say_goodbye();
        }
    }

    /// Writes the outboxes, and closes the connections that have no channel and nothing to write.
    pub fn end_idle(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for (token, connection) in &mut self.connections {
            let flushed = connection.flush(&self.context, now);
            if flushed.is_err() || connection.is_idle() {
                ended.push(*token);
            }
        }
        for token in ended {
            if let Some(mut connection) = self.connections.remove(&token) {
                record_close(token, connection.peer());
                self.close(&mut connection);
            }
        }
    }

    /// Reads from a connection while the environment ends; drops it once its peer has closed it.
    pub(crate) fn read_last(&mut self, token: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&token)
            && connection.transport.is_readable()
            && connection.read(&self.context, now).is_err()
        {
            record_close(token, connection.peer());
            self.connections.remove(&token);
        }
    }
}

impl Peers<Sockets> {
    /// Accepts a TCP connection; drops it if it cannot be set up.
    pub(crate) fn accept_tcp(&mut self, socket: TcpStream, peer: SocketAddr, now: Instant) {
        if let Ok(stream) = self.link.accepted(socket) {
            self.accept(stream, peer, now);
        }
    }
}
