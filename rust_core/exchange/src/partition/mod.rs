//! A producer's output: one subpartition per consumer, one pool of segments (spec 4.4, 4.5).

mod collector;
mod compression;
mod options;
mod pipelined_view;
mod progress;
mod segments;
mod shared;
mod stored;
mod task_events;
mod upstream;
mod usage;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use headgate_memory::{GlobalPool, LocalPool, LocalPoolOptions};
use headgate_protocol::PartitionId;

use crate::config::BufferOptions;
use crate::copies::Copies;
use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::lock::lock;
use crate::metrics::{Activity, TaskIoMetrics, Timer};
use crate::spill::{SpillManager, Store, StoredView};
use crate::subpartition::Subpartition;
use crate::view::{DataListener, SubpartitionView};

use compression::Compression;
use pipelined_view::PipelinedView;
use progress::{Loss, Progress};

pub(crate) use compression::CompressionCounters;
pub use options::{PartitionKind, PartitionOptions};
pub(crate) use shared::Shared;
pub use task_events::TaskEvent;
use task_events::TaskEvents;

/// N subpartitions that one writer fills.
pub struct ResultPartition {
    id: PartitionId,
    kind: PartitionKind,
    subpartitions: Vec<Arc<Subpartition>>,
    pool: LocalPool,
    /// What is on disk; none if nothing ever goes there.
    store: Option<Arc<Store>>,
    /// As in [`PartitionOptions`].
    lost_consumer_timeout: Duration,
    compression: Option<Compression>,
    segment_size: usize,
    /// Set by the writer that knows the schema; consumers must expect the same.
    schema_hash: OnceLock<[u8; 32]>,
    shared: Shared,
    /// Of its writer alone.
    timer: Timer,
    progress: Mutex<Progress>,
    changed: Condvar,
    task_events: TaskEvents,
}

