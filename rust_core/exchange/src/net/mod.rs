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
mod client;
mod connection;
mod context;
mod driver;
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
mod outbox;
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
mod wire_error;

#[cfg(test)]
mod simulator;

pub(crate) use context::Context;
#[cfg(test)]
pub(crate) use link::Link;
pub(crate) use listeners::Listeners;
pub(crate) use loans::Loans;
pub(crate) use mailbox::{Command, Mailbox};
pub(crate) use network::Network;
#[cfg(test)]
pub(crate) use peers::Peers;
pub(crate) use traffic::Traffic;
