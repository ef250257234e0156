//! One per process and exchange: pool, partitions, gates, connections and the I/O thread.

#[cfg(test)]
mod by_hand;
mod channels;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use headgate_memory::{ForeignMemory, GlobalPool, process_id};
use headgate_protocol::{HandshakeConfig, Key, PartitionId, VersionRange};

use crate::config::Config;
use crate::copies::Copies;
use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::flusher::OutputFlusher;
use crate::gate::{Debloating, GatePool, InputGate};
use crate::lock::lock;
use crate::manager::PartitionManager;
use crate::net::{Context, Listeners, Loans, Mailbox, Network, Traffic};
use crate::partition::{PartitionOptions, ResultPartition, Shared};
use crate::random::random;
use crate::spanning::SpanningOptions;
use crate::spill::SpillManager;
use crate::spill_dirs::SpillDirectories;
use crate::stats::Stats;

/// The data plane of a process.
pub struct ShuffleEnvironment {
    config: Config,
    owner: u32,
    process: [u8; 16],
    key: Key,
    pool: GlobalPool,
    partitions: Arc<PartitionManager>,
    gates: Arc<Mutex<Vec<Weak<InputGate>>>>,
    network: Mutex<Option<Network>>,
    flusher: OutputFlusher,
    traffic: Arc<Traffic>,
    loans: Arc<Loans>,
    shared: Shared,
    spill_directories: Arc<SpillDirectories>,
    disk: Arc<SpillManager>,
    next_channel: AtomicU32,
    closed: AtomicBool,
    /// Why the I/O thread is no more; set before what uses it is failed.
    broken: Arc<OnceLock<ExchangeError>>,
}

fn fail_gates(gates: &Mutex<Vec<Weak<InputGate>>>, cause: &ExchangeError) {
    let gates: Vec<_> = lock(gates).iter().filter_map(Weak::upgrade).collect();
    for gate in gates {
        gate.fail(cause.clone());
    }
}

impl ShuffleEnvironment {
    /// An environment that holds nothing yet: no memory, no socket, no thread.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn new(config: Config) -> Result<Self> {
        let segments = config.memory / config.segment_size;
        let spill_directories = Arc::new(SpillDirectories::new(config.temp_directories.clone()));
        let key = Key::derive(&config.secret, &config.exchange, config.run, config.epoch);
        Ok(Self {
            owner: process_id(),
            process: random()?,
            key,
            pool: GlobalPool::new(segments, config.segment_size),
            partitions: Arc::default(),
            gates: Arc::default(),
            network: Mutex::default(),
            flusher: OutputFlusher::default(),
            traffic: Arc::default(),
            loans: Arc::default(),
            shared: Shared::default(),
            disk: Arc::new(SpillManager::new(Arc::clone(&spill_directories))),
            spill_directories,
            next_channel: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            broken: Arc::default(),
            config,
        })
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The random name of this process within the exchange.
    pub fn process(&self) -> [u8; 16] {
        self.process
    }

    /// Counts of copies, for readers.
    pub fn copies(&self) -> &Arc<Copies> {
        &self.shared.copies
    }

    /// How readers put together records that span buffers.
    pub fn spanning_options(&self) -> SpanningOptions {
        SpanningOptions {
            max_record_size: self.config.max_record_size,
            spill_threshold: self.config.spill_threshold,
            directories: Arc::clone(&self.spill_directories),
        }
    }

    /// Refuses use in a forked child, where any lock of ours may be held by a thread that the
    /// child does not have.
    ///
    /// # Errors
    /// [`ExchangeError::Forked`].
    pub fn check_fork(&self) -> Result<()> {
        let child = process_id();
        if child == self.owner {
            Ok(())
        } else {
            Err(ExchangeError::Forked { owner: self.owner, child })
        }
    }

    /// Refuses use after close, in a forked child, and without the I/O thread it once had.
    ///
    /// # Errors
    /// [`ExchangeError::Closed`], [`ExchangeError::Forked`] or [`ExchangeError::Internal`].
    pub fn check(&self) -> Result<()> {
        self.check_open()?;
        self.broken.get().cloned().map_or(Ok(()), Err)
    }

