//! One connection: a handshake, then frames in the direction it was dialed for.
//!
//! A connection moves bytes between its [`Transport`] and the part that its [`Phase`] owns: a
//! handshake, the consumer's [`PartitionRequestClient`] or the producer's [`Serve`].

mod frames;
mod handshake;
mod phase;
mod pulse;
mod transport;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headgate_protocol::{Frame, FrameDecoder, Limits, MAX_HANDSHAKE_LEN, Peer, Side};
use headgate_trace::{Event, Kind, record, text};

use crate::borrowing::Borrowing;
use crate::client::PartitionRequestClient;
use crate::context::Context;
use crate::error::{ConnectionError, Result};
use crate::link::Stream;
use crate::loans::Outstanding;
use crate::newcomers::Standing;
use crate::outbox::Outbox;
use crate::peer_error;
use crate::redial::{Dial, HANDSHAKE_TIMEOUT, Redial};
use crate::serve::Serve;
use crate::traffic::Counted;
use crate::waits::HoldUp;
use crate::wire_error;

use frames::FrameReader;
use handshake::{Answering, Dialing};
use phase::Phase;
use pulse::Pulse;
use transport::Transport;

/// Bytes read ahead for headers; payloads beyond it go straight into their segments.
const STAGING: usize = 4096;
/// Bytes read from one connection before the others get their turn.
const READ_QUOTA: usize = 4 << 20;
/// Quotas read from a connection that cannot be written to: more than a socket holds.
const LAST_READS: usize = 8;

pub(crate) struct Connection<S> {
    token: usize,
    peer: SocketAddr,
    pub(crate) transport: Transport<S>,
    phase: Phase,
    outbox: Outbox,
    staging: Box<[u8]>,
    /// Bytes that may still be read before the peer has proved itself.
    unproved: usize,
    handshake_deadline: Instant,
    pulse: Pulse,
    /// Counts the connection in the traffic from the end of the handshake on.
    counted: Option<Counted>,
    /// Present while this end has pages that it cannot send.
    held_up: Option<HoldUp>,
}

impl<S: Stream> Connection<S> {
    /// Begins the handshake over a stream that was dialed. Takes the client unless that fails.
    pub(crate) fn dial(
        token: usize,
        stream: S,
        dial: Dial,
        client: &mut PartitionRequestClient,
        context: &Context,
    ) -> Result<Self> {
        let mut outbox = Outbox::default();
        let (peer, deadline) = (dial.peer, dial.deadline);
        let dialing = Dialing::start(dial, context, &mut outbox)?;
        let phase = Phase::Dialing(Box::new(dialing), std::mem::take(client));
        Ok(Self::new(token, stream, peer, phase, outbox, deadline))
    }

    pub(crate) fn accept(
        token: usize,
        stream: S,
        peer: SocketAddr,
        context: &Context,
        now: Instant,
    ) -> Result<Self> {
        let phase = Phase::Answering(Answering::new(context)?);
        let deadline = now + HANDSHAKE_TIMEOUT;
        Ok(Self::new(token, stream, peer, phase, Outbox::default(), deadline))
    }

    fn new(
        token: usize,
        stream: S,
        peer: SocketAddr,
        phase: Phase,
        outbox: Outbox,
        handshake_deadline: Instant,
    ) -> Self {
        Self {
            token,
            peer,
            transport: Transport::new(stream),
            phase,
            outbox,
            staging: vec![0; STAGING].into_boxed_slice(),
            unproved: MAX_HANDSHAKE_LEN,
            handshake_deadline,
            pulse: Pulse::default(),
            counted: None,
            held_up: None,
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the consumer's end and the outbox for its messages, if this process dialed.
    pub(crate) fn client(&mut self) -> Option<(&mut PartitionRequestClient, &mut Outbox)> {
        self.phase.client_mut().map(|client| (client, &mut self.outbox))
    }

    /// Returns the producer's end and the outbox for its buffers, once the peer has proved itself.
    pub(crate) fn serve(&mut self) -> Option<(&mut Serve, &mut Outbox)> {
        self.phase.serve_mut().map(|serve| (serve, &mut self.outbox))
    }

    /// Returns the standing of a peer that dialed; `None` if this process did.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.phase.standing()
    }

    /// Returns the bytes of frames without payload that wait for the peer, and of task events that wait for a partition.
    pub(crate) fn kept(&self) -> usize {
        self.outbox.unread() + self.phase.event_bytes()
    }

    /// Returns true if no channel is open and nothing waits to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase.is_idle() && self.outbox.is_empty() && !self.transport.has_unsent()
    }

