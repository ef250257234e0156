//! What arrives on a connection: bytes to handshake steps, frames and payloads.

use std::io::{self, ErrorKind, IoSliceMut};
use std::time::Instant;

use headgate_protocol::{Frame, FrameDecoder, Limits, Peer, Side, Step};

use crate::error::{ExchangeError, Result};
use crate::net::Context;
use crate::net::borrowing::Borrowing;
use crate::net::connection::{Connection, Phase};
use crate::net::link::Stream;
use crate::net::peer_error;
use crate::net::serve::Serve;
use crate::net::traffic::Counted;
use crate::net::wire_error;

/// Bytes read from one connection before others get their turn.
const READ_QUOTA: usize = 4 << 20;

impl<S: Stream> Connection<S> {
    /// Reads until nothing is left or others should have a turn; an end of stream is an error.
    pub(crate) fn read(&mut self, context: &Context, now: Instant) -> Result<()> {
        fail_point!("connection.reads", error => return Err(error));
        self.floods.tick(now);
        self.heard = now;
        let mut quota = READ_QUOTA;
        while self.readable && quota > 0 {
            match self.read_once(context) {
                Ok(0) => return Err(peer_error::ended(self.role(), self.peer)),
                Ok(count) => {
                    context.traffic.add_received(count);
                    self.pulse.heard();
                    quota = quota.saturating_sub(count);
                }
                Err(Trouble::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
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
        let (mut direct, staged) = (0, staging.len());
        let read = match &mut self.phase {
            Phase::Fetching(fetch, _) => match fetch.space() {
                Some(space) => {
                    direct = space.len();
                    let mut slices = [IoSliceMut::new(space), IoSliceMut::new(&mut staging)];
                    self.stream.read_vectored(&mut slices)
                }
                None => self.stream.read(&mut staging),
            },
            _ => self.stream.read(&mut staging),
        };
        let outcome = read.map_err(Trouble::Io).and_then(|count| {
            // What comes from now on is an event of its own; so is an end, if it was none of the last.
            self.readable = count == direct + staged || self.ended || self.stream.may_stop_short();
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
                        if frame == Frame::Heartbeat {
                            self.pulse.beaten();
                        }
                        let descriptor = match frame {
                            Frame::Lease | Frame::Region { .. } => self.stream.take_descriptor(),
                            _ => None,
                        };
                        fetch.handle(frame, descriptor, self.peer, &mut self.outbox)?;
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
        if serve.take_payload(input, &mut self.outbox)? {
            return Ok(());
        }
        let frame = decoder.decode(input).map_err(|e| peer_error::frame(&e, self.peer))?;
        let Some(frame) = frame else { return Ok(()) };
        self.floods.charge(&frame, self.peer)?;
        if frame == Frame::Heartbeat {
            self.pulse.beaten();
        }
        serve
            .handle(frame, context, self.heard, &mut self.outbox)
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
        let is_same_host = self.stream.is_same_host();
        self.counted = Some(Counted::new(&context.traffic, is_same_host));
        let next = match &mut self.phase {
            Phase::Dialing { process, .. } if *process != peer.process => {
                let detail = "another process answers at this address".to_owned();
                return Err(ExchangeError::Handshake { peer: self.peer, detail });
            }
            Phase::Dialing { fetch, waiting, .. } => {
                for message in waiting.drain(..) {
                    self.outbox.push_message(&message);
                }
                let mut fetch = std::mem::take(fetch);
                fetch.borrowing = is_same_host.then(|| Borrowing::new(self.token, context));
                Phase::Fetching(fetch, decoder(Side::Consumer))
            }
            _ => {
                let serve = Serve::new(self.token, peer.max_segment, is_same_host, context);
                Phase::Serving(serve, decoder(Side::Producer))
            }
        };
        self.phase = next;
        Ok(())
    }
}

enum Trouble {
    Io(io::Error),
    Exchange(ExchangeError),
}
