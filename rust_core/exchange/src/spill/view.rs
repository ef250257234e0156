//! `StoredView`: a reader of a subpartition that is on disk, wholly or in part.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use headgate_memory::{Buffer, SEGMENT_ALIGNMENT, lock};
use headgate_net::Polled;
use headgate_protocol::{Next, Sequence, crc32c};

use super::index::{Block, Index, Place};
use super::read_thread::{Fill, Filled, RECLAIM_AFTER};
use super::store::{Lane, READ_AHEAD, Store, StoreReader};
use super::target::{self, Target};
use crate::error::{ExchangeError, Result};
use crate::view::{DataListener, SubpartitionView, ViewState, ViewedPartition};

struct State {
    /// Number of the block that the next poll takes.
    next: u64,
    /// Data blocks taken so far.
    data_taken: u64,
    /// Blocks from `next` on that were read from disk.
    ready: VecDeque<Buffer>,
    /// Time at which the last of them was read.
    ready_since: Instant,
    /// True while the view is queued with the read thread or waits for a segment. Only that thread
    /// appends to `ready` then.
    reading: bool,
    /// True while the reader waits for a notification: it found nothing to take.
    waits: bool,
    next_sequence: Sequence,
    failure: Option<ExchangeError>,
    /// True once the consumer wants nothing more, or gets nothing more.
    ended: bool,
}

/// Reads blocks from disk, then those still in memory. Its position is independent of other views.
pub(crate) struct StoredView {
    partition: Arc<dyn ViewedPartition>,
    store: Arc<Store>,
    lane: usize,
    listener: Arc<dyn DataListener>,
    /// Taken before the lane's index and the subpartition.
    state: Mutex<State>,
    this: Weak<Self>,
}

