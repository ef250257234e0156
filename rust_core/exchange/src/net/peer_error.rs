//! What the end of a connection means, by who the peer was to us.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use headgate_protocol::{FrameError, HandshakeError};

use crate::error::ExchangeError;

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads what we produce.
    Consumer,
    /// We dialed it and it has not proved itself yet.
    Dialed,
    /// We read what it produces.
    Producer,
    /// It dialed us and has not proved itself yet.
    Unproved,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Consumer | Self::Unproved => "consumer",
            Self::Dialed | Self::Producer => "producer",
        }
    }
}

/// The peer closed the stream.
pub(crate) fn ended(role: Role, peer: SocketAddr) -> ExchangeError {
    match role {
        Role::Dialed | Role::Unproved => ExchangeError::Handshake {
            peer,
            detail: "the peer closed the connection before the handshake was done".to_owned(),
        },
        Role::Consumer | Role::Producer => {
            broken(role, peer, &io::Error::from(ErrorKind::UnexpectedEof))
        }
    }
}

/// The stream broke.
pub(crate) fn broken(role: Role, peer: SocketAddr, error: &io::Error) -> ExchangeError {
    if role == Role::Dialed {
        return ExchangeError::Connect { peer, detail: error.to_string() };
    }
    let name = format!("{} {peer}", role.name());
    let detail = match error.kind() {
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::NetworkUnreachable
        | ErrorKind::TimedOut => {
            return ExchangeError::LinkLost { peer: name, detail: error.to_string() };
        }
        ErrorKind::UnexpectedEof => {
            "the process closed the connection without a goodbye".to_owned()
        }
        _ => error.to_string(),
    };
    ExchangeError::PeerLost { peer: name, detail }
}

/// The peer's process runs no more, though its host answers.
pub(crate) fn silent(role: Role, peer: SocketAddr, silence: Duration) -> ExchangeError {
    let peer = format!("{} {peer}", role.name());
    let detail = format!("no sign of life for {} s", silence.as_secs());
    ExchangeError::PeerLost { peer, detail }
}

/// The peer broke a rule.
pub(crate) fn protocol(error: &dyn Display, peer: SocketAddr) -> ExchangeError {
    ExchangeError::Protocol { peer: peer.to_string(), detail: error.to_string() }
}

/// A frame is not legal, or not what was sent.
pub(crate) fn frame(error: &FrameError, peer: SocketAddr) -> ExchangeError {
    match error {
        FrameError::Checksum { .. } => {
            ExchangeError::Integrity { channel: peer.to_string(), detail: error.to_string() }
        }
        _ => protocol(error, peer),
    }
}

/// The handshake failed.
pub(crate) fn refused(error: &HandshakeError, peer: SocketAddr) -> ExchangeError {
    let detail = error.to_string();
    match error {
        HandshakeError::Version { .. } => ExchangeError::Version { peer, detail },
        _ => ExchangeError::Handshake { peer, detail },
    }
}
