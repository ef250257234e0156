//! The state that all connections of an environment share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headgate_protocol::{HandshakeConfig, Key};
use headgate_tls::Tls;

use crate::net::loans::Loans;
use crate::net::mailbox::Mailbox;
use crate::net::partitions::Partitions;
use crate::net::traffic::Traffic;
use crate::net::waits::NetworkWaits;

/// The state that all connections of an environment share; fixed when the I/O thread starts.
pub(crate) struct Context {
    pub(crate) key: Key,
    pub(crate) handshake: HandshakeConfig,
    pub(crate) partitions: Arc<dyn Partitions>,
    /// See [`Config`](crate::Config).
    pub(crate) partition_request_timeout: Duration,
    /// See [`Config`](crate::Config).
    pub(crate) idle_timeout: Duration,
    /// See [`Config`](crate::Config).
    pub(crate) same_host_link: bool,
    /// See [`Config`](crate::Config).
    pub(crate) tls: Option<Tls>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) waits: Arc<dyn NetworkWaits>,
    /// Returns random bytes from the operating system, for the handshake.
    pub(crate) random: fn() -> io::Result<[u8; 32]>,
    pub(crate) loans: Arc<Loans>,
    pub(crate) mailbox: Arc<Mailbox>,
}
