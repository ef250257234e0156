//! The state that all connections of an environment share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headgate_protocol::{HandshakeConfig, Key};
use headgate_tls::Tls;

use crate::loans::Loans;
use crate::mailbox::Mailbox;
use crate::partitions::Partitions;
use crate::traffic::Traffic;
use crate::waits::NetworkWaits;

/// The state that all connections of an environment share; fixed when the I/O thread starts.
pub struct Context {
    /// The key of the exchange's proofs.
    pub key: Key,
    /// The facts of this process for a handshake.
    pub handshake: HandshakeConfig,
    /// The partitions that it serves.
    pub partitions: Arc<dyn Partitions>,
    /// Time that a request waits for a partition that does not exist yet. Zero refuses it at once.
    pub partition_request_timeout: Duration,
    /// Silence after which a peer with open channels counts as lost.
    pub idle_timeout: Duration,
    /// True if processes of this host and user connect over Unix sockets and share memory.
    pub same_host_link: bool,
    /// Encrypts connections over TCP; None leaves them in the clear.
    pub tls: Option<Tls>,
    /// Counts connections and bytes.
    pub traffic: Arc<Traffic>,
    /// Is told of waits.
    pub waits: Arc<dyn NetworkWaits>,
    /// Returns random bytes from the operating system, for the handshake.
    pub random: fn() -> io::Result<[u8; 32]>,
    /// The buffers that are lent.
    pub loans: Arc<Loans>,
    /// The queue of the I/O thread.
    pub mailbox: Arc<Mailbox>,
}
