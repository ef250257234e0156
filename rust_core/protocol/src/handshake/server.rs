//! The server: the producer, which listens.

use super::config::{HandshakeConfig, Peer, Step, VersionRange};
use super::error::{HandshakeError, Refusal};
use super::key::{Key, Prover};
use super::kind::Kind;
use super::message::{Challenge, Hello, Inbox, decode_proof, encode_accept};

/// The handshake of the side that listens.
#[derive(Debug)]
pub struct ServerHandshake {
    key: Key,
    config: HandshakeConfig,
    nonce: [u8; 32],
    inbox: Inbox,
    state: State,
}

impl ServerHandshake {
    /// Creates a handshake that waits for a client. `nonce` must be fresh random bytes.
    #[must_use]
    pub fn new(key: Key, config: HandshakeConfig, nonce: [u8; 32]) -> Self {
        Self { key, config, nonce, inbox: Inbox::default(), state: State::AwaitHello }
    }

    /// Returns the exchange that the HELLO at the start of `input` asks for, or `None` if more bytes
    /// are needed. A server of many exchanges finds its key by it.
    pub fn requested_exchange(
        input: &[u8],
        versions: VersionRange,
    ) -> Result<Option<[u8; 16]>, HandshakeError> {
        let hello = Inbox::default().receive(Kind::Hello, versions, &mut &*input)?;
        Ok(hello.map(|message| Hello::decode(&message).exchange))
    }

    /// Makes all proofs cover these bytes, which only the two ends of the stream below know. Both sides
    /// call it before they handle the first byte of the peer; `None` for a stream in the clear.
    pub fn bind(&mut self, binding: Option<[u8; 32]>) {
        self.key.bind(binding);
    }

    /// Consumes bytes of the peer. After an error or [`Step::Done`] every further call returns
    /// [`HandshakeError::Over`]. After an error the driver writes [`HandshakeError::rejection`] and
    /// closes the connection.
    pub fn handle(&mut self, input: &mut &[u8]) -> Result<Step, HandshakeError> {
        // An error on any path leaves this state.
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitHello => {
                match self.inbox.receive(Kind::Hello, self.config.versions, input)? {
                    Some(message) => self.on_hello(message),
                    None => self.wait(State::AwaitHello),
                }
            }
            State::AwaitProof { transcript, peer } => {
                match self.inbox.receive(Kind::Proof, self.config.versions, input)? {
                    Some(message) => self.on_proof(&transcript, peer, &message),
                    None => self.wait(State::AwaitProof { transcript, peer }),
                }
            }
            State::Over => Err(HandshakeError::Over),
        }
    }

    fn on_hello(&mut self, message: Vec<u8>) -> Result<Step, HandshakeError> {
        let hello = Hello::decode(&message);
        let (ours, theirs) = (self.config.versions, hello.versions);
        let version = ours.agree(theirs).ok_or(HandshakeError::Version { ours, theirs })?;
        if let Some(cause) = self.refusal(&hello) {
            return Err(HandshakeError::Refused { cause });
        }
        let max_segment = hello.max_segment.min(self.config.max_segment);
        if max_segment == 0 {
            return Err(HandshakeError::ZeroSegment);
        }
        let challenge = Challenge {
            version,
            process: self.config.process,
            max_segment: self.config.max_segment,
            nonce: self.nonce,
        };
        let mut send = challenge.encode_unproved();
        let mut transcript = message;
        transcript.extend_from_slice(&send);
        let proof = self.key.prove(Prover::Server, &transcript);
        transcript.extend_from_slice(&proof);
        send.extend_from_slice(&proof);
        let mask = self.key.mask(&transcript);
        let session = self.key.session(&transcript);
        let peer = Peer { process: hello.process, version, max_segment, mask, session };
        self.state = State::AwaitProof { transcript, peer };
        Ok(Step::Send(send))
    }

    fn refusal(&self, hello: &Hello) -> Option<Refusal> {
        let config = &self.config;
        if hello.role != self.key.client_role() {
            Some(Refusal::Role)
        } else if hello.exchange != config.exchange {
            Some(Refusal::Exchange)
        } else if (hello.run, hello.epoch) != (config.run, config.epoch) {
            Some(Refusal::StaleAttempt)
        } else if hello.process == config.process || hello.nonce == self.nonce {
            Some(Refusal::Reflected)
        } else {
            None
        }
    }

    fn on_proof(
        &self,
        transcript: &[u8],
        peer: Peer,
        message: &[u8],
    ) -> Result<Step, HandshakeError> {
        if self.key.verify(Prover::Client, transcript, &decode_proof(message)) {
            Ok(Step::Done { peer, send: encode_accept() })
        } else {
            Err(HandshakeError::Refused { cause: Refusal::Proof })
        }
    }

    fn wait(&mut self, state: State) -> Result<Step, HandshakeError> {
        self.state = state;
        Ok(Step::NeedMore)
    }
}

#[derive(Debug)]
enum State {
    AwaitHello,
    AwaitProof { transcript: Vec<u8>, peer: Peer },
    Over,
}
