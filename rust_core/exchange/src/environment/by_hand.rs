//! An environment without an I/O thread, for tests that choose the order of everything.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::environment::ShuffleEnvironment;
use crate::lock::lock;
use crate::net::{Link, Mailbox, Network, Peers};

impl ShuffleEnvironment {
    /// The connections that the I/O thread would drive, over this link.
    pub(crate) fn drive_by_hand<L: Link>(
        &self,
        link: L,
        address: SocketAddr,
        mailbox: Arc<Mailbox>,
    ) -> Peers<L> {
        let peers = Peers::new(link, self.context(Arc::clone(&mailbox)));
        *lock(&self.network) = Some(Network::by_hand(mailbox, address));
        peers
    }
}
