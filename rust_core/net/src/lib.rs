//! Connections between processes: one I/O thread, one connection per pair of processes.
//!
//! ```text
//!   threads of the user                I/O thread
//!   subpartition.add -- Mailbox -->  Driver --> Peers --> Connection --> Serve   (producer's end, spec 9.4)
//!   channel.offer    -- Mailbox -->                                 \-> Fetch   (consumer's end, spec 9.5)
//! ```
//!
//! The I/O thread owns all state of connections; other threads only post commands. It never waits for
//! a lock that another thread holds across a system call, and never touches Python.
//!
//! The crate knows no gate and no partition. It owns the traits of what it asks of them:
//!
//! | trait | is |
//! |---|---|
//! | [`Channel`] | the consumer's end of a channel: memory for what arrives, credit to announce |
//! | [`Partitions`], [`View`] | the subpartitions that this process serves, and one consumer's position |
//! | [`NetworkWaits`] | told of what limits the connections |
//!
//! Decisions: ADR 0019, ADR 0031 and ADR 0046.

#![forbid(unsafe_code)]
// Without simulations nobody reaches the connections themselves.
#![cfg_attr(not(feature = "simulation"), allow(unreachable_pub))]

#[macro_use]
extern crate headgate_failpoint;

mod borrowing;
mod channel;
mod checksum;
mod client;
mod connection;
mod context;
mod driver;
mod error;
mod events;
mod fetch;
mod lease;
mod limits;
mod link;
mod listeners;
mod loans;
mod mailbox;
mod network;
mod newcomers;
mod notifiers;
mod outbox;
mod partitions;
mod peer_error;
mod peers;
mod redial;
mod requests;
mod same_host;
mod sending;
mod serve;
mod sockets;
mod task_event;
mod tcp;
mod traffic;
mod waits;
mod wire_error;

#[cfg(test)]
mod testing;

pub use channel::{Channel, CreditSink, Target, UpstreamMessage};
pub use context::Context;
pub use error::ConnectionError;
pub use listeners::Listeners;
pub use loans::{LentStats, Loans};
pub use mailbox::Mailbox;
pub use network::{Network, StartError};
pub use notifiers::{DataNotifier, PartitionNotifier};
pub use partitions::{Available, Partitions, Polled, Reason, Refusal, View};
pub use traffic::{Connections, Traffic};
pub use waits::NetworkWaits;

/// The connections without their thread, for tests that choose the order of everything.
#[cfg(feature = "simulation")]
pub mod simulation {
    pub use crate::checksum::{
        Checksum, of as checksum_of, of_task_event as checksum_of_task_event,
    };
    pub use crate::lease::Lease;
    pub use crate::link::{Link, Stream};
    pub use crate::mailbox::Command;
    pub use crate::peers::Peers;
    pub use crate::redial::HANDSHAKE_TIMEOUT;
    pub use crate::same_host::{MOST_DESCRIPTORS, SameHost, listen};
    pub use crate::sockets::{Socket, Sockets};
}
