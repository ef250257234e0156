//! `ShuffleEnvironment`: one per process and exchange.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headgate_memory::{ForeignMemory, GlobalPool, Process};
use headgate_protocol::PartitionId;

use super::channels::Channels;
use super::gates::Gates;
use super::network::LazyNetwork;
use crate::address::Address;
use crate::config::Config;
use crate::copies::Copies;
use crate::error::{ExchangeError, Result};
use crate::flusher::OutputFlusher;
use crate::gate::{Debloating, GatePool, InputGate, Place};
use crate::kept::{Damages, KeptFile, ServedPartition};
use crate::manager::PartitionManager;
use crate::partition::{PartitionOptions, ResultPartition, Shared};
use crate::random::random;
use crate::spanning::SpanningOptions;
use crate::spill::SpillManager;
use crate::spill_dirs::SpillDirectories;
use crate::stats::{Stats, Waits};

/// The data plane of a process.
pub struct ShuffleEnvironment {
    config: Arc<Config>,
    /// The process that created it; a forked child has no threads of ours.
    owner: Process,
    pool: GlobalPool,
    partitions: Arc<PartitionManager>,
    /// Of the partitions that are served from files.
    damages: Damages,
    gates: Arc<Gates>,
    network: LazyNetwork,
    channels: Channels,
    flusher: OutputFlusher,
    shared: Shared,
    spill_directories: Arc<SpillDirectories>,
    disk: Arc<SpillManager>,
    closed: AtomicBool,
}

impl ShuffleEnvironment {
    /// Creates an environment that holds nothing yet: no memory, no socket, no thread.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn new(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let spill_directories = Arc::new(SpillDirectories::new(config.temp_directories.clone()));
        let pool = GlobalPool::new(config.memory / config.segment_size, config.segment_size);
        let partitions = Arc::<PartitionManager>::default();
        let gates = Arc::<Gates>::default();
        let shared = Shared::default();
        let network = LazyNetwork::new(
            Arc::clone(&config),
            config.process.map_or_else(random, Ok)?,
            pool.clone(),
            Arc::clone(&partitions),
            Arc::clone(&gates),
            Arc::clone(&shared.metrics.waits),
        );
        let waits = Arc::clone(&shared.metrics.waits);
        Ok(Self {
            owner: Process::current(),
            channels: Channels::new(Arc::clone(&config), Arc::clone(&partitions)),
            pool,
            partitions,
            damages: Damages::default(),
            gates,
            network,
            flusher: OutputFlusher::default(),
            shared,
            disk: Arc::new(SpillManager::new(Arc::clone(&spill_directories), waits)),
            spill_directories,
            closed: AtomicBool::new(false),
            config,
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the random name of this process within the exchange.
    pub fn process(&self) -> [u8; 16] {
        self.network.process()
    }

    /// Returns the counters of copies, for readers.
    pub fn copies(&self) -> &Arc<Copies> {
        &self.shared.copies
    }

    /// Returns the options for readers of records that span buffers.
    pub fn spanning_options(&self) -> SpanningOptions {
        SpanningOptions {
            max_record_size: self.config.max_record_size,
            spill_threshold: self.config.spill_threshold,
            directories: Arc::clone(&self.spill_directories),
        }
    }

    /// Refuses use in a forked child. There any lock may be held by a thread that only the parent
    /// has.
    ///
    /// # Errors
    /// [`ExchangeError::Forked`].
    pub fn check_fork(&self) -> Result<()> {
        let child = Process::current();
        if child == self.owner {
            Ok(())
        } else {
            Err(ExchangeError::Forked { owner: self.owner.id(), child: child.id() })
        }
    }

    /// Refuses use after close, in a forked child, and after a panic of the I/O thread.
    ///
    /// # Errors
    /// [`ExchangeError::Closed`], [`ExchangeError::Forked`] or [`ExchangeError::Internal`].
    pub fn check(&self) -> Result<()> {
        self.check_open()?;
        self.network.check()
    }

    /// Like [`check`](Self::check), for calls that release something: they need no I/O thread.
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

    /// Returns the address others connect to. Listens from the first call on.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn address(&self) -> Result<SocketAddr> {
        self.check()?;
        self.network.address()
    }

    /// Creates a partition. Only the wanted subpartitions are built.
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
        fail_point!("partition.registered", text => return Err(ExchangeError::Aborted(text)));
        self.partitions.register(&partition)?;
        // Again: a panic of the I/O thread fails only the partitions that are registered by then.
        self.check()?;
        Ok(partition)
    }