impl StoredView {
    /// # Errors
    /// The failure of the partition, or that it is closed.
    pub(crate) fn new(
        partition: Arc<dyn ViewedPartition>,
        store: Arc<Store>,
        lane: usize,
        listener: Arc<dyn DataListener>,
    ) -> Result<Arc<Self>> {
        let state = State {
            next: 0,
            data_taken: 0,
            ready: VecDeque::new(),
            ready_since: Instant::now(),
            reading: false,
            waits: false,
            next_sequence: Sequence::default(),
            failure: None,
            ended: false,
        };
        let view = Arc::new_cyclic(|this| Self {
            partition,
            store,
            lane,
            listener,
            state: Mutex::new(state),
            this: Weak::clone(this),
        });
        if let Err(error) = view.store.enter(Weak::<Self>::clone(&view.this)) {
            // It was not registered, so its drop must not unregister it.
            view.lock().ended = true;
            return Err(error);
        }
        Ok(view)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn lane(&self) -> &Lane {
        &self.store.lanes[self.lane]
    }

    /// True if more buffers follow in the queue of the subpartition, behind the blocks of the
    /// index.
    fn has_tail(&self) -> bool {
        !self.store.is_reconsumable
    }

    /// The state of the buffers that are still in the queue. If `waits`, and there are none to
    /// take, the listener is called once there are.
    fn tail(&self, waits: bool) -> ViewState {
        if self.has_tail() {
            self.lane().subpartition.look(waits)
        } else {
            ViewState::Open { next: Next::None, backlog: 0 }
        }
    }

    /// Returns the kind of buffer that a poll would return; `tail` is the kind behind the last
    /// block. If there is none, the listener is called once there is.
    fn next(&self, state: &mut State, index: &Index, tail: Next) -> Next {
        let next = match index.get(state.next) {
            Some(Block { place: Place::Memory(_), data_type }) => Next::from(Some(*data_type)),
            Some(block) if state.ready.is_empty() => {
                debug_assert!(matches!(block.place, Place::Disk(_)));
                Next::None
            }
            Some(block) => Next::from(Some(block.data_type)),
            None => tail,
        };
        state.waits = next == Next::None;
        self.read_ahead(state, index);
        next
    }

    /// Requests more blocks when half of those read ahead are taken.
    fn read_ahead(&self, state: &mut State, index: &Index) {
        let low = state.ready.len() <= READ_AHEAD / 2;
        let from = state.next + state.ready.len() as u64;
        let on_disk = matches!(index.get(from), Some(Block { place: Place::Disk(_), .. }));
        if state.reading || state.ended || !low || !on_disk {
            return;
        }
        match self.store.manager.reads.request(Weak::<Self>::clone(&self.this)) {
            Ok(()) => state.reading = true,
            Err(error) => state.failure = Some(error),
        }
    }

    fn filled(&self, targets: Vec<Target>) {
        let mut buffers: Vec<_> = targets.into_iter().map(Target::into_buffer).collect();
        let mut state = self.lock();
        state.reading = false;
        if !state.ended {
            state.ready.extend(buffers.drain(..));
            state.ready_since = Instant::now();
        }
        let waited = std::mem::take(&mut state.waits);
        drop(state);
        drop(buffers);
        if waited {
            self.listener.data_available();
        }
    }

    fn failed_to_read(&self, error: &ExchangeError) {
        self.end_with(error);
        // A hybrid partition has one reader: what it cannot read is lost.
        if self.has_tail() {
            self.partition.fail(error);
        }
    }

    fn end_with(&self, cause: &ExchangeError) {
        if self.end(|state| state.failure = Some(cause.clone())) {
            // A reader without credit does not wait for data, but must be notified of the end.
            self.listener.data_available();
        }
    }

    /// Drops everything and unregisters from the store. False if it did before.
    fn end(&self, change: impl FnOnce(&mut State)) -> bool {
        let mut state = self.lock();
        if std::mem::replace(&mut state.ended, true) {
            return false;
        }
        change(&mut state);
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop(ready);
        self.store.leave();
        true
    }

    /// Data blocks that are left, and those in the queue behind them.
    fn backlog_of(state: &State, index: &Index, queued: u32) -> u32 {
        let left = index.data() - state.data_taken;
        u32::try_from(left).unwrap_or(u32::MAX).saturating_add(queued)
    }

    /// Notifies the reader, outside the locks, of a failure that occurred while it looked.
    fn notify_of_failure(&self, failed: bool) {
        if failed {
            self.listener.data_available();
        }
    }
}

impl Fill for StoredView {
    fn fill(&self) -> Filled {
        let (state, mut index) = lock_in_order(self);
        let from = state.next + state.ready.len() as u64;
        let room = READ_AHEAD.saturating_sub(state.ready.len());
        let wanted = state.reading && !state.ended && state.failure.is_none();
        let plan = if wanted { index.run(from, room) } else { Vec::new() };
        let spent = index.take_spent();
        drop(index);
        drop(state);
        let file = self.store.file();
        if let Some(file) = &file {
            spent.iter().for_each(|extent| file.discard(extent));
        }
        let Some(file) = file.filter(|_| !plan.is_empty()) else {
            self.lock().reading = false;
            return Filled::Done;
        };
        let this: Weak<dyn Fill> = Weak::<Self>::clone(&self.this);
        let read = target::of_plan(&plan, &self.store, &this).and_then(|mut targets| {
            fail_point!("spill.reads", text => return Err(ExchangeError::Aborted(text)));
            let mut padding = [[0; SEGMENT_ALIGNMENT]; READ_AHEAD];
            let mut slices: Vec<&mut [u8]> = Vec::with_capacity(2 * READ_AHEAD);
            for (number, (target, padding)) in targets.iter_mut().zip(&mut padding).enumerate() {
                let before =
                    number.checked_sub(1).and_then(|last| plan[last].0.padding_to(&plan[number].0));
                slices.push(&mut padding[..before.unwrap_or(0)]);
                slices.push(target.as_mut());
            }
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            let read = file.read(plan[0].0.offset, &mut slices);
            read.map_err(|error| self.store.io("read", bytes, error))?;
            for ((extent, _), target) in plan.iter().zip(&mut targets) {
                if crc32c(target.as_mut()) != extent.crc {
                    return Err(self.store.damaged(self.lane, extent));
                }
            }
            Ok(targets)
        });
        match read {
            Ok(targets) if targets.is_empty() => return Filled::Starved,
            Ok(targets) => self.filled(targets),
            Err(error) => self.failed_to_read(&error),
        }
        Filled::Done
    }

    fn reclaim(&self) -> bool {
        let state = self.lock();
        let waits = state.reading && !state.ended && state.failure.is_none();
        drop(state);
        if waits {
            for view in self.store.views() {
                drop(view.give_back());
            }
        }
        waits
    }

    fn fail(&self, cause: &ExchangeError) {
        self.end_with(cause);
    }
}

impl StoreReader for StoredView {
    fn lane(&self) -> usize {
        self.lane
    }

    fn give_back(&self) -> VecDeque<Buffer> {
        let mut state = self.lock();
        if state.reading || state.ready_since.elapsed() < RECLAIM_AFTER {
            return VecDeque::new();
        }
        std::mem::take(&mut state.ready)
    }

