//! The I/O thread of an environment, started when it is first needed.

use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock};

use headgate_memory::{GlobalPool, lock};
use headgate_net::{Context, Listeners, Loans, Mailbox, Network, StartError, Traffic};
use headgate_protocol::{HandshakeConfig, Key, VersionRange};

use super::gates::Gates;
use crate::config::Config;
use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::manager::PartitionManager;
use crate::metrics::WaitTimes;
use crate::panic_text::panic_text;
use crate::random::bytes;
use crate::threads;

/// Starts the I/O thread, and has what the thread needs.
pub(super) struct LazyNetwork {
    /// None until something needs the thread.
    network: Mutex<Option<Network>>,
    config: Arc<Config>,
    /// The random name of this process within the exchange.
    process: [u8; 16],
    key: Key,
    pool: GlobalPool,
    partitions: Arc<PartitionManager>,
    gates: Arc<Gates>,
    waits: Arc<WaitTimes>,
    traffic: Arc<Traffic>,
    loans: Arc<Loans>,
    /// The text of the I/O thread's panic. Set before gates and partitions are failed with it.
    broken: Arc<OnceLock<ExchangeError>>,
}

impl LazyNetwork {
    pub(super) fn new(
        config: Arc<Config>,
        process: [u8; 16],
        pool: GlobalPool,
        partitions: Arc<PartitionManager>,
        gates: Arc<Gates>,
        waits: Arc<WaitTimes>,
    ) -> Self {
        Self {
            network: Mutex::default(),
            process,
            key: Key::derive(&config.secret, &config.exchange, config.run, config.epoch),
            config,
            pool,
            partitions,
            gates,
            waits,
            traffic: Arc::default(),
            loans: Arc::default(),
            broken: Arc::default(),
        }
    }

    pub(super) fn process(&self) -> [u8; 16] {
        self.process
    }

    pub(super) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Segments of this process that others read in shared memory.
    pub(super) fn loans(&self) -> &Loans {
        &self.loans
    }

    /// # Errors
    /// [`ExchangeError::Internal`] once the I/O thread has panicked.
    pub(super) fn check(&self) -> Result<()> {
        self.broken.get().cloned().map_or(Ok(()), Err)
    }

    /// The address others connect to; listens from the first call on.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        let mut network = lock(&self.network);
        if let Some(address) = network.as_ref().and_then(|network| network.address) {
            return Ok(address);
        }
        let failed = |error: std::io::Error| {
            let address = self.config.listen.clone();
            descriptors::exhausted(format_args!("cannot listen on {address}"), &error)
                .unwrap_or_else(|| ExchangeError::Listen { address, detail: error.to_string() })
        };
        let listener = TcpListener::bind(&self.config.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let listeners = Listeners::new(listener, self.config.same_host_link).map_err(failed)?;
        if listeners.same_host.is_some() {
            self.pool.share();
        }
        match &mut *network {
            Some(network) => network.listen(listeners, address),
            None => *network = Some(self.start(Some(listeners))?),
        }
        Ok(address)
    }

    /// The queue of commands to the I/O thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn mailbox(&self) -> Result<Arc<Mailbox>> {
        let mut network = lock(&self.network);
        Ok(match &mut *network {
            Some(network) => Arc::clone(&network.mailbox),
            None => Arc::clone(&network.insert(self.start(None)?).mailbox),
        })
    }

    fn start(&self, listeners: Option<Listeners>) -> Result<Network> {
        let (gates, partitions) = (Arc::clone(&self.gates), Arc::clone(&self.partitions));
        let broken = Arc::clone(&self.broken);
        let on_panic = move |panic: &(dyn Any + Send)| {
            let text = panic_text(panic);
            let cause = ExchangeError::Internal(format!("the I/O thread panicked: {text}"));
            broken.get_or_init(|| cause.clone());
            gates.fail_all(&cause);
            partitions.fail_all(&cause);
        };
        let started = Network::start(listeners, |mailbox| self.context(mailbox), on_panic);
        started.map_err(|error| match error {
            StartError::Descriptors(error) => {
                descriptors::refused("cannot start the I/O thread", error)
            }
            StartError::Thread(error) => threads::refused("I/O thread headgate-io", error),
        })
    }

    fn context(&self, mailbox: Arc<Mailbox>) -> Context {
        let segment = u32::try_from(self.config.segment_size).expect("limited by the options");
        Context {
            key: self.key.clone(),
            handshake: HandshakeConfig {
                exchange: self.config.exchange,
                run: self.config.run,
                epoch: self.config.epoch,
                process: self.process,
                max_segment: segment,
                versions: VersionRange::SUPPORTED,
            },
            partitions: Arc::<PartitionManager>::clone(&self.partitions),
            partition_request_timeout: self.config.partition_request_timeout,
            idle_timeout: self.config.idle_timeout,
            same_host_link: self.config.same_host_link,
            tls: self.config.tls.clone(),
            traffic: Arc::clone(&self.traffic),
            waits: Arc::<WaitTimes>::clone(&self.waits),
            random: bytes,
            loans: Arc::clone(&self.loans),
            mailbox,
        }
    }

    /// Closes all connections and ends the thread, if there is one.
    pub(super) fn stop(&self) {
        let network = lock(&self.network).take();
        if let Some(mut network) = network {
            network.stop();
        }
    }

    /// Leaves the parent's thread and descriptors alone in a forked child.
    pub(super) fn forget(&mut self) {
        if let Ok(network) = self.network.get_mut() {
            std::mem::forget(network.take());
        }
    }

    /// The connections that the I/O thread would drive, over this link, for a test to drive.
    #[cfg(test)]
    pub(super) fn drive_by_hand<L: headgate_net::simulation::Link>(
        &self,
        link: L,
        address: SocketAddr,
        mailbox: Arc<Mailbox>,
    ) -> headgate_net::simulation::Peers<L> {
        if self.config.same_host_link {
            self.pool.share();
        }
        let peers = headgate_net::simulation::Peers::new(link, self.context(Arc::clone(&mailbox)));
        *lock(&self.network) = Some(Network::by_hand(mailbox, address));
        peers
    }
}