    /// Returns true if the peer must give signs of life.
    pub(crate) fn is_watched(&self) -> bool {
        self.phase.is_watched()
    }

    /// Ends a round of heartbeats; returns true if the peer was heard in it. Sends a heartbeat after
    /// `quiet_rounds` rounds without anything sent.
    pub(crate) fn end_round(&mut self, quiet_rounds: u32) -> bool {
        let heard = self.pulse.end_round();
        // Bytes in the outbox are a sign of life themselves, once the peer reads them.
        if self.phase.is_proved()
            && self.pulse.is_due(self.is_watched(), quiet_rounds)
            && self.outbox.is_empty()
        {
            self.outbox.push_frame(&Frame::Heartbeat);
        }
        heard
    }

    /// Returns the error for a peer that gave no sign of life for this long.
    pub(crate) fn silent(&self, silence: Duration) -> ConnectionError {
        peer_error::silent(self.phase.role(), self.peer, silence)
    }

    /// Tells the producer that no channel will be opened any more.
    pub(crate) fn say_goodbye(&mut self) {
        if let Phase::Fetching(..) = self.phase {
            self.outbox.push_frame(&Frame::CloseRequest);
        }
    }

    /// Reads what is reported, and writes as far as the stream takes it.
    pub(crate) fn turn(&mut self, context: &Context, now: Instant) -> Result<()> {
        if self.transport.is_readable() {
            self.read(context, now)?;
        }
        self.flush(context, now)
    }

    /// Reads until nothing is left or the quota is used up; the end of the stream is an error.
    pub(crate) fn read(&mut self, context: &Context, now: Instant) -> Result<()> {
        fail_point!("connection.reads", text => return Err(ConnectionError::Aborted(text)));
        if let Some(frames) = self.phase.frames_mut() {
            frames.tick(now);
        }
        let mut quota = READ_QUOTA;
        while self.transport.is_readable() && quota > 0 {
            let count = self.read_once(context, now)?;
            quota = quota.saturating_sub(count);
        }
        Ok(())
    }