    fn fail(&self, cause: &ExchangeError) {
        self.end_with(cause);
    }

    fn shut_down(&self) {
        if self.end(|_| ()) {
            self.listener.data_available();
        }
    }
}

/// Locks a view's state, then its index: the order that everybody keeps.
fn lock_in_order(view: &StoredView) -> (MutexGuard<'_, State>, MutexGuard<'_, Index>) {
    let state = view.lock();
    (state, lock(&view.lane().index))
}

impl SubpartitionView for StoredView {
    fn poll(&self) -> Result<Option<Polled>> {
        let (mut guard, mut index) = lock_in_order(self);
        let state = &mut *guard;
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.ended {
            return Ok(None);
        }
        let block = index.get(state.next);
        let is_there = match block {
            Some(Block { place: Place::Memory(_), .. }) => true,
            Some(Block { place: Place::Disk(_), .. }) => !state.ready.is_empty(),
            None => false,
        };
        let mut tail = (Next::None, 0);
        if block.is_some() {
            let is_last = is_there && index.get(state.next + 1).is_none();
            tail = match self.tail(is_last) {
                ViewState::Open { next, backlog } => (next, backlog),
                ViewState::Released => return Ok(None),
                ViewState::Failed(cause) => return Err(cause),
            };
        }
        let (buffer, data_type) = match block {
            Some(Block { place: Place::Memory(buffer), data_type }) => (buffer.clone(), *data_type),
            Some(Block { place: Place::Disk(_), data_type }) => match state.ready.pop_front() {
                Some(buffer) => (buffer, *data_type),
                None => {
                    self.next(state, &index, Next::None);
                    return state.failure.clone().map_or(Ok(None), Err);
                }
            },
            None if self.has_tail() => {
                let Some(mut polled) = self.lane().subpartition.poll()? else {
                    state.waits = true;
                    return Ok(None);
                };
                polled.sequence = state.next_sequence;
                state.next_sequence = state.next_sequence.next();
                return Ok(Some(polled));
            }
            None => return Ok(None),
        };
        state.next += 1;
        state.data_taken += u64::from(data_type.is_buffer());
        let taken = if self.has_tail() { index.forget_before(state.next) } else { Vec::new() };
        let sequence = state.next_sequence;
        state.next_sequence = sequence.next();
        let backlog = Self::backlog_of(state, &index, tail.1);
        let next = self.next(state, &index, tail.0);
        let failed = state.failure.is_some();
        drop(index);
        drop(guard);
        self.notify_of_failure(failed);
        // The reader holds the buffer too, so no segment returns to its pool under the lock.
        drop(taken);
        Ok(Some(Polled { buffer, data_type, backlog, sequence, next }))
    }

    fn look(&self) -> ViewState {
        let (mut state, index) = lock_in_order(self);
        if let Some(failure) = &state.failure {
            return ViewState::Failed(failure.clone());
        }
        if state.ended {
            return ViewState::Released;
        }
        let (next, queued) = match self.tail(index.get(state.next).is_none()) {
            ViewState::Open { next, backlog } => (next, backlog),
            ended => return ended,
        };
        let backlog = Self::backlog_of(&state, &index, queued);
        let next = self.next(&mut state, &index, next);
        let failed = state.failure.is_some();
        drop(index);
        drop(state);
        self.notify_of_failure(failed);
        ViewState::Open { next, backlog }
    }

    fn is_released(&self) -> bool {
        self.lock().ended || (self.has_tail() && self.lane().subpartition.is_released())
    }

    fn backlog(&self) -> u32 {
        let (state, index) = lock_in_order(self);
        let queued = if self.has_tail() { self.lane().subpartition.backlog() } else { 0 };
        Self::backlog_of(&state, &index, queued)
    }

    fn waiting(&self) -> (usize, u64) {
        (self.backlog() as usize, self.lane().subpartition.waiting().1)
    }

    fn give_empty_buffers(&self) {
        self.lane().subpartition.give_empty_buffers();
    }

    fn acknowledge(&self) {
        self.partition.acknowledged(self.lane);
    }

    fn task_event(&self, event: &[u8]) -> Result<()> {
        self.partition.publish_task_event(self.lane, event)
    }

    fn consumed(&self) {
        self.end(|_| ());
        self.partition.consumed(self.lane);
    }

    fn consumer_lost(&self, cause: &ExchangeError) {
        self.end(|_| ());
        self.partition.consumer_lost(self.lane, cause);
    }
}

impl Drop for StoredView {
    fn drop(&mut self) {
        self.end(|_| ());
    }
}
