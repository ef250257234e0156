//! The handshake of a connection, on the side that dialed and on the side that accepted.

use std::net::SocketAddr;

use headgate_protocol::{ClientHandshake, HandshakeError, Peer, ServerHandshake, Step};

use crate::error::{ExchangeError, Result};
use crate::net::context::Context;
use crate::net::outbox::Outbox;
use crate::net::peer_error;
use crate::random::random;

/// The handshake of a connection that this process dialed.
pub(super) struct Dialing {
    handshake: ClientHandshake,
    /// The process that should answer; another one may own the port by now.
    process: [u8; 16],
}

impl Dialing {
    pub(super) fn start(process: [u8; 16], context: &Context, outbox: &mut Outbox) -> Result<Self> {
        fail_point!("handshake.dialed", error => return Err(error));
        let (handshake, hello) =
            ClientHandshake::start(context.key.clone(), context.handshake, random()?);
        outbox.push(hello);
        Ok(Self { handshake, process })
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
        let proved = advance(self.handshake.handle(input), outbox)
            .map_err(|error| peer_error::refused(&error, peer))?;
        if proved.is_some_and(|proved| proved.process != self.process) {
            let detail = "another process answers at this address".to_owned();
            return Err(ExchangeError::Handshake { peer, detail });
        }
        Ok(proved)
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
        fail_point!("handshake.accepted", error => return Err(error));
        let handshake = ServerHandshake::new(context.key.clone(), context.handshake, random()?);
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
