//! The client: the consumer, which dials.

use super::config::{HandshakeConfig, Peer, Step, VersionRange};
use super::error::{HandshakeError, Refusal};
use super::key::{Key, Prover};
use super::kind::Kind;
use super::message::{Challenge, Hello, Inbox, MAC_LEN, encode_proof};

/// The handshake of the side that dials.
#[derive(Debug)]
pub struct ClientHandshake {
    key: Key,
    config: HandshakeConfig,
    nonce: [u8; 32],
    inbox: Inbox,
    state: State,
    /// True once the server has proved itself.
    server_proved: bool,
}

impl ClientHandshake {
    /// Begins a handshake and returns the bytes to write. `nonce` must be fresh random bytes.
    #[must_use]
    pub fn start(key: Key, config: HandshakeConfig, nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let hello = Hello {
            versions: config.versions,
            role: key.client_role(),
            exchange: config.exchange,
            run: config.run,
            epoch: config.epoch,
            process: config.process,
            max_segment: config.max_segment,
            nonce,
        }
        .encode();
        let state = State::AwaitChallenge { hello: hello.clone() };
        let inbox = Inbox::default();
        (Self { key, config, nonce, inbox, state, server_proved: false }, hello)
    }

    /// Returns true once the server has proved itself. A REJECT before it may be anyone's.
    #[must_use]
    pub const fn has_server_proved(&self) -> bool {
        self.server_proved
    }

    /// Makes all proofs cover these bytes, which only the two ends of the stream below know. Both sides
    /// call it before they handle the first byte of the peer; `None` for a stream in the clear.
    pub fn bind(&mut self, binding: Option<[u8; 32]>) {
        self.key.bind(binding);
    }

    /// Consumes bytes of the peer. After an error or [`Step::Done`] every further call returns
    /// [`HandshakeError::Over`].
    pub fn handle(&mut self, input: &mut &[u8]) -> Result<Step, HandshakeError> {
        // An error on any path leaves this state.
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitChallenge { hello } => {
                match self.inbox.receive(Kind::Challenge, self.config.versions, input)? {
                    Some(message) => self.on_challenge(hello, &message),
                    None => self.wait(State::AwaitChallenge { hello }),
                }
            }
            State::AwaitAccept { peer } => {
                match self.inbox.receive(Kind::Accept, self.config.versions, input)? {
                    Some(_) => Ok(Step::Done { peer, send: Vec::new() }),
                    None => self.wait(State::AwaitAccept { peer }),
                }
            }
            State::Over => Err(HandshakeError::Over),
        }
    }

    fn on_challenge(&mut self, hello: Vec<u8>, message: &[u8]) -> Result<Step, HandshakeError> {
        let (challenge, proof) = Challenge::decode(message);
        if !self.config.versions.contains(challenge.version) {
            let theirs = VersionRange { min: challenge.version, max: challenge.version };
            return Err(HandshakeError::Version { ours: self.config.versions, theirs });
        }
        if challenge.process == self.config.process || challenge.nonce == self.nonce {
            return Err(HandshakeError::Refused { cause: Refusal::Reflected });
        }
        let mut transcript = hello;
        transcript.extend_from_slice(&message[..message.len() - MAC_LEN]);
        if !self.key.verify(Prover::Server, &transcript, &proof) {
            return Err(HandshakeError::Refused { cause: Refusal::Proof });
        }
        self.server_proved = true;
        let max_segment = challenge.max_segment.min(self.config.max_segment);
        if max_segment == 0 {
            return Err(HandshakeError::ZeroSegment);
        }
        transcript.extend_from_slice(&proof);
        let mask = self.key.mask(&transcript);
        let session = self.key.session(&transcript);
        let (process, version) = (challenge.process, challenge.version);
        let peer = Peer { process, version, max_segment, mask, session };
        self.state = State::AwaitAccept { peer };
        Ok(Step::Send(encode_proof(&self.key.prove(Prover::Client, &transcript))))
    }

    fn wait(&mut self, state: State) -> Result<Step, HandshakeError> {
        self.state = state;
        Ok(Step::NeedMore)
    }
}

#[derive(Debug)]
enum State {
    AwaitAccept { peer: Peer },
    AwaitChallenge { hello: Vec<u8> },
    Over,
}