impl ResultPartition {
    /// A partition with nothing in it.
    ///
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`] when there is not one segment per subpartition and one more,
    /// and another one to read with where data goes to disk.
    pub(crate) fn new(
        id: PartitionId,
        options: &PartitionOptions,
        buffers: &BufferOptions,
        global: &GlobalPool,
        disk: &Arc<SpillManager>,
        shared: Shared,
    ) -> Result<Arc<Self>> {
        let PartitionOptions { wanted, lost_consumer_timeout, kind, max_spill_size, .. } = options;
        let task_events = TaskEvents::default();
        for name in &options.task_events {
            task_events.subscribe(name);
        }
        let built = wanted.iter().filter(|wanted| **wanted).count();
        let min = built + 1;
        // Beside the page being written, for both.
        let bounded = built * (buffers.buffers_per_channel + 1) + buffers.floating_buffers_per_gate;
        let (max, max_overdraft, max_buffers_per_channel) = match kind {
            PartitionKind::Pipelined => (usize::MAX, 0, usize::MAX),
            PartitionKind::PipelinedBounded => {
                (bounded, buffers.max_overdraft_buffers, buffers.max_buffers_per_channel + 1)
            }
            // What is too much goes to disk.
            PartitionKind::Blocking | PartitionKind::Hybrid => (bounded, 0, usize::MAX),
        };
        let pool = LocalPoolOptions {
            max_overdraft,
            num_subpartitions: wanted.len(),
            max_buffers_per_channel,
            ..LocalPoolOptions::new(min, max)
        };
        let pool = global.create_local_pool_with(&pool).map_err(|source| {
            let (what, segment_size) = ("a result partition", global.segment_size());
            ExchangeError::PoolTooSmall { what, needed: min, segment_size, source }
        })?;
        let subpartitions: Vec<_> = wanted.iter().map(|_| Arc::<Subpartition>::default()).collect();
        for (subpartition, wanted) in subpartitions.iter().zip(wanted) {
            if !wanted {
                subpartition.release();
            }
        }
        let closed: Vec<bool> = wanted.iter().map(|wanted| !wanted).collect();
        let acknowledged = closed.clone();
        let progress = Progress { open: built, closed, acknowledged, ..Progress::default() };
        let store = if kind.is_stored() {
            let disk = Arc::clone(disk);
            let store = Store::new(id, *kind, *max_spill_size, &subpartitions, global, disk)?;
            Some(Arc::new(store))
        } else {
            None
        };
        let partition = Arc::new(Self {
            id,
            kind: *kind,
            subpartitions,
            pool,
            store,
            lost_consumer_timeout: *lost_consumer_timeout,
            compression: options
                .compression
                .map(|codec| Compression::new(codec, &shared.compressed)),
            segment_size: global.segment_size(),
            schema_hash: OnceLock::new(),
            shared,
            timer: Timer::default(),
            progress: Mutex::new(progress),
            changed: Condvar::new(),
            task_events,
        });
        partition.timer.begin();
        if partition.kind == PartitionKind::Blocking {
            partition.collect_all(wanted)?;
        }
        Ok(partition)
    }

    /// The name consumers ask for.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// When it is read, and where its data waits.
    pub fn kind(&self) -> PartitionKind {
        self.kind
    }

    /// How many consumers it is cut for, built or not.
    pub fn num_subpartitions(&self) -> usize {
        self.subpartitions.len()
    }

    /// Attaches a reader to a subpartition; the listener is told when it should look again.
    ///
    /// # Errors
    /// No such subpartition, one that has its reader, was released or is not built, or the failure
    /// of the partition.
    pub(crate) fn create_view(
        self: &Arc<Self>,
        index: usize,
        listener: Arc<dyn DataListener>,
    ) -> Result<Arc<dyn SubpartitionView>> {
        let count = self.num_subpartitions();
        let subpartition =
            self.subpartitions.get(index).ok_or_else(|| ExchangeError::PartitionNotFound {
                peer: "this process".to_owned(),
                detail: format!("subpartition {index} of {count} does not exist"),
            })?;
        let this = Arc::clone(self);
        let Some(store) = &self.store else {
            subpartition.attach(listener)?;
            return Ok(Arc::new(PipelinedView::new(this, index)));
        };
        if self.kind == PartitionKind::Blocking {
            self.check_readable(index)?;
        } else {
            subpartition.attach(Arc::clone(&listener))?;
        }
        Ok(StoredView::new(this, Arc::clone(store), index, listener)?)
    }

    pub(crate) fn subpartitions(&self) -> &[Arc<Subpartition>] {
        &self.subpartitions
    }

    /// Fixes the schema's hash; false when another one was fixed before.
    pub(crate) fn fix_schema(&self, hash: [u8; 32]) -> bool {
        *self.schema_hash.get_or_init(|| hash) == hash
    }

    pub(crate) fn schema_hash(&self) -> Option<[u8; 32]> {
        self.schema_hash.get().copied()
    }

    /// The failure, if there is one.
    ///
    /// # Errors
    /// That failure, or a loss that nobody explained in time.
    pub fn check(&self) -> Result<()> {
        let progress = self.lock();
        let (failure, overdue) = (progress.failure.clone(), self.overdue(&progress));
        drop(progress);
        if let (None, Some(cause)) = (&failure, &overdue) {
            self.fail(cause);
        }
        failure.or(overdue).map_or(Ok(()), Err)
    }

    fn overdue(&self, progress: &Progress) -> Option<ExchangeError> {
        progress.overdue(self.lost_consumer_timeout)
    }

    /// Whether no consumer wants anything any more; of a blocking one, whether none will get anything.
    pub fn is_released(&self) -> bool {
        match self.kind {
            PartitionKind::Blocking => self.subpartitions.iter().all(|one| one.is_released()),
            _ => self.lock().open == 0,
        }
    }

    /// The consumer of one subpartition has everything; of a blocking one, others may still come.
    pub(crate) fn consumed(&self, index: usize) {
        if self.kind != PartitionKind::Blocking {
            self.subpartitions[index].consumed();
            self.drop_stored(index);
        }
        self.close_one(index);
    }

    /// Nobody will ever read this subpartition: its rows are dropped from now on.
    pub fn release_subpartition(&self, index: usize) {
        self.subpartitions[index].release();
        self.drop_stored(index);
        self.close_one(index);
    }

    /// The process that read this subpartition is gone.
    pub(crate) fn consumer_lost(&self, index: usize, cause: &ExchangeError) {
        if self.kind == PartitionKind::Blocking {
            // Everything is still there for the next one.
            return;
        }
        let mut progress = self.lock();
        if progress.closed[index] {
            return;
        }
        progress.lost.push(Loss { index, since: Instant::now(), cause: cause.clone() });
        drop(progress);
        if self.lost_consumer_timeout.is_zero() {
            self.fail(cause);
        }
    }

    /// Fails writer and readers with this cause, unless they failed before.
    pub fn fail(&self, cause: &ExchangeError) {
        let mut progress = self.lock();
        progress.failure.get_or_insert_with(|| cause.clone());
        drop(progress);
        for subpartition in &self.subpartitions {
            subpartition.fail(cause);
        }
        if let Some(store) = &self.store {
            store.fail(cause);
        }
        self.changed.notify_all();
    }

    pub(crate) fn metrics(&self) -> &TaskIoMetrics {
        &self.shared.metrics
    }

    /// Waits until every subpartition is taken to its end or released; false on timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_consumed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        let consumed = self.await_consumed(timeout, interrupt);
        self.shared.foreign.release();
        consumed
    }

    fn await_consumed(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<bool> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        // The task's, not the writer's, which has nothing more to write.
        let _wait = self.shared.metrics.timer.wait(Activity::SoftBackPressured);
        let mut progress = self.lock();
        loop {
            if let Some(failure) = &progress.failure {
                return Err(failure.clone());
            }
            if let Some(cause) = self.overdue(&progress) {
                drop(progress);
                self.fail(&cause);
                return Err(cause);
            }
            if progress.open == 0 {
                return Ok(true);
            }
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            if left.is_zero() {
                return Ok(false);
            }
            progress =
                self.changed.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
            if progress.open > 0 && progress.failure.is_none() {
                drop(progress);
                self.shared.foreign.release();
                interrupt()?;
                progress = self.lock();
            }
        }
    }

    pub(crate) fn segment_size(&self) -> usize {
        self.segment_size
    }

    pub(crate) fn copies(&self) -> &Copies {
        &self.shared.copies
    }

    /// Ends every wait for the consumers: they will not have everything.
    pub(crate) fn refuse_waiting(&self) {
        let mut progress = self.lock();
        if progress.open > 0 {
            progress.failure.get_or_insert(ExchangeError::Closed("result partition"));
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Drops what is queued and gives the segments back; what is being read of a blocking one stays
    /// until its last reader is done.
    pub(crate) fn close(&self) {
        fail_point!("partition.released");
        self.refuse_waiting();
        for (index, subpartition) in self.subpartitions.iter().enumerate() {
            subpartition.close();
            self.close_one(index);
        }
        if let Some(store) = &self.store {
            store.close();
        }
        self.pool.close();
    }

    fn close_one(&self, index: usize) {
        let mut progress = self.lock();
        if !std::mem::replace(&mut progress.closed[index], true) {
            progress.open -= 1;
        }
        drop(progress);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}
