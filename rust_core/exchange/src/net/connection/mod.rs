//! One connection: handshake, then frames in the direction it was dialed for.

mod incoming;
mod pulse;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headgate_protocol::{
    ChannelId, ClientHandshake, Frame, FrameDecoder, PartitionRequest, ServerHandshake,
};

use crate::error::{ExchangeError, Result};
use crate::gate::{RemoteChannel, UpstreamMessage};
use crate::net::Context;
use crate::net::fetch::Fetch;
use crate::net::flood::FloodGuard;
use crate::net::link::Stream;
use crate::net::loans::Outstanding;
use crate::net::outbox::{Message, Outbox};
use crate::net::peer_error::{self, Role};
use crate::net::serve::Serve;
use crate::net::traffic::Counted;
use crate::random::random;

use pulse::Pulse;

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
        waiting: Vec<Message>,
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
    /// The socket may have bytes; edge-triggered too, so remembered until a read leaves none.
    readable: bool,
    /// The peer sends nothing more, or the connection broke: only a read that gets nothing says so.
    ended: bool,
    opened: Instant,
    /// When bytes came last.
    heard: Instant,
    pulse: Pulse,
    floods: FloodGuard,
    /// Once it is proved.
    counted: Option<Counted>,
}

impl<S: Stream> Connection<S> {
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
            ended: false,
            opened: now,
            heard: now,
            pulse: Pulse::default(),
            floods: FloodGuard::new(now),
            counted: None,
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When [`expire`](Self::expire) has something to do: an unproved peer is dropped, or a request
    /// has waited long enough for its partition.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Dialing { .. } | Phase::Answering(_) => Some(self.opened + HANDSHAKE_DEADLINE),
            Phase::Fetching(..) => None,
            Phase::Serving(serve, _) => serve.deadline(),
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

    /// Whether the peer must give signs of life: there are channels between us.
    pub(crate) fn is_watched(&self) -> bool {
        match &self.phase {
            Phase::Fetching(fetch, _) => !fetch.is_idle(),
            Phase::Serving(serve, _) => !serve.is_idle() || serve.has_waiting(),
            Phase::Dialing { .. } | Phase::Answering(_) => false,
        }
    }

    /// Ends a round of heartbeats; says whether the peer was heard in it. We beat when we have said
    /// nothing for so many rounds.
    pub(crate) fn end_round(&mut self, quiet_rounds: u32) -> bool {
        let heard = self.pulse.end_round();
        let proved = matches!(self.phase, Phase::Fetching(..) | Phase::Serving(..));
        // What waits already says as much, once the peer reads it.
        if proved && self.pulse.is_due(self.is_watched(), quiet_rounds) && self.outbox.is_empty() {
            self.outbox.push_frame(&Frame::Heartbeat);
        }
        heard
    }

    /// What is said of a peer that gave no sign of life for so long.
    pub(crate) fn silent(&self, silence: Duration) -> ExchangeError {
        peer_error::silent(self.role(), self.peer, silence)
    }

    /// There may be bytes to read; behind them the end, if the peer sends nothing more.
    pub(crate) fn can_read(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
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
                waiting.push(Message::Frame(frame));
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
            let frame = Frame::AddCredit { credit, channel: channel.id() };
            self.send_or_queue(Message::Frame(frame));
        }
    }

    pub(crate) fn cancel(&mut self, channel: &RemoteChannel) {
        let id = channel.id();
        let known = match &mut self.phase {
            Phase::Dialing { fetch, .. } | Phase::Fetching(fetch, _) => fetch.close(id),
            Phase::Answering(_) | Phase::Serving(..) => false,
        };
        if known {
            self.send_or_queue(Message::Frame(Frame::CancelPartitionRequest { channel: id }));
        }
    }

    /// Lets the producer go on behind a barrier.
    pub(crate) fn resume(&mut self, channel: &RemoteChannel) {
        if self.fetches(channel) {
            let frame = Frame::ResumeConsumption { channel: channel.id() };
            self.send_or_queue(Message::Frame(frame));
            channel.resumed();
            self.announce(channel);
        }
    }

    /// Tells the producer of a channel something, unless the channel is over.
    pub(crate) fn tell(&mut self, channel: &RemoteChannel, message: UpstreamMessage) {
        if !self.fetches(channel) {
            return;
        }
        let id = channel.id();
        match message {
            UpstreamMessage::TaskEvent(_) if self.outbox.is_congested() => {
                let detail = format!("{} does not read: no task event can be sent", self.peer);
                channel.fail(ExchangeError::TaskEvent(detail));
            }
            UpstreamMessage::TaskEvent(payload) => {
                self.send_or_queue(Message::TaskEvent { channel: id, payload });
            }
            UpstreamMessage::BufferSize(size) => {
                let frame = Frame::NewBufferSize { size, channel: id };
                self.send_or_queue(Message::Frame(frame));
            }
            UpstreamMessage::Acknowledge => {
                let frame = Frame::AckAllUserRecordsProcessed { channel: id };
                self.send_or_queue(Message::Frame(frame));
            }
        }
    }

    /// Tells the producer that a lent buffer is read no more.
    pub(crate) fn give_back(&mut self, loan: u64) {
        self.outbox.push_frame(&Frame::Return { loan });
    }

    /// What the peer may still read of what it was lent, once the connection is gone.
    pub(crate) fn outstanding(&mut self) -> Option<Outstanding> {
        match &mut self.phase {
            Phase::Serving(serve, _) => serve.outstanding(),
            _ => None,
        }
    }

    fn fetches(&self, channel: &RemoteChannel) -> bool {
        match &self.phase {
            Phase::Dialing { fetch, .. } | Phase::Fetching(fetch, _) => {
                fetch.contains(channel.id())
            }
            Phase::Answering(_) | Phase::Serving(..) => false,
        }
    }

    fn send_or_queue(&mut self, message: Message) {
        match &mut self.phase {
            Phase::Dialing { waiting, .. } => waiting.push(message),
            _ => self.outbox.push_message(&message),
        }
    }

    /// The partition that a channel served here waits for appeared.
    pub(crate) fn on_created(&mut self, channel: ChannelId, context: &Context, now: Instant) {
        if let Phase::Serving(serve, _) = &mut self.phase {
            serve.on_created(channel, context, now, &mut self.outbox);
        }
    }

    /// A subpartition served here has something, or failed.
    pub(crate) fn on_data(&mut self, channel: ChannelId) {
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
            if written > 0 {
                self.pulse.sent();
            }
            if !self.outbox.is_empty() {
                self.writable = false;
                return Ok(());
            }
        }
    }

    /// The deadline passed: refuses requests that waited too long, or ends an unproved connection.
    pub(crate) fn expire(&mut self, now: Instant, context: &Context) -> Result<()> {
        if let Phase::Serving(serve, _) = &mut self.phase {
            serve.expire(now, &mut self.outbox);
            return self.flush(context);
        }
        let seconds = HANDSHAKE_DEADLINE.as_secs();
        let detail = format!("no proof within {seconds} s");
        Err(ExchangeError::Handshake { peer: self.peer, detail })
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
