//! Addresses of subpartitions.

use std::net::{SocketAddr, ToSocketAddrs};

use headgate_protocol::PartitionId;

use crate::error::{ExchangeError, Result};

/// The address of a subpartition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address of the host.
    pub host: String,
    /// Port of the process.
    pub port: u16,
    /// Random name of the process.
    pub process: [u8; 16],
    /// Id of the partition.
    pub partition: PartitionId,
    /// Index of the subpartition.
    pub subpartition: u32,
}

impl Address {
    /// Returns the first address that the host's name resolves to.
    pub(crate) fn resolve(&self) -> Result<SocketAddr> {
        let unresolved =
            |detail: String| ExchangeError::Unresolved { host: self.host.clone(), detail };
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| unresolved(error.to_string()))?;
        addresses.next().ok_or_else(|| unresolved("the name has no address".to_owned()))
    }
}
