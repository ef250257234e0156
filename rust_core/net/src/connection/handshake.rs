//! The handshake of a connection, on the side that dialed and on the side that accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use headgate_protocol::{ClientHandshake, HandshakeError, Peer, ServerHandshake, Step};

use crate::context::Context;
use crate::error::{ConnectionError, Result};
use crate::outbox::Outbox;
use crate::peer_error;
use crate::redial::Dial;

/// The handshake of a connection that this process dialed.
pub(super) struct Dialing {
    handshake: ClientHandshake,
    pub(super) dial: Dial,
    /// True once a peer that has proved itself refused this process, or is the wrong one.
    is_refused: bool,
}

impl Dialing {
    pub(super) fn start(dial: Dial, context: &Context, outbox: &mut Outbox) -> Result<Self> {
        fail_point!("handshake.dialed", text => return Err(ConnectionError::Aborted(text)));
        let (handshake, hello) =
            ClientHandshake::start(context.key.clone(), context.handshake, nonce(context)?);
        outbox.push(hello);
        Ok(Self { handshake, dial, is_refused: false })
    }

    /// Makes the proofs cover the encrypted session below.
    pub(super) fn bind(&mut self, binding: Option<[u8; 32]>) {
        self.handshake.bind(binding);
    }

    /// Takes bytes off the input; returns the peer once it has proved itself.
    pub(super) fn receive(
        &mut self,
        input: &mut &[u8],
        peer: SocketAddr,
        outbox: &mut Outbox,
    ) -> Result<Option<Peer>> {
        let step = self.handshake.handle(input);
        self.is_refused = step.is_err() && self.handshake.has_server_proved();
        let proved = advance(step, outbox).map_err(|error| peer_error::refused(&error, peer))?;
        if proved.is_some_and(|proved| proved.process != self.dial.process) {
            self.is_refused = true;
            let detail = "another process answers at this address".to_owned();
            return Err(ConnectionError::Handshake { peer, detail });
        }
        Ok(proved)
    }

    /// Returns the next attempt and its time, after the connection has ended for this cause.
    pub(super) fn again(
        &self,
        cause: &ConnectionError,
        was_same_host: bool,
        now: Instant,
    ) -> Option<(Dial, Instant)> {
        use ConnectionError::{Handshake, Tls, Version};
        // All other causes are the kernel's, or of this process; but TCP may do where a Unix socket fails.
        let is_of_peer = matches!(cause, Handshake { .. } | Tls { .. } | Version { .. });
        if self.is_refused || !(is_of_peer || was_same_host) {
            return None;
        }
        self.dial.again(cause, was_same_host, now)
    }
}

/// The handshake of a connection that the peer dialed.
pub(super) struct Answering {
    handshake: ServerHandshake,
    /// True once the peer has named this exchange, run and epoch.
    is_named: bool,
}

impl Answering {
    pub(super) fn new(context: &Context) -> Result<Self> {
        fail_point!("handshake.accepted", text => return Err(ConnectionError::Aborted(text)));
        let handshake =
            ServerHandshake::new(context.key.clone(), context.handshake, nonce(context)?);
        Ok(Self { handshake, is_named: false })
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Makes the proofs cover the encrypted session below.
    pub(super) fn bind(&mut self, binding: Option<[u8; 32]>) {
        self.handshake.bind(binding);
    }

    /// Takes bytes off the input; returns the peer once it has proved itself. After an error the
    /// outbox holds the rejection, if the peer is to get one.
    pub(super) fn receive(
        &mut self,
        input: &mut &[u8],
        peer: SocketAddr,
        outbox: &mut Outbox,
    ) -> Result<Option<Peer>> {
        let step = self.handshake.handle(input);
        // Only a HELLO of this exchange, run and epoch is answered.
        self.is_named |= matches!(step, Ok(Step::Send(_)));
        advance(step, outbox).map_err(|error| {
            if let Some(rejection) = error.rejection() {
                outbox.push(rejection);
            }
            peer_error::refused(&error, peer)
        })
    }
}

fn nonce(context: &Context) -> Result<[u8; 32]> {
    (context.random)().map_err(|error| ConnectionError::Random(Arc::new(error)))
}

fn advance(
    step: std::result::Result<Step, HandshakeError>,
    outbox: &mut Outbox,
) -> std::result::Result<Option<Peer>, HandshakeError> {
    Ok(match step? {
        Step::NeedMore => None,
        Step::Send(bytes) => {
            outbox.push(bytes);
            None
        }
        Step::Done { peer, send } => {
            outbox.push(send);
            Some(peer)
        }
    })
}
