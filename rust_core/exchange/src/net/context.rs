//! The state that all connections of an environment share.

use std::sync::Arc;
use std::time::Duration;

use headgate_protocol::{HandshakeConfig, Key};
use headgate_tls::Tls;

use crate::copies::Copies;
use crate::manager::PartitionManager;
use crate::metrics::WaitTimes;
use crate::net::loans::Loans;
use crate::net::mailbox::Mailbox;
use crate::net::traffic::Traffic;

/// The state that all connections of an environment share; fixed when the I/O thread starts.
pub(crate) struct Context {
    pub(crate) key: Key,
    pub(crate) handshake: HandshakeConfig,
    pub(crate) partitions: Arc<PartitionManager>,
    /// See [`Config`](crate::Config).
    pub(crate) partition_request_timeout: Duration,
    /// See [`Config`](crate::Config).
    pub(crate) idle_timeout: Duration,
    /// See [`Config`](crate::Config).
    pub(crate) same_host_link: bool,
    /// See [`Config`](crate::Config).
    pub(crate) tls: Option<Tls>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) copies: Arc<Copies>,
    pub(crate) waits: Arc<WaitTimes>,
    pub(crate) loans: Arc<Loans>,
    pub(crate) mailbox: Arc<Mailbox>,
}
