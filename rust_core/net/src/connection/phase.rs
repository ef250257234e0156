//! The phases of a connection: a handshake, then one of the two directions.

use std::time::Instant;

use crate::client::PartitionRequestClient;
use crate::connection::frames::FrameReader;
use crate::connection::handshake::{Answering, Dialing};
use crate::error::ConnectionError;
use crate::loans::Outstanding;
use crate::newcomers::Standing;
use crate::peer_error::Role;
use crate::serve::Serve;

pub(super) enum Phase {
    /// This process dialed; the client keeps its messages until the peer has proved itself.
    Dialing(Box<Dialing>, PartitionRequestClient),
    /// The peer dialed.
    Answering(Answering),
    /// This process reads from the peer.
    Fetching(PartitionRequestClient, FrameReader),
    /// The peer reads from this process.
    Serving(Serve, FrameReader),
}

impl Phase {
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Dialing(..) => Role::Dialed,
            Self::Answering(_) => Role::Unproved,
            Self::Fetching(..) => Role::Producer,
            Self::Serving(..) => Role::Consumer,
        }
    }

    pub(super) fn client_mut(&mut self) -> Option<&mut PartitionRequestClient> {
        match self {
            Self::Dialing(_, client) | Self::Fetching(client, _) => Some(client),
            Self::Answering(_) | Self::Serving(..) => None,
        }
    }

    pub(super) fn serve_mut(&mut self) -> Option<&mut Serve> {
        match self {
            Self::Serving(serve, _) => Some(serve),
            Self::Dialing(..) | Self::Answering(_) | Self::Fetching(..) => None,
        }
    }

    /// Returns the reader of frames once the peer has proved itself.
    pub(super) fn frames_mut(&mut self) -> Option<&mut FrameReader> {
        match self {
            Self::Fetching(_, frames) | Self::Serving(_, frames) => Some(frames),
            Self::Dialing(..) | Self::Answering(_) => None,
        }
    }

    pub(super) fn is_proved(&self) -> bool {
        matches!(self, Self::Fetching(..) | Self::Serving(..))
    }

    /// Returns the standing of a peer that dialed; `None` if this process did.
    pub(super) fn standing(&self) -> Option<Standing> {
        match self {
            Self::Dialing(..) | Self::Fetching(..) => None,
            Self::Answering(answering) if answering.is_named() => Some(Standing::Named),
            Self::Answering(_) => Some(Standing::Stranger),
            Self::Serving(..) => Some(Standing::Proved),
        }
    }

    /// Returns true if no channel is open.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Dialing(_, client) | Self::Fetching(client, _) => client.fetch.is_idle(),
            Self::Answering(_) => true,
            Self::Serving(serve, _) => serve.is_idle(),
        }
    }

    /// Returns true if the peer must give signs of life: it has channels with us, or waits for one.
    pub(super) fn is_watched(&self) -> bool {
        match self {
            Self::Fetching(client, _) => !client.fetch.is_idle(),
            Self::Serving(serve, _) => !serve.is_idle() || serve.has_waiting(),
            Self::Dialing(..) | Self::Answering(_) => false,
        }
    }

    /// Returns the bytes of task events that are kept for partitions which have not appeared.
    pub(super) fn event_bytes(&self) -> usize {
        match self {
            Self::Serving(serve, _) => serve.event_bytes(),
            Self::Dialing(..) | Self::Answering(_) | Self::Fetching(..) => 0,
        }
    }

    /// Returns the time at which the phase has something to expire.
    pub(super) fn deadline(&self, handshake: Instant) -> Option<Instant> {
        match self {
            Self::Dialing(..) | Self::Answering(_) => Some(handshake),
            Self::Fetching(..) => None,
            Self::Serving(serve, _) => serve.deadline(),
        }
    }

    /// Ends all channels with this cause; returns the buffers that the peer may still read.
    pub(super) fn disconnected(&mut self, cause: &ConnectionError) -> Option<Outstanding> {
        match self {
            Self::Dialing(_, client) | Self::Fetching(client, _) => {
                client.fetch.disconnected(cause);
                None
            }
            Self::Answering(_) => None,
            Self::Serving(serve, _) => {
                serve.disconnected(cause);
                serve.outstanding()
            }
        }
    }
}
