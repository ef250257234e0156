//! The subpartitions of a partition, their buffers on disk, and the progress of their consumers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use headgate_memory::GlobalPool;
use headgate_protocol::PartitionId;

use super::consumers::{Consumers, Failure, Progress};
use super::open_buffers::{AllOpenBuffers, OpenBuffers};
use super::options::{PartitionKind, PartitionOptions};
use super::pipelined_view::PipelinedView;
use super::shared::Shared;
use super::task_events::TaskEvents;
use crate::error::{ExchangeError, Interrupt, Result};
use crate::metrics::Activity;
use crate::spill::{KeptPartition, SpillManager, Store, StoredView};
use crate::subpartition::Subpartition;
use crate::view::{DataListener, SubpartitionView, ViewedPartition};

fn not_found(detail: String) -> ExchangeError {
    ExchangeError::PartitionNotFound { peer: "this process".to_owned(), detail }
}

/// The half of a partition that consumers read; `Segments` is the writer's half. It fails, is
/// released and is closed as a whole.
pub(super) struct Output {
    id: PartitionId,
    kind: PartitionKind,
    subpartitions: Vec<Arc<Subpartition>>,
    /// Buffers that wait on disk; none for a kind that keeps all of them in memory.
    store: Option<Arc<Store>>,
    consumers: Consumers,
    /// Subpartitions that no reader in another process is attached to.
    unread: AtomicUsize,
    open_buffers: AllOpenBuffers,
    task_events: TaskEvents,
    shared: Shared,
}

