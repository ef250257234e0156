//! One connection: handshake, then frames in the direction it was dialed for.

mod incoming;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headgate_protocol::{ClientHandshake, Frame, FrameDecoder, PartitionRequest, ServerHandshake};

use crate::error::{ExchangeError, Result};
use crate::gate::RemoteChannel;
use crate::net::Context;
use crate::net::fetch::Fetch;
use crate::net::flood::FloodGuard;
use crate::net::outbox::Outbox;
use crate::net::peer_error::{self, Role};
use crate::net::serve::Serve;
use crate::random::random;

/// A peer that has not proved itself by then is dropped. Longer than a process may be stopped without
/// being taken for lost: either end may be in the middle of it.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(12);
/// Read ahead for headers; payloads beyond it go straight into their segments.
const STAGING: usize = 4096;

enum Phase {
    /// We dialed; requests wait until the peer has proved itself.
    Dialing {
        handshake: ClientHandshake,
        /// Who should answer: another process may have the port by now.
        process: [u8; 16],
        fetch: Fetch,
        waiting: Vec<Frame>,
    },
    /// We accepted.
    Answering(ServerHandshake),
    /// We read what the peer produces.
    Fetching(Fetch, FrameDecoder),
    /// The peer reads what we produce.
    Serving(Serve, FrameDecoder),
}

pub(crate) struct Connection<S> {
    token: usize,
    stream: S,
    peer: SocketAddr,
    phase: Phase,
    outbox: Outbox,
    staging: Box<[u8]>,
    /// The socket may take bytes; edge-triggered, so remembered until a write would block.
    writable: bool,
    /// The socket may have bytes.
    pub(crate) readable: bool,
    opened: Instant,
    floods: FloodGuard,
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn dial(
        token: usize,
        stream: S,
        peer: SocketAddr,
        process: [u8; 16],
        context: &Context,
        now: Instant,
    ) -> Result<Self> {
        fail_point!("handshake.dialed", error => return Err(error));
        let nonce = random()?;
        let (handshake, hello) =
            ClientHandshake::start(context.key.clone(), context.handshake, nonce);
        let phase =
            Phase::Dialing { handshake, process, fetch: Fetch::default(), waiting: Vec::new() };
        let mut connection = Self::new(token, stream, peer, phase, now);
        connection.outbox.push(hello);
        Ok(connection)
    }

    pub(crate) fn accept(
        token: usize,
        stream: S,
        peer: SocketAddr,
        context: &Context,
        now: Instant,
    ) -> Result<Self> {
        fail_point!("handshake.accepted", error => return Err(error));
        let handshake = ServerHandshake::new(context.key.clone(), context.handshake, random()?);
        Ok(Self::new(token, stream, peer, Phase::Answering(handshake), now))
    }

    fn new(token: usize, stream: S, peer: SocketAddr, phase: Phase, now: Instant) -> Self {
        Self {
            token,
            stream,
            peer,
            phase,
            outbox: Outbox::default(),
            staging: vec![0; STAGING].into_boxed_slice(),
            writable: false,
            readable: false,
            opened: now,
            floods: FloodGuard::new(now),
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When an unproved peer is dropped; `None` once it has proved itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Dialing { .. } | Phase::Answering(_) => Some(self.opened + HANDSHAKE_DEADLINE),
            Phase::Fetching(..) | Phase::Serving(..) => None,
        }
    }

    pub(crate) fn is_pending_server(&self) -> bool {
        matches!(self.phase, Phase::Answering(_))
    }

    /// Whether no channel would miss this connection.
    pub(crate) fn is_idle(&self) -> bool {
        let unused = match &self.phase {
            Phase::Dialing { fetch, .. } | Phase::Fetching(fetch, _) => fetch.is_idle(),
            Phase::Answering(_) => true,
            Phase::Serving(serve, _) => serve.is_idle(),
        };
        unused && self.outbox.is_empty()
    }

