//! The error for the end of a connection, which depends on the role of the peer.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headgate_protocol::{FrameError, HandshakeError};
use headgate_tls::TlsFailure;

use crate::error::ConnectionError;

/// The role of the process at the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads from this process.
    Consumer,
    /// This process dialed it, and it has not proved itself yet.
    Dialed,
    /// This process reads from it.
    Producer,
    /// It dialed this process, and has not proved itself yet.
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

/// Returns true if the error says no more than that the connection has ended.
pub(crate) fn is_end(error: &ConnectionError) -> bool {
    use ConnectionError::{Connect, LinkLost, PeerLost};
    matches!(error, Connect { .. } | LinkLost { .. } | PeerLost { .. })
}

/// Returns the error for a peer that closed the stream.
pub(crate) fn ended(role: Role, peer: SocketAddr) -> ConnectionError {
    match role {
        Role::Dialed | Role::Unproved => ConnectionError::Handshake {
            peer,
            detail: "the peer closed the connection before the handshake was done".to_owned(),
        },
        Role::Consumer | Role::Producer => broken(role, peer, ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the error for a stream that broke.
pub(crate) fn broken(role: Role, peer: SocketAddr, error: io::Error) -> ConnectionError {
    if let Some(TlsFailure { mut detail, is_no_tls }) = TlsFailure::of(&error) {
        if is_no_tls && matches!(role, Role::Dialed | Role::Unproved) {
            "the peer does not speak TLS; give both processes the same tls option"
                .clone_into(&mut detail);
        }
        return ConnectionError::Tls { peer, detail };
    }
    if role == Role::Dialed {
        return match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset => ended(role, peer),
            _ => ConnectionError::Connect { peer, source: Arc::new(error) },
        };
    }
    let name = format!("{} {peer}", role.name());
    let detail = match error.kind() {
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::NetworkUnreachable
        | ErrorKind::TimedOut => {
            return ConnectionError::LinkLost { peer: name, detail: error.to_string() };
        }
        ErrorKind::UnexpectedEof => {
            "the process closed the connection without a goodbye".to_owned()
        }
        _ => error.to_string(),
    };
    ConnectionError::PeerLost { peer: name, detail }
}

/// Returns the error for a peer whose host answers but whose process gives no sign of life.
pub(crate) fn silent(role: Role, peer: SocketAddr, silence: Duration) -> ConnectionError {
    let peer = format!("{} {peer}", role.name());
    let detail = format!("no sign of life for {} s", silence.as_secs());
    ConnectionError::PeerLost { peer, detail }
}

/// Returns the error for a peer that broke the protocol.
pub(crate) fn protocol(error: &dyn Display, peer: SocketAddr) -> ConnectionError {
    ConnectionError::Protocol { peer: peer.to_string(), detail: error.to_string() }
}

/// Returns the error for a frame that is malformed or was altered on its way.
pub(crate) fn frame(error: &FrameError, peer: SocketAddr) -> ConnectionError {
    match error {
        FrameError::Checksum { .. } => {
            ConnectionError::Integrity { channel: peer.to_string(), detail: error.to_string() }
        }
        _ => protocol(error, peer),
    }
}

/// Returns the error for a handshake that failed.
pub(crate) fn refused(error: &HandshakeError, peer: SocketAddr) -> ConnectionError {
    let detail = error.to_string();
    match error {
        HandshakeError::Encrypted => ConnectionError::Tls { peer, detail },
        HandshakeError::Version { .. } => ConnectionError::Version { peer, detail },
        _ => ConnectionError::Handshake { peer, detail },
    }
}
