//! `ResultPartition`: one subpartition per consumer, filled by one writer (spec 4.4, 4.5).

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use headgate_memory::GlobalPool;
use headgate_protocol::PartitionId;

use super::compression::BufferFinisher;
use super::open_buffers::OpenBuffers;
use super::options::{PartitionKind, PartitionOptions};
use super::output::Output;
use super::segments::Segments;
use super::shared::Shared;
use super::task_events::TaskEvents;
use crate::config::BufferOptions;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::gate::AvailabilityListener;
use crate::spill::{KeptPartition, SpillManager};
use crate::stats::PartitionStats;
use crate::subpartition::Subpartition;
use crate::view::{DataListener, ReadablePartition, SubpartitionView, ViewedPartition};

/// N subpartitions that one writer fills.
pub struct ResultPartition {
    output: Arc<Output>,
    segments: Segments,
    buffers: BufferFinisher,
    /// Set by the writer that knows the schema; consumers must expect the same.
    schema_hash: OnceLock<[u8; 32]>,
    shared: Shared,
}

impl ResultPartition {
    /// Creates an empty partition.
    ///
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`] when there is not one segment per subpartition and one more.
    /// A kind whose data goes to disk needs another one, to read it back.
    pub(crate) fn new(
        id: PartitionId,
        options: &PartitionOptions,
        buffers: &BufferOptions,
        global: &GlobalPool,
        disk: &Arc<SpillManager>,
        shared: Shared,
    ) -> Result<Arc<Self>> {
        let pool = Segments::create_pool(options, buffers, global)?;
        let output = Output::new(id, options, global, disk, shared.clone())?;
        let segment_size = global.segment_size();
        Ok(Arc::new(Self {
            segments: Segments::new(pool, segment_size, Arc::clone(&output), shared.clone()),
            buffers: BufferFinisher::new(options.compression, Arc::clone(&output), &shared),
            output,
            schema_hash: OnceLock::new(),
            shared,
        }))
    }

    /// Returns the id that consumers request.
    pub fn id(&self) -> PartitionId {
        self.output.id()
    }

    /// Returns its kind: when it is read, and where its data waits.
    pub fn kind(&self) -> PartitionKind {
        self.output.kind()
    }

    /// Number of subpartitions, built or not.
    pub fn num_subpartitions(&self) -> usize {
        self.output.subpartitions().len()
    }

    pub(crate) fn subpartitions(&self) -> &[Arc<Subpartition>] {
        self.output.subpartitions()
    }

    /// Fixes the schema's hash; false when another one was fixed before.
    pub(crate) fn fix_schema(&self, hash: [u8; 32]) -> bool {
        *self.schema_hash.get_or_init(|| hash) == hash
    }

    /// Adds buffers that a writer fills, to be dropped when the partition fails or is closed.
    pub(crate) fn add_open_buffers(&self, open: Weak<dyn OpenBuffers>) {
        self.output.add_open_buffers(open);
    }

    /// The error of a writer whose open buffers were dropped.
    pub(crate) fn ended(&self) -> ExchangeError {
        self.check().err().unwrap_or(ExchangeError::Closed("result partition"))
    }

    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Turns full segments into the buffers that consumers get.
    pub(crate) fn buffers(&self) -> &BufferFinisher {
        &self.buffers
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Events from the consumers to the task that writes.
    pub fn task_events(&self) -> &TaskEvents {
        self.output.task_events()
    }

    /// Returns the failure, if there is one.
    ///
    /// # Errors
    /// That failure, or the loss of a consumer that nobody explained in time.
    pub fn check(&self) -> Result<()> {
        self.output.check()
    }

    /// Fails writer and readers with this cause, unless they failed before.
    pub fn fail(&self, cause: &ExchangeError) {
        self.output.fail(cause);
    }

    /// True once no consumer wants anything more; of a blocking partition, once none can read it.
    pub fn is_released(&self) -> bool {
        self.output.is_released()
    }

    /// Releases a subpartition that nobody will ever read: its rows are dropped from now on.
    pub fn release_subpartition(&self, index: usize) {
        self.output.release(index);
    }

    /// Lets a record begin while any subpartition is below its limit of queued buffers: its writer
    /// chooses by their [loads](Self::loads).
    pub(crate) fn balance_loads(&self) {
        self.segments.need_one_subpartition();
    }

    /// Returns the load of each subpartition: the buffers that are written, queued, or, as far as its
    /// credit shows, with its consumer and not read. One that nobody will read has the largest.
    pub fn loads(&self) -> Vec<usize> {
        let held = self.segments.held_by_subpartitions().into_iter();
        let loads = held.zip(self.subpartitions()).map(|(held, subpartition)| {
            if subpartition.is_released() { usize::MAX } else { held + subpartition.unread() }
        });
        loads.collect()
    }

    /// True if a record can be begun without waiting, see [`Segments::is_available`].
    pub fn is_available(&self) -> bool {
        self.segments.is_available()
    }

    /// Waits until the partition [is available](Self::is_available), or [`wake_up`](Self::wake_up) is
    /// called; false then, and on timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_available(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.segments.wait_available(timeout, interrupt)
    }

    /// Waits until the partition [is available](Self::is_available).
    ///
    /// # Errors
    /// As [`wait_available`](Self::wait_available).
    pub(crate) fn wait_for_room(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.segments.wait_for_room(interrupt)
    }

    /// Ends a wait of [`wait_available`](Self::wait_available), or the next one, at once. Any thread may
    /// call it.
    pub fn wake_up(&self) {
        self.segments.wake_up();
    }

    /// Time that the writer has waited for segments, in ns, a current wait included.
    pub fn back_pressured_ns(&self) -> u64 {
        self.segments.back_pressured_ns()
    }

    /// Waits until every subpartition is consumed or released; false on timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_consumed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.output.wait_consumed(timeout, interrupt)
    }

    /// Waits until every consumer acknowledged its records, or wants nothing more; false on
    /// timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_all_data_processed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.output.wait_all_data_processed(timeout, interrupt)
    }

    /// Ends every subpartition; a blocking partition can be read from now on.
    ///
    /// # Errors
    /// A disk that cannot be written; the partition has failed then.
    pub(crate) fn finish(&self) -> Result<()> {
        self.output.finish()?;
        if self.kind().is_stored() {
            self.segments.give_up_minimum();
        }
        Ok(())
    }

    /// Returns the indexes and the file of a finished blocking partition, for consumers that come
    /// once this process has ended.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if it is of another kind, or not finished.
    pub fn keep(&self) -> Result<KeptPartition> {
        self.output.keep()
    }

    /// Ends every wait for consumers that will not get everything.
    pub(crate) fn refuse_waiting(&self) {
        self.output.refuse_waiting();
    }

    /// Drops what is queued and returns the segments. What is being read of a blocking partition
    /// stays until its last reader is done.
    pub(crate) fn close(&self) {
        fail_point!("partition.released");
        self.output.close();
        self.segments.close();
    }

    /// Like [`close`](Self::close), and ends the readers of a blocking partition too.
    pub(crate) fn shut_down(&self) {
        self.close();
        self.output.shut_down();
    }

    pub(crate) fn stats(&self) -> PartitionStats {
        PartitionStats {
            id: self.id(),
            pool: self.segments.usage(),
            times: self.segments.times(),
            subpartitions: self.subpartitions().iter().map(|one| one.stats()).collect(),
        }
    }
}

/// A listener of the input of the task that writes: priority events, such as unaligned barriers, end its
/// wait for room.
impl AvailabilityListener for ResultPartition {
    fn data_available(&self) {}

    fn priority_available(&self) {
        self.wake_up();
    }
}

impl ReadablePartition for ResultPartition {
    fn schema_hash(&self) -> Option<[u8; 32]> {
        self.schema_hash.get().copied()
    }

    fn create_view(
        &self,
        index: usize,
        listener: Arc<dyn DataListener>,
    ) -> Result<Arc<dyn SubpartitionView>> {
        self.output.create_view(index, listener)
    }
}
