//! What tests choose that an environment decides by itself: the order of everything, and the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::BufferDebloatOptions;
use crate::environment::ShuffleEnvironment;
use crate::error::Result;
use crate::gate::{Debloating, GatePool, InputGate};
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
        if self.config.same_host_link {
            self.pool.share();
        }
        let peers = Peers::new(link, self.context(Arc::clone(&mailbox)));
        *lock(&self.network) = Some(Network::by_hand(mailbox, address));
        peers
    }

    /// A gate whose debloating goes by this clock.
    pub(crate) fn create_debloated_gate(
        &self,
        options: &BufferDebloatOptions,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Arc<InputGate>> {
        let pool = GatePool::new(&self.pool, &self.config.buffers)?;
        let gate = InputGate::new(pool, Arc::clone(&self.shared.metrics));
        let debloating = Debloating::with_clock(options, self.config.segment_size, Box::new(clock));
        Ok(Arc::new(gate.debloated(debloating)))
    }
}