    /// Serves a partition that another process kept, from its files.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if a partition of this id is or was here.
    pub fn serve(&self, id: PartitionId, file: KeptFile) -> Result<()> {
        self.check()?;
        let served = ServedPartition::new(file, self.damages.of(id));
        self.partitions.serve(id, Arc::new(served))
    }

    /// Returns each served partition whose files were found damaged since the last call: its consumers got an error.
    pub fn take_damaged(&self) -> Vec<PartitionId> {
        self.damages.take()
    }

    /// Serves a kept partition no more. Consumers that read it go on. False if it is not served.
    pub fn withdraw(&self, id: PartitionId) -> bool {
        self.check_open().is_ok() && self.partitions.withdraw(id)
    }

    /// Drops a partition and the buffers it still holds.
    pub fn release_partition(&self, id: PartitionId) {
        if self.check_open().is_ok() {
            self.partitions.release(id);
            self.shared.foreign.release();
        }
    }

    /// Creates a gate without channels.
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
        self.gates.add(&gate);
        self.check()?;
        Ok(gate)
    }

    /// The thread that flushes writers by time.
    pub(crate) fn flusher(&self) -> &OutputFlusher {
        &self.flusher
    }

    /// Adds a channel that reads the subpartition at `address`; a reader that waits at the gate
    /// sees its data. A `schema_hash` of zeros accepts any schema. Returns its index in the gate.
    ///
    /// # Errors
    /// An address that does not resolve, a pool without room for another channel, a local partition
    /// that was released. A partition that does not exist yet is waited for; if it does not appear
    /// in time, that is an error of the reader.
    pub fn add_channel(
        &self,
        gate: &InputGate,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<usize> {
        self.check()?;
        let index = self.channels.place(&self.network, gate, Place::New, address, schema_hash)?;
        Ok(index.expect("only a channel that exists already is left as it is"))
    }

    /// Adds a channel that reads a kept subpartition, from the file or from the bytes behind its
    /// index. Returns its index in the gate.
    ///
    /// # Errors
    /// The bytes are no index, or the gate is closed or sealed. What is wrong with the file is an
    /// error of the reader.
    pub fn add_kept_channel(
        &self,
        gate: &InputGate,
        kept: &[u8],
        file: Option<PathBuf>,
    ) -> Result<usize> {
        self.check()?;
        Channels::place_kept(gate, kept, file)
    }

    /// Makes an unknown channel read the subpartition at `address`. Returns false, and does
    /// nothing, if the channel is known already or the gate is closed.
    ///
    /// # Errors
    /// As of [`add_channel`](Self::add_channel); the channel stays unknown then. No such channel.
    pub fn update_channel(
        &self,
        gate: &InputGate,
        channel: usize,
        address: &Address,
        schema_hash: [u8; 32],
    ) -> Result<bool> {
        if !gate.is_unknown(channel)? {
            return Ok(false);
        }
        self.check()?;
        let place = Place::Unknown(channel);
        let index = self.channels.place(&self.network, gate, place, address, schema_hash)?;
        Ok(index.is_some())
    }

    /// Ends every reader and writer of this environment with this cause.
    pub fn abort(&self, cause: &ExchangeError) {
        if self.check_open().is_ok() {
            self.gates.fail_all(cause);
            self.partitions.fail_all(cause);
        }
    }

    /// Closes gates, partitions, connections and threads, and frees the memory. Idempotent. Does
    /// nothing in a forked child.
    pub fn close(&self) {
        if self.check_open().is_err() || self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // First of all, so that no writer takes the end of the gates for consumed data.
        for partition in self.partitions.all() {
            partition.refuse_waiting();
        }
        self.flusher.stop();
        for gate in self.gates.all() {
            gate.close();
        }
        self.partitions.close_all();
        self.network.stop();
        self.disk.stop();
        self.pool.close();
        // The pool is closed: nobody writes to segments that other processes still read.
        self.network.loans().clear();
        self.shared.foreign.release();
        self.shared.metrics.timer.end();
    }

    /// Frees the memory of batches that were sent as slices of it and are not needed any more. That
    /// may run the owner's code, which may use this environment: the caller must hold no lock.
    pub fn release_foreign(&self) {
        self.shared.foreign.release();
    }

    /// Stops releasing foreign memory, in all environments: the process is about to end.
    pub fn process_ends() {
        ForeignMemory::process_ends();
    }

    /// Returns the times of waits so far. The cost does not depend on the number of channels.
    pub fn waits(&self) -> Waits {
        self.shared.metrics.waits.totals()
    }

    /// Returns a snapshot of the statistics.
    pub fn stats(&self) -> Stats {
        let traffic = self.network.traffic();
        let (bytes_sent, bytes_received) = traffic.totals();
        Stats {
            pool: self.pool.stats(),
            bytes_sent,
            bytes_received,
            connections: traffic.connections(),
            lent: self.network.loans().stats(),
            copied_scatter: self.shared.copies.scatter.load(Ordering::Relaxed),
            copied_coalesced: self.shared.copies.coalesced.load(Ordering::Relaxed),
            copied_pool_low: self.shared.copies.pool_low.load(Ordering::Relaxed),
            copied_unmapped: traffic.copied_unmapped(),
            copied_compacted: self.shared.copies.compacted.load(Ordering::Relaxed),
            copied_joined: self.shared.foreign.joined(),
            copied_spilled: self.shared.copies.spilled.load(Ordering::Relaxed),
            copied_spanning: self.shared.copies.spanning.load(Ordering::Relaxed),
            compressed_in: self.shared.compressed.bytes_in.load(Ordering::Relaxed),
            compressed_out: self.shared.compressed.bytes_out.load(Ordering::Relaxed),
            spilled: self.disk.stats(),
            in_local: self.shared.metrics.in_local(),
            in_remote: self.shared.metrics.in_remote(),
            out: self.shared.metrics.out(),
            times: self.shared.metrics.timer.times(),
            partitions: self.partitions.all().iter().map(|partition| partition.stats()).collect(),
            gates: self.gates.all().iter().map(|gate| gate.stats()).collect(),
        }
    }
}

