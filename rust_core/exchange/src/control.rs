//! The handshake of a control connection between the Spark driver and a worker.
//!
//! Decision: ADR 0005.

use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, ServerHandshake, SessionKey, Step,
    VersionRange,
};

use crate::error::Result;
use crate::random::random;

/// The versions of the control handshake and of the frames after it.
const VERSIONS: VersionRange = VersionRange { min: 2, max: 2 };

/// One end of the handshake, without I/O: bytes in, bytes out.
pub struct ControlHandshake {
    side: Side,
    output: Vec<u8>,
    session: Option<SessionKey>,
}

enum Side {
    Worker(ClientHandshake),
    Coordinator(ServerHandshake),
}

impl ControlHandshake {
    /// Starts the worker's end; its HELLO is the first output. The proofs cover `binding`, see
    /// [`TlsSession::binding`](crate::TlsSession::binding); None without TLS.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn dial(
        key: Key,
        exchange: [u8; 16],
        max_message: u32,
        binding: Option<[u8; 32]>,
    ) -> Result<Self> {
        let config = config(exchange, max_message)?;
        let (mut handshake, hello) = ClientHandshake::start(key, config, random()?);
        handshake.bind(binding);
        Ok(Self { side: Side::Worker(handshake), output: hello, session: None })
    }

    /// Starts the coordinator's end, for the exchange that the HELLO requests.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn accept(
        key: Key,
        exchange: [u8; 16],
        max_message: u32,
        binding: Option<[u8; 32]>,
    ) -> Result<Self> {
        let mut handshake = ServerHandshake::new(key, config(exchange, max_message)?, random()?);
        handshake.bind(binding);
        Ok(Self { side: Side::Coordinator(handshake), output: Vec::new(), session: None })
    }

    /// Returns the exchange that a HELLO requests, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// When the bytes do not begin with a HELLO.
    pub fn requested_exchange(
        input: &[u8],
    ) -> std::result::Result<Option<[u8; 16]>, HandshakeError> {
        ServerHandshake::requested_exchange(input, VERSIONS)
    }

    /// Consumes bytes of the peer, except those that follow the handshake. After an error the output
    /// holds the rejection, if the peer is to get one.
    ///
    /// # Errors
    /// When the peer breaks the protocol or does not prove itself.
    pub fn handle(&mut self, input: &mut &[u8]) -> std::result::Result<(), HandshakeError> {
        while self.session.is_none() && !input.is_empty() {
            let step = match &mut self.side {
                Side::Worker(handshake) => handshake.handle(input),
                Side::Coordinator(handshake) => handshake.handle(input),
            };
            match step {
                Ok(Step::NeedMore) => {}
                Ok(Step::Send(bytes)) => self.output.extend(bytes),
                Ok(Step::Done { peer, send }) => {
                    self.output.extend(send);
                    self.session = Some(peer.session);
                }
                Err(error) => {
                    self.output.extend(error.rejection().unwrap_or_default());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes the bytes to write.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The session key, once the peer has proved itself.
    #[must_use]
    pub fn session(&self) -> Option<SessionKey> {
        self.session
    }
}

fn config(exchange: [u8; 16], max_message: u32) -> Result<HandshakeConfig> {
    // One key serves all runs of an exchange; each message names its run and epoch.
    let (run, epoch) = (0, 0);
    let (process, max_segment) = (random()?, max_message);
    Ok(HandshakeConfig { exchange, run, epoch, process, max_segment, versions: VERSIONS })
}