impl Output {
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`] if no segment is left to read data from disk into.
    pub(super) fn new(
        id: PartitionId,
        options: &PartitionOptions,
        global: &GlobalPool,
        disk: &Arc<SpillManager>,
        shared: Shared,
    ) -> Result<Arc<Self>> {
        let PartitionOptions { wanted, lost_consumer_timeout, kind, max_spill_size, .. } = options;
        let subpartitions: Vec<_> = wanted.iter().map(|_| Arc::<Subpartition>::default()).collect();
        for (subpartition, _) in subpartitions.iter().zip(wanted).filter(|(_, wanted)| !**wanted) {
            subpartition.release();
        }
        let is_blocking = *kind == PartitionKind::Blocking;
        let store = if kind.is_stored() {
            let disk = Arc::clone(disk);
            let store = Store::new(id, is_blocking, *max_spill_size, &subpartitions, global, disk)?;
            Some(Arc::new(store))
        } else {
            None
        };
        if let Some(store) = store.as_ref().filter(|_| is_blocking) {
            store.collect_from(wanted)?;
        }
        Ok(Arc::new(Self {
            id,
            kind: *kind,
            subpartitions,
            store,
            unread: AtomicUsize::new(wanted.iter().filter(|wanted| **wanted).count()),
            consumers: Consumers::new(wanted, *lost_consumer_timeout),
            open_buffers: AllOpenBuffers::default(),
            task_events: TaskEvents::taking(&options.task_events),
            shared,
        }))
    }

    pub(super) fn id(&self) -> PartitionId {
        self.id
    }

    pub(super) fn kind(&self) -> PartitionKind {
        self.kind
    }

    pub(super) fn subpartitions(&self) -> &[Arc<Subpartition>] {
        &self.subpartitions
    }

    pub(super) fn task_events(&self) -> &TaskEvents {
        &self.task_events
    }

    /// Adds buffers that a writer fills, to be dropped when the partition fails or is closed.
    pub(super) fn add_open_buffers(&self, open: Weak<dyn OpenBuffers>) {
        self.open_buffers.add(open);
    }

    /// Attaches a reader to a subpartition.
    ///
    /// # Errors
    /// The subpartition does not exist, has a reader already, was released or is not built; or the
    /// failure of the partition.
    pub(super) fn create_view(
        self: &Arc<Self>,
        index: usize,
        listener: Arc<dyn DataListener>,
    ) -> Result<Arc<dyn SubpartitionView>> {
        let count = self.subpartitions.len();
        let subpartition = self
            .subpartitions
            .get(index)
            .ok_or_else(|| not_found(format!("subpartition {index} of {count} does not exist")))?;
        let this: Arc<dyn ViewedPartition> = Arc::<Self>::clone(self);
        let Some(store) = &self.store else {
            let is_local = listener.is_local();
            subpartition.attach(listener)?;
            if !is_local {
                self.unread.fetch_sub(1, Ordering::Relaxed);
            }
            return Ok(Arc::new(PipelinedView::new(this, Arc::clone(subpartition), index)));
        };
        if self.kind == PartitionKind::Blocking {
            self.check_readable(index)?;
        } else {
            subpartition.attach(Arc::clone(&listener))?;
        }
        Ok(StoredView::new(this, Arc::clone(store), index, listener)?)
    }

    /// True once each subpartition has a reader in another process, all of whose data is in memory.
    pub(super) fn is_read_remotely(&self) -> bool {
        self.unread.load(Ordering::Relaxed) == 0
    }

    /// Refuses readers of a blocking subpartition that is not complete.
    fn check_readable(&self, index: usize) -> Result<()> {
        self.check()?;
        let why = if self.subpartitions[index].is_released() {
            "is not built, or was released"
        } else if !self.store.as_ref().is_some_and(|store| store.is_complete()) {
            "cannot be read before its writer has finished: it is a blocking one"
        } else {
            return Ok(());
        };
        Err(not_found(format!("subpartition {index} of partition {} {why}", self.id)))
    }

    /// # Errors
    /// The failure of the partition, or the loss of a consumer whose timeout has passed.
    pub(super) fn check(&self) -> Result<()> {
        self.consumers.check().map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> ExchangeError {
        match failure {
            Failure::Known(cause) => cause,
            Failure::Overdue(cause) => {
                self.fail(&cause);
                cause
            }
        }
    }

    /// True once no consumer needs further data. For a blocking partition: once no subpartition can
    /// be read any more.
    pub(super) fn is_released(&self) -> bool {
        match self.kind {
            PartitionKind::Blocking => self.subpartitions.iter().all(|one| one.is_released()),
            _ => self.consumers.are_done(),
        }
    }

    /// Drops the buffers that are queued for a subpartition, and all that are added to it later.
    pub(super) fn release(&self, index: usize) {
        self.subpartitions[index].release();
        self.drop_stored(index);
        self.consumers.close(index);
    }

    fn drop_stored(&self, index: usize) {
        if let Some(store) = &self.store {
            store.release(index);
        }
    }

    /// Waits until every subpartition is consumed or released; false on timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(super) fn wait_consumed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        let consumed = self.wait_until(Progress::is_consumed, timeout, interrupt);
        self.shared.foreign.release();
        consumed
    }

    /// Waits until every consumer acknowledged its records, or needs no further data; false on
    /// timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(super) fn wait_all_data_processed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.wait_until(Progress::is_processed, timeout, interrupt)
    }

    fn wait_until(
        &self,
        done: impl Fn(&Progress) -> bool,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        // The task waits, and not its writer, which has written all of its records.
        let _wait = self.shared.metrics.timer.wait(Activity::SoftBackPressured);
        let pause = || {
            self.shared.foreign.release();
            interrupt.check()
        };
        let waited = self.consumers.wait_until(done, timeout, pause);
        waited.map_err(|failure| self.failed(failure))
    }

    /// Ends every subpartition. A blocking partition can be read from now on.
    ///
    /// # Errors
    /// A disk that cannot be written; the partition has failed then.
    pub(super) fn finish(&self) -> Result<()> {
        for subpartition in &self.subpartitions {
            subpartition.finish();
        }
        if let Some(store) = &self.store {
            store.settle().inspect_err(|error| self.fail(error))?;
            if self.kind == PartitionKind::Blocking {
                store.complete();
            }
        }
        Ok(())
    }

    /// Returns what outlives this process.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if it is of another kind than blocking, or not finished.
    pub(super) fn keep(&self) -> Result<KeptPartition> {
        self.check()?;
        let store = self.store.as_ref().filter(|_| self.kind == PartitionKind::Blocking);
        let store = store.ok_or(ExchangeError::State("only a blocking partition can be kept"))?;
        KeptPartition::new(Arc::clone(store))
    }

    /// Writes queued buffers to disk. True if a segment may be free now.
    ///
    /// # Errors
    /// A disk that cannot be written; the partition has failed then.
    pub(super) fn make_room(&self) -> Result<bool> {
        let made = self.store.as_ref().map_or(Ok(false), |store| store.make_room());
        made.inspect_err(|error| self.fail(error))
    }

    /// True while queued buffers can go to disk.
    pub(super) fn has_room_on_disk(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.has_room())
    }

    /// True if buffers for these subpartitions may leave this process or go to disk.
    pub(super) fn leaves_memory(&self, targets: Range<usize>) -> bool {
        self.kind.is_stored() || self.subpartitions[targets].iter().any(|target| target.is_remote())
    }

    /// Ends every wait for consumers with an error, as they will not get all data.
    pub(super) fn refuse_waiting(&self) {
        self.consumers.refuse_waiting();
    }

    /// Drops the queued buffers and those that the writer is filling. Those that a blocking partition stored on disk stay until its last
    /// reader is done.
    pub(super) fn close(&self) {
        self.refuse_waiting();
        for (index, subpartition) in self.subpartitions.iter().enumerate() {
            subpartition.close();
            self.consumers.close(index);
        }
        self.open_buffers.discard();
        if let Some(store) = &self.store {
            store.close();
        }
    }

    /// Ends the readers of buffers on disk.
    pub(super) fn shut_down(&self) {
        if let Some(store) = &self.store {
            store.shut_down();
        }
    }
}

impl ViewedPartition for Output {
    fn acknowledged(&self, index: usize) {
        self.consumers.acknowledge(index);
    }

    fn publish_task_event(&self, index: usize, event: &[u8]) -> Result<()> {
        self.task_events.publish(index, event)
    }

    fn consumed(&self, index: usize) {
        // Another consumer may read a blocking subpartition again.
        if self.kind != PartitionKind::Blocking {
            self.subpartitions[index].consumed();
            self.drop_stored(index);
        }
        self.consumers.close(index);
    }

    fn consumer_lost(&self, index: usize, cause: &ExchangeError) {
        // A blocking subpartition still has all its data for the next consumer.
        if self.kind != PartitionKind::Blocking && self.consumers.lose(index, cause) {
            self.fail(cause);
        }
    }

    fn fail(&self, cause: &ExchangeError) {
        self.consumers.fail(cause);
        for subpartition in &self.subpartitions {
            subpartition.fail(cause);
        }
        if let Some(store) = &self.store {
            store.fail(cause);
        }
        self.open_buffers.discard();
    }
}