/// Lets tests choose what an environment decides by itself: the order of everything, and the time.
#[cfg(test)]
impl ShuffleEnvironment {
    /// The connections that the I/O thread would drive, over this link.
    pub(crate) fn drive_by_hand<L: headgate_net::simulation::Link>(
        &self,
        link: L,
        address: SocketAddr,
        mailbox: Arc<headgate_net::Mailbox>,
    ) -> headgate_net::simulation::Peers<L> {
        self.network.drive_by_hand(link, address, mailbox)
    }

    /// A gate whose debloating uses this clock.
    pub(crate) fn create_debloated_gate(
        &self,
        options: &crate::config::BufferDebloatOptions,
        clock: impl Fn() -> std::time::Duration + Send + Sync + 'static,
    ) -> Result<Arc<InputGate>> {
        let pool = GatePool::new(&self.pool, &self.config.buffers)?;
        let gate = InputGate::new(pool, Arc::clone(&self.shared.metrics));
        let debloating = Debloating::with_clock(options, self.config.segment_size, Box::new(clock));
        Ok(Arc::new(gate.debloated(debloating)))
    }
}

impl Drop for ShuffleEnvironment {
    fn drop(&mut self) {
        if self.owner == Process::current() {
            self.close();
            return;
        }
        // The child has no such threads to join, and the descriptors belong to the parent.
        self.flusher.forget();
        self.network.forget();
        self.disk.forget();
    }
}