    /// Makes one system call: payload goes to its segment, all else to the staging buffer.
    fn read_once(&mut self, context: &Context, now: Instant) -> Result<usize> {
        let is_proved = self.phase.is_proved();
        let space = match &mut self.phase {
            Phase::Fetching(client, _) => client.fetch.space(),
            _ => None,
        };
        let direct = space.as_ref().map_or(0, |space| space.len());
        let most = if is_proved { STAGING } else { self.unproved };
        let count = match self.transport.read(space, &mut self.staging[..most]) {
            Ok(0) => return Err(peer_error::ended(self.phase.role(), self.peer)),
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(0);
            }
            Err(error) => return Err(self.broken(error)),
        };
        context.traffic.add_received(count);
        self.pulse.heard();
        if !is_proved {
            self.unproved -= count;
        }
        if let Phase::Fetching(client, _) = &mut self.phase
            && direct > 0
        {
            client.fetch.filled(count.min(direct));
            client.fetch.complete(&mut self.outbox)?;
        }
        if count > direct {
            let staging = std::mem::take(&mut self.staging);
            let received = self.receive(&staging[..count - direct], context, now);
            self.staging = staging;
            received?;
        }
        Ok(count)
    }

    fn receive(&mut self, mut input: &[u8], context: &Context, now: Instant) -> Result<()> {
        while !input.is_empty() {
            self.receive_next(&mut input, context, now)?;
        }
        Ok(())
    }

    /// Takes one message, frame or piece of payload off the input.
    fn receive_next(&mut self, input: &mut &[u8], context: &Context, now: Instant) -> Result<()> {
        match &mut self.phase {
            Phase::Dialing(dialing, _) => {
                dialing.bind(self.transport.stream_mut().binding());
                if let Some(proved) = dialing.receive(input, self.peer, &mut self.outbox)? {
                    self.proved(&proved, context, now)?;
                }
            }
            Phase::Answering(answering) => {
                answering.bind(self.transport.stream_mut().binding());
                match answering.receive(input, self.peer, &mut self.outbox) {
                    Ok(Some(proved)) => self.proved(&proved, context, now)?,
                    Ok(None) => {}
                    Err(refusal) => return Err(self.told(refusal, context)),
                }
            }
            Phase::Fetching(client, frames) => {
                let fetch = &mut client.fetch;
                let read = self.outbox.check_read();
                read.map_err(|detail| peer_error::protocol(&detail, self.peer))?;
                if fetch.is_mid_payload() {
                    fetch.take_payload(input);
                } else {
                    let frame = frames.decode(input, self.peer, &mut self.pulse)?;
                    let Some(frame) = frame else { return Ok(()) };
                    let descriptor = match frame {
                        Frame::Lease | Frame::Region { .. } => {
                            self.transport.stream_mut().take_descriptor()
                        }
                        _ => None,
                    };
                    fetch.handle(frame, descriptor, self.peer, &mut self.outbox)?;
                }
                fetch.complete(&mut self.outbox)?;
            }
            Phase::Serving(serve, frames) => {
                let outbox = &mut self.outbox;
                let mut serve_next = || {
                    let read = outbox.check_read();
                    read.map_err(|detail| peer_error::protocol(&detail, self.peer))?;
                    if serve.take_payload(input, outbox)? {
                        return Ok(());
                    }
                    let frame = frames.decode(input, self.peer, &mut self.pulse)?;
                    let Some(frame) = frame else { return Ok(()) };
                    let handled = serve.handle(frame, context, now, outbox);
                    handled.map_err(|error| peer_error::protocol(&error, self.peer))
                };
                if let Err(error) = serve_next() {
                    return Err(self.refuse(error, context));
                }
            }
        }
        Ok(())
    }

    /// The peer has proved itself: frames follow, in the direction the connection was dialed for.
    fn proved(&mut self, peer: &Peer, context: &Context, now: Instant) -> Result<()> {
        fail_point!("handshake.proved", text => return Err(ConnectionError::Aborted(text)));
        let is_same_host = self.transport.stream_mut().is_same_host();
        self.outbox.mask = peer.mask;
        self.counted = Some(Counted::new(&context.traffic, is_same_host));
        let (connection, address) = (self.token, self.peer);
        record(Kind::Net, || Event::Opened { connection, peer: address, same_host: is_same_host });
        let limits = Limits::for_segment(context.handshake.max_segment);
        let frames = |side| FrameReader::new(FrameDecoder::new(limits, side, peer.mask), now);
        self.phase = match &mut self.phase {
            Phase::Dialing(_, client) => {
                let mut client = std::mem::take(client);
                let borrowing = is_same_host.then(|| Borrowing::new(self.token, context));
                client.proved(borrowing, &mut self.outbox);
                Phase::Fetching(client, frames(Side::Consumer))
            }
            _ => {
                let serve = Serve::new(self.token, peer.max_segment, is_same_host, context);
                Phase::Serving(serve, frames(Side::Producer))
            }
        };
        Ok(())
    }

    /// Fills the outbox and writes it, as far as the stream takes it.
    ///
    /// # Errors
    /// What the peer said before it closed the connection, rather than that it cannot be written to.
    pub(crate) fn flush(&mut self, context: &Context, now: Instant) -> Result<()> {
        let written = self.write(context);
        self.note_hold_up(context);
        written.map_err(|error| self.last_word(context, now).unwrap_or(error))
    }

    /// Tells writers whether this end has pages that it cannot send.
    fn note_hold_up(&mut self, context: &Context) {
        let is_full = !self.outbox.is_empty() || self.transport.has_unsent();
        let is_held_up =
            self.phase.serve_mut().is_some_and(|serve| is_full || serve.lacks_credit());
        if is_held_up != self.held_up.is_some() {
            self.held_up = is_held_up.then(|| HoldUp::begin(&context.waits));
        }
    }

    /// Reads what has arrived on a connection that cannot be written to any more. Returns the error that it
    /// ends with, unless that is only the end of the connection.
    fn last_word(&mut self, context: &Context, now: Instant) -> Option<ConnectionError> {
        self.transport.can_read(false);
        for _ in 0..LAST_READS {
            match self.read(context, now) {
                Ok(()) if self.transport.is_readable() => {}
                Ok(()) => break,
                Err(error) => return Some(error).filter(|error| !peer_error::is_end(error)),
            }
        }
        None
    }

    fn write(&mut self, context: &Context) -> Result<()> {
        loop {
            if let Some(serve) = self.phase.serve_mut() {
                serve.pump(&mut self.outbox);
            }
            let is_done = self.outbox.is_empty() && !self.transport.has_unsent();
            if is_done || !self.transport.is_writable() {
                return Ok(());
            }
            fail_point!("connection.writes", text => return Err(ConnectionError::Aborted(text)));
            let written = self.transport.write(&mut self.outbox).map_err(|e| self.broken(e))?;
            context.traffic.add_sent(written);
            if written > 0 {
                self.pulse.sent();
            }
            if !self.outbox.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the error; a consumer is told of it.
    pub(crate) fn refuse(&mut self, error: ConnectionError, context: &Context) -> ConnectionError {
        if let Phase::Serving(..) = self.phase {
            self.outbox.push_frame(&wire_error::farewell(&error));
        }
        self.told(error, context)
    }

    /// Returns the error once the peer was told of it by what is in the outbox.
    fn told(&mut self, error: ConnectionError, context: &Context) -> ConnectionError {
        // A peer that cannot be told any more is not what went wrong.
        let _ = self.write(context);
        error
    }

    /// Returns the time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.phase.deadline(self.handshake_deadline)
    }

    /// The deadline passed: refuses requests that waited too long, or fails the handshake.
    pub(crate) fn expire(&mut self, now: Instant, context: &Context) -> Result<()> {
        if let Some((serve, outbox)) = self.serve() {
            serve.expire(now, outbox);
            return self.flush(context, now);
        }
        let earlier = match &mut self.phase {
            Phase::Dialing(dialing, _) => dialing.dial.failure.take(),
            _ => None,
        };
        let seconds = HANDSHAKE_TIMEOUT.as_secs();
        let detail = format!("no proof within {seconds} s");
        Err(earlier.unwrap_or(ConnectionError::Handshake { peer: self.peer, detail }))
    }

    /// Returns the dial that takes the place of this connection, which has ended for this cause before
    /// its peer proved itself; `None` if the cause is final.
    pub(crate) fn redial(&mut self, cause: &ConnectionError, now: Instant) -> Option<Redial> {
        let Phase::Dialing(dialing, client) = &mut self.phase else { return None };
        let was_same_host = self.transport.stream_mut().is_same_host();
        let (dial, at) = dialing.again(cause, was_same_host, now)?;
        Some(Redial { dial, at, client: std::mem::take(client), outbox: Outbox::default() })
    }

    /// Records the end of the connection in the trace. It is no loss if the consumer has said goodbye.
    pub(crate) fn record_end(&self, cause: impl fmt::Display) {
        let (connection, peer) = (self.token, self.peer);
        record(Kind::Net, || match &self.phase {
            Phase::Serving(serve, _) if serve.has_goodbye() => Event::Closed { connection, peer },
            _ => Event::Lost { connection, peer, cause: text(cause) },
        });
    }

    /// Ends all channels with this cause; returns the buffers that the peer may still read.
    pub(crate) fn disconnected(&mut self, cause: &ConnectionError) -> Option<Outstanding> {
        self.phase.disconnected(cause)
    }

    fn broken(&self, error: io::Error) -> ConnectionError {
        peer_error::broken(self.phase.role(), self.peer, error)
    }
}

#[cfg(test)]
mod tests;
