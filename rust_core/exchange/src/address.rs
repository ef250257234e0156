//! Where consumers find what they read.

use std::net::{SocketAddr, ToSocketAddrs};

use headgate_protocol::PartitionId;

use crate::error::{ExchangeError, Result};

/// Where a subpartition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or number of the host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The process there.
    pub process: [u8; 16],
    /// Its partition.
    pub partition: PartitionId,
    /// Which of its subpartitions.
    pub subpartition: u32,
}

impl Address {
    /// The first address that the host's name stands for.
    pub(crate) fn resolve(&self) -> Result<SocketAddr> {
        let unresolved =
            |detail: String| ExchangeError::Unresolved { host: self.host.clone(), detail };
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| unresolved(error.to_string()))?;
        addresses.next().ok_or_else(|| unresolved("the name has no address".to_owned()))
    }
}
