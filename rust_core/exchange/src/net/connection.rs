//! One TCP connection: handshake, then frames in the direction it was dialed for.

use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headgate_protocol::{
    ClientHandshake, Frame, FrameDecoder, Limits, PartitionRequest, Peer, ServerHandshake, Side,
    Step,
};
use mio::net::TcpStream;

use crate::error::{ExchangeError, Result};
use crate::gate::RemoteChannel;
use crate::net::Context;
use crate::net::fetch::Fetch;
use crate::net::flood::FloodGuard;
use crate::net::outbox::Outbox;
use crate::net::peer_error::{self, Role};
use crate::net::serve::Serve;
use crate::net::wire_error;
use crate::random::random;

/// A peer that has not proved itself by then is dropped. Longer than a process may be stopped without
/// being taken for lost: either end may be in the middle of it.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(12);
/// Read ahead for headers; payloads beyond it go straight into their segments.
const STAGING: usize = 4096;
/// Bytes read from one connection before others get their turn.
const READ_QUOTA: usize = 4 << 20;

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

pub(crate) struct Connection {
    token: usize,
    socket: TcpStream,
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

impl Connection {
    pub(crate) fn dial(
        token: usize,
        socket: TcpStream,
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
        let mut connection = Self::new(token, socket, peer, phase, now);
        connection.outbox.push(hello);
        Ok(connection)
    }

    pub(crate) fn accept(
        token: usize,
        socket: TcpStream,
        peer: SocketAddr,
        context: &Context,
        now: Instant,
    ) -> Result<Self> {
        fail_point!("handshake.accepted", error => return Err(error));
        let handshake = ServerHandshake::new(context.key.clone(), context.handshake, random()?);
        Ok(Self::new(token, socket, peer, Phase::Answering(handshake), now))
    }

    fn new(token: usize, socket: TcpStream, peer: SocketAddr, phase: Phase, now: Instant) -> Self {
        Self {
            token,
            socket,
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

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
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
            let written = self.outbox.write_to(&mut self.socket).map_err(|e| self.lost(&e))?;
            context.traffic.add_sent(written);
            if !self.outbox.is_empty() {
                self.writable = false;
                return Ok(());
            }
        }
    }

    /// Reads until nothing is left or others should have a turn; an end of stream is an error.
    pub(crate) fn read(&mut self, context: &Context, now: Instant) -> Result<()> {
        fail_point!("connection.reads", error => return Err(error));
        self.floods.tick(now);
        let mut quota = READ_QUOTA;
        while quota > 0 {
            match self.read_once(context) {
                Ok(0) => return Err(peer_error::ended(self.role(), self.peer)),
                Ok(count) => {
                    context.traffic.add_received(count);
                    quota = quota.saturating_sub(count);
                }
                Err(Trouble::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(());
                }
                Err(Trouble::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(Trouble::Io(error)) => return Err(self.lost(&error)),
                Err(Trouble::Exchange(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// One system call; payload goes to its segment, what follows it to the staging buffer.
    fn read_once(&mut self, context: &Context) -> std::result::Result<usize, Trouble> {
        let mut staging = std::mem::take(&mut self.staging);
        let mut direct = 0;
        let read = match &mut self.phase {
            Phase::Fetching(fetch, _) => match fetch.space() {
                Some(space) => {
                    direct = space.len();
                    let mut slices = [IoSliceMut::new(space), IoSliceMut::new(&mut staging)];
                    self.socket.read_vectored(&mut slices)
                }
                None => self.socket.read(&mut staging),
            },
            _ => self.socket.read(&mut staging),
        };
        let outcome = read.map_err(Trouble::Io).and_then(|count| {
            if let Phase::Fetching(fetch, _) = &mut self.phase
                && direct > 0
                && count > 0
            {
                fetch.filled(count.min(direct));
                fetch.complete(&mut self.outbox).map_err(Trouble::Exchange)?;
            }
            let staged = count.saturating_sub(direct);
            self.feed(&staging[..staged], context).map_err(Trouble::Exchange)?;
            Ok(count)
        });
        self.staging = staging;
        outcome
    }

    fn feed(&mut self, mut input: &[u8], context: &Context) -> Result<()> {
        while !input.is_empty() {
            match &mut self.phase {
                Phase::Dialing { handshake, .. } => {
                    let step = handshake
                        .handle(&mut input)
                        .map_err(|e| peer_error::refused(&e, self.peer))?;
                    self.shook(step, context)?;
                }
                Phase::Answering(handshake) => match handshake.handle(&mut input) {
                    Ok(step) => self.shook(step, context)?,
                    Err(error) => {
                        if let Some(rejection) = error.rejection() {
                            self.outbox.push(rejection);
                            self.flush(context)?;
                        }
                        return Err(peer_error::refused(&error, self.peer));
                    }
                },
                Phase::Fetching(fetch, decoder) => {
                    if fetch.is_mid_payload() {
                        fetch.take_payload(&mut input);
                    } else {
                        let frame = decoder.decode(&mut input);
                        let frame = frame.map_err(|error| peer_error::frame(&error, self.peer))?;
                        let Some(frame) = frame else { continue };
                        self.floods.charge(&frame, self.peer)?;
                        fetch.handle(frame, self.peer)?;
                    }
                    fetch.complete(&mut self.outbox)?;
                }
                Phase::Serving(..) => {
                    if let Err(error) = self.serve(&mut input, context) {
                        self.outbox.push_frame(&wire_error::farewell(&error));
                        self.flush(context)?;
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, input: &mut &[u8], context: &Context) -> Result<()> {
        let Phase::Serving(serve, decoder) = &mut self.phase else { return Ok(()) };
        let frame = decoder.decode(input).map_err(|e| peer_error::frame(&e, self.peer))?;
        let Some(frame) = frame else { return Ok(()) };
        self.floods.charge(&frame, self.peer)?;
        serve
            .handle(frame, context, &mut self.outbox)
            .map_err(|e| peer_error::protocol(&e, self.peer))
    }

    fn shook(&mut self, step: Step, context: &Context) -> Result<()> {
        match step {
            Step::NeedMore => {}
            Step::Send(bytes) => self.outbox.push(bytes),
            Step::Done { peer, send } => {
                self.outbox.push(send);
                self.proved(&peer, context)?;
            }
        }
        Ok(())
    }

    fn proved(&mut self, peer: &Peer, context: &Context) -> Result<()> {
        fail_point!("handshake.proved", error => return Err(error));
        let ours = Limits::for_segment(context.handshake.max_segment);
        let decoder = |side| FrameDecoder::new(ours, side, peer.mask);
        self.outbox.mask = peer.mask;
        let next = match &mut self.phase {
            Phase::Dialing { process, .. } if *process != peer.process => {
                let detail = "another process answers at this address".to_owned();
                return Err(ExchangeError::Handshake { peer: self.peer, detail });
            }
            Phase::Dialing { fetch, waiting, .. } => {
                for frame in waiting.drain(..) {
                    self.outbox.push_frame(&frame);
                }
                Phase::Fetching(std::mem::take(fetch), decoder(Side::Consumer))
            }
            _ => {
                let serve = Serve::new(self.token, peer.max_segment);
                Phase::Serving(serve, decoder(Side::Producer))
            }
        };
        self.phase = next;
        Ok(())
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

enum Trouble {
    Io(io::Error),
    Exchange(ExchangeError),
}
