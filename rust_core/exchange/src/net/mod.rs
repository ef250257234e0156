//! Moving buffers between processes: one I/O thread, one connection per pair of processes.
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
//! Decisions: ADRs 0019 and 0031.

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
mod lock;
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
mod simulator;
#[cfg(test)]
mod testing;

pub(crate) use channel::{Channel, CreditSink, Target, UpstreamMessage};
pub(crate) use context::Context;
pub use error::ConnectionError;
#[cfg(test)]
pub(crate) use link::Link;
pub(crate) use listeners::Listeners;
pub use loans::LentStats;
pub(crate) use loans::Loans;
pub(crate) use mailbox::Mailbox;
pub(crate) use network::{Network, StartError};
pub(crate) use notifiers::{DataNotifier, PartitionNotifier};
pub(crate) use partitions::{Available, Partitions, Polled, Reason, Refusal, View};
#[cfg(test)]
pub(crate) use peers::Peers;
pub use traffic::Connections;
pub(crate) use traffic::Traffic;
pub(crate) use waits::NetworkWaits;