    /// Like [`check`](Self::check), for what is to go on without the I/O thread: giving things back.
    ///
    /// # Errors
    /// [`ExchangeError::Closed`] or [`ExchangeError::Forked`].
    pub fn check_open(&self) -> Result<()> {
        self.check_fork()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(ExchangeError::Closed("shuffle environment"));
        }
        Ok(())
    }

    /// The address others connect to; listens from the first call on.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn address(&self) -> Result<SocketAddr> {
        self.check()?;
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
            None => *network = Some(self.start_network(Some(listeners))?),
        }
        Ok(address)
    }

    /// A partition of which the wanted subpartitions are built.
    ///
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`].
    pub fn create_result_partition(
        &self,
        options: &PartitionOptions,
    ) -> Result<Arc<ResultPartition>> {
        self.check()?;
        let id = options.id.map_or_else(|| random().map(PartitionId), Ok)?;
        let (buffers, pool, disk) = (&self.config.buffers, &self.pool, &self.disk);
        let shared = self.shared.clone();
        shared.metrics.timer.begin();
        let partition = ResultPartition::new(id, options, buffers, pool, disk, shared)?;
        fail_point!("partition.registered", error => return Err(error));
        self.partitions.register(&partition)?;
        // Again: what was registered too late for a panic's notice learns of it here.
        self.check()?;
        Ok(partition)
    }

    /// Drops a partition and what it still holds.
    pub fn release_partition(&self, id: PartitionId) {
        if self.check_open().is_ok() {
            self.partitions.release(id);
            self.shared.foreign.release();
        }
    }

    /// A gate without channels.
    ///
    /// # Errors
    /// After close or fork.
    pub fn create_input_gate(&self) -> Result<Arc<InputGate>> {
        self.check()?;
        let pool = GatePool::new(&self.pool, &self.config.buffers)?;
        self.shared.metrics.timer.begin();
        let mut gate = InputGate::new(pool, Arc::clone(&self.shared.metrics));
        if let Some(options) = &self.config.buffer_debloat {
            gate = gate.debloated(Debloating::new(options, self.config.segment_size));
        }
        let gate = Arc::new(gate);
        let mut gates = lock(&self.gates);
        gates.retain(|gate| gate.strong_count() > 0);
        gates.push(Arc::downgrade(&gate));
        drop(gates);
        self.check()?;
        Ok(gate)
    }

    /// Who flushes the writers of this environment by time.
    pub(crate) fn flusher(&self) -> &OutputFlusher {
        &self.flusher
    }

    fn start_network(&self, listeners: Option<Listeners>) -> Result<Network> {
        let (gates, partitions) = (Arc::clone(&self.gates), Arc::clone(&self.partitions));
        let broken = Arc::clone(&self.broken);
        let on_panic = move |cause: ExchangeError| {
            broken.get_or_init(|| cause.clone());
            fail_gates(&gates, &cause);
            partitions.fail_all(&cause);
        };
        Network::start(listeners, |mailbox| self.context(mailbox), on_panic)
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
            partitions: Arc::clone(&self.partitions),
            partition_request_timeout: self.config.partition_request_timeout,
            idle_timeout: self.config.idle_timeout,
            same_host_link: self.config.same_host_link,
            traffic: Arc::clone(&self.traffic),
            copies: Arc::clone(&self.shared.copies),
            loans: Arc::clone(&self.loans),
            mailbox,
        }
    }

    /// Ends every reader and writer of this environment with this cause.
    pub fn abort(&self, cause: &ExchangeError) {
        if self.check_open().is_ok() {
            fail_gates(&self.gates, cause);
            self.partitions.fail_all(cause);
        }
    }

    /// Gives everything back: gates, partitions, connections, the I/O thread, memory. Idempotent;
    /// in a forked child it does nothing at all.
    pub fn close(&self) {
        if self.check_open().is_err() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // First of all, so that nobody takes the end of the gates for the end of the data.
        for partition in self.partitions.all() {
            partition.refuse_waiting();
        }
        self.flusher.stop();
        let gates: Vec<_> = lock(&self.gates).iter().filter_map(Weak::upgrade).collect();
        for gate in gates {
            gate.close();
        }
        self.partitions.close_all();
        let network = lock(&self.network).take();
        if let Some(mut network) = network {
            network.stop();
        }
        self.disk.stop();
        self.pool.close();
        // From here on nobody writes what is still read elsewhere.
        self.loans.clear();
        self.shared.foreign.release();
        self.shared.metrics.timer.end();
    }

    /// Lets go of no memory of others any more, in any environment: the process is about to end.
    pub fn process_ends() {
        ForeignMemory::process_ends();
    }

    /// A snapshot.
    pub fn stats(&self) -> Stats {
        let (bytes_sent, bytes_received) = self.traffic.totals();
        let gates: Vec<_> = lock(&self.gates).iter().filter_map(Weak::upgrade).collect();
        Stats {
            pool: self.pool.stats(),
            bytes_sent,
            bytes_received,
            connections: self.traffic.connections(),
            lent: self.loans.stats(),
            copied_scatter: self.shared.copies.scatter.load(Ordering::Relaxed),
            copied_coalesced: self.shared.copies.coalesced.load(Ordering::Relaxed),
            copied_pool_low: self.shared.copies.pool_low.load(Ordering::Relaxed),
            copied_unmapped: self.shared.copies.unmapped.load(Ordering::Relaxed),
            copied_compacted: self.shared.copies.compacted.load(Ordering::Relaxed),
            copied_joined: self.shared.foreign.joined(),
            copied_spilled: self.shared.copies.spilled.load(Ordering::Relaxed),
            copied_spanning: self.shared.copies.spanning.load(Ordering::Relaxed),
            compressed_in: self.shared.compressed.bytes_in.load(Ordering::Relaxed),
            compressed_out: self.shared.compressed.bytes_out.load(Ordering::Relaxed),
            spilled: self.disk.stats(),
            in_local: self.shared.metrics.in_local.passed(),
            in_remote: self.shared.metrics.in_remote.passed(),
            out: self.shared.metrics.out.passed(),
            times: self.shared.metrics.timer.times(),
            partitions: self.partitions.all().iter().map(|partition| partition.stats()).collect(),
            gates: gates.iter().map(|gate| gate.stats()).collect(),
        }
    }
}

impl Drop for ShuffleEnvironment {
    fn drop(&mut self) {
        if self.owner == process_id() {
            self.close();
            return;
        }
        // The child has no such threads: nothing to join, and the descriptors are the parent's.
        self.flusher.forget();
        if let Ok(network) = self.network.get_mut() {
            std::mem::forget(network.take());
            self.disk.forget();
        }
    }
}