    pub(crate) fn can_write(&mut self) {
        self.writable = true;
    }

    /// Opens a channel, at once or after the handshake.
    pub(crate) fn open(&mut self, channel: Arc<RemoteChannel>, request: PartitionRequest) {
        let frame = Frame::PartitionRequest(request);
        match &mut self.phase {
            Phase::Dialing { fetch, waiting, .. } => {
                fetch.open(channel);
                waiting.push(frame);
            }
            Phase::Fetching(fetch, _) => {
                fetch.open(channel);
                self.outbox.push_frame(&frame);
            }
            Phase::Answering(_) | Phase::Serving(..) => {
                unreachable!("channels are opened on dialed connections")
            }
        }
    }

    /// Announces all credit the channel has gathered.
    pub(crate) fn announce(&mut self, channel: &RemoteChannel) {
        if let Some(credit) = channel.take_credit() {
            self.send_or_queue(Frame::AddCredit { credit, channel: channel.id() });
        }
    }

    pub(crate) fn cancel(&mut self, channel: &RemoteChannel) {
        let id = channel.id();
        let known = match &mut self.phase {
            Phase::Dialing { fetch, .. } | Phase::Fetching(fetch, _) => fetch.close(id),
            Phase::Answering(_) | Phase::Serving(..) => false,
        };
        if known {
            self.send_or_queue(Frame::CancelPartitionRequest { channel: id });
        }
    }

    fn send_or_queue(&mut self, frame: Frame) {
        match &mut self.phase {
            Phase::Dialing { waiting, .. } => waiting.push(frame),
            _ => self.outbox.push_frame(&frame),
        }
    }

    /// A subpartition served here has something, or failed.
    pub(crate) fn on_data(&mut self, channel: headgate_protocol::ChannelId) {
        if let Phase::Serving(serve, _) = &mut self.phase {
            serve.on_data(channel, &mut self.outbox);
        }
    }

    /// Says that nothing more is wanted.
    pub(crate) fn say_goodbye(&mut self) {
        if let Phase::Fetching(..) = self.phase {
            self.outbox.push_frame(&Frame::CloseRequest);
        }
    }

    /// Writes what there is, as far as the socket takes it.
    pub(crate) fn flush(&mut self, context: &Context) -> Result<()> {
        loop {
            if let Phase::Serving(serve, _) = &mut self.phase {
                serve.pump(&mut self.outbox);
            }
            if !self.writable || self.outbox.is_empty() {
                return Ok(());
            }
            fail_point!("connection.writes", error => return Err(error));
            let written = self.outbox.write_to(&mut self.stream).map_err(|e| self.lost(&e))?;
            context.traffic.add_sent(written);
            if !self.outbox.is_empty() {
                self.writable = false;
                return Ok(());
            }
        }
    }

    /// The deadline passed.
    pub(crate) fn expired(&self) -> ExchangeError {
        let seconds = HANDSHAKE_DEADLINE.as_secs();
        let detail = format!("no proof within {seconds} s");
        ExchangeError::Handshake { peer: self.peer, detail }
    }

    fn lost(&self, error: &io::Error) -> ExchangeError {
        peer_error::broken(self.role(), self.peer, error)
    }

    fn role(&self) -> Role {
        match self.phase {
            Phase::Dialing { .. } => Role::Dialed,
            Phase::Answering(_) => Role::Unproved,
            Phase::Fetching(..) => Role::Producer,
            Phase::Serving(..) => Role::Consumer,
        }
    }

    /// Passes the end of the connection on to everything that used it.
    pub(crate) fn disconnected(&mut self, cause: &ExchangeError) {
        match &mut self.phase {
            Phase::Dialing { fetch, .. } | Phase::Fetching(fetch, _) => fetch.disconnected(cause),
            Phase::Answering(_) => {}
            Phase::Serving(serve, _) => serve.disconnected(cause),
        }
    }
}
