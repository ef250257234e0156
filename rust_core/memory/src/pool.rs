//! The global pool of a process and the local pools that partitions and gates draw from.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{PoolTooSmall, RequestError};
use crate::ledger::{Share, admit, redistribute};
use crate::segment::Segment;

/// Told, outside every lock and at most once per registration, that a request may succeed now.
pub trait SegmentListener: Send + Sync {
    /// Ask again; register again if that still fails.
    fn segment_available(&self);
}

/// How many segments are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of one segment.
    pub segment_size: usize,
    /// The budget, in segments.
    pub total: usize,
    /// Segments mapped so far and waiting to be used again.
    pub idle: usize,
    /// Segments out on the account of a local pool.
    pub held: usize,
    /// Segments under batches that the caller keeps.
    pub pinned: usize,
    /// The most that was ever out at once.
    pub peak: usize,
    /// Open local pools.
    pub local_pools: usize,
}

/// The byte budget of a process, in segments of one size, committed as they are first used.
///
/// One lock covers the global pool and all its local pools: at segment granularity it is taken a
/// few thousand times per GB/s, and no order of locks can be got wrong.
#[derive(Debug, Clone)]
pub struct GlobalPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    segment_size: usize,
    /// The process this pool lives in. After a fork the child holds a copy whose lock may have been
    /// taken by a thread it does not have, so there nothing is ever returned: it leaks on purpose.
    process: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Mapped and unused; `idle.len() + held + pinned` is at most `total`.
    idle: Vec<Segment>,
    held: usize,
    pinned: usize,
    peak: usize,
    closed: bool,
    next_id: u64,
    locals: BTreeMap<u64, Local>,
}

struct Local {
    share: Share,
    closed: bool,
    arrived: Arc<Condvar>,
    listeners: Vec<Arc<dyn SegmentListener>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("held", &self.held)
            .field("pinned", &self.pinned)
            .field("local_pools", &self.locals.len())
            .finish_non_exhaustive()
    }
}

type Woken = Vec<Arc<dyn SegmentListener>>;

fn notify(woken: Woken) {
    for listener in woken {
        listener.segment_available();
    }
}

impl State {
    fn can_take(&self, id: u64, total: usize) -> bool {
        let free = self.held + self.pinned < total;
        self.locals.get(&id).is_some_and(|local| free && local.share.held < local.share.size)
    }

    fn rebalance(&mut self, total: usize) {
        let mut open: Vec<&mut Share> =
            self.locals.values_mut().filter(|l| !l.closed).map(|l| &mut l.share).collect();
        redistribute(&mut open, self.pinned, total);
    }

    /// Wakes whoever could take a segment now; listeners are called after the lock is gone.
    fn wake(&mut self, total: usize) -> Woken {
        let mut woken = Woken::new();
        let free = self.held + self.pinned < total;
        for local in self.locals.values_mut() {
            if local.closed || (free && local.share.held < local.share.size) {
                local.arrived.notify_all();
                woken.append(&mut local.listeners);
            }
        }
        woken
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can leave the numbers half changed, so a panic elsewhere
        // in the holder does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn take(self: &Arc<Self>, state: &mut State, id: u64) -> Result<PooledSegment, RequestError> {
        let segment = match state.idle.pop() {
            Some(segment) => segment,
            None => Segment::map(self.segment_size).map_err(RequestError::Unmappable)?,
        };
        let local = state.locals.get_mut(&id).expect("checked by can_take");
        local.share.held += 1;
        state.held += 1;
        state.peak = state.peak.max(state.held + state.pinned);
        Ok(PooledSegment {
            segment: Some(segment),
            home: Arc::clone(self),
            id,
            pinned: AtomicBool::new(false),
        })
    }

    fn recycle(&self, segment: Segment, id: u64, pinned: bool) {
        let mut state = self.lock();
        if pinned {
            state.pinned -= 1;
            state.rebalance(self.total);
        } else {
            state.held -= 1;
            if let Some(local) = state.locals.get_mut(&id) {
                local.share.held -= 1;
                if local.closed && local.share.held == 0 {
                    state.locals.remove(&id);
                }
            }
        }
        let unmapped = if state.closed {
            Some(segment)
        } else {
            state.idle.push(segment);
            None
        };
        let woken = state.wake(self.total);
        drop(state);
        drop(unmapped);
        notify(woken);
    }
}

impl GlobalPool {
    /// A budget of `total` segments of `segment_size` bytes each; nothing is committed yet.
    pub fn new(total: usize, segment_size: usize) -> Self {
        Self(Arc::new(Shared {
            total,
            segment_size,
            process: std::process::id(),
            state: Mutex::new(State::default()),
        }))
    }

    /// Bytes of one segment.
    pub fn segment_size(&self) -> usize {
        self.0.segment_size
    }

    /// A pool that is guaranteed `min` segments and may grow to `max` while others do not need them.
    ///
    /// # Errors
    /// [`PoolTooSmall`] when the minimums of all pools no longer fit the budget.
    pub fn create_local_pool(&self, min: usize, max: usize) -> Result<LocalPool, PoolTooSmall> {
        let max = max.max(min);
        let mut state = self.0.lock();
        let total = if state.closed { 0 } else { self.0.total };
        let open = state.locals.values().filter(|local| !local.closed);
        admit(open.map(|local| local.share), min, state.pinned, total)?;
        let id = state.next_id;
        state.next_id += 1;
        let arrived = Arc::new(Condvar::new());
        state.locals.insert(
            id,
            Local {
                share: Share { min, max, size: min, held: 0 },
                closed: false,
                arrived: Arc::clone(&arrived),
                listeners: Vec::new(),
            },
        );
        state.rebalance(self.0.total);
        drop(state);
        Ok(LocalPool { shared: Arc::clone(&self.0), id, arrived })
    }

    /// Closes every local pool and unmaps what is idle; the rest is unmapped as it is recycled.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let idle = std::mem::take(&mut state.idle);
        for local in state.locals.values_mut() {
            local.closed = true;
        }
        let woken = state.wake(self.0.total);
        state.locals.retain(|_, local| local.share.held > 0);
        drop(state);
        drop(idle);
        notify(woken);
    }

    /// A snapshot.
    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        PoolStats {
            segment_size: self.0.segment_size,
            total: self.0.total,
            idle: state.idle.len(),
            held: state.held,
            pinned: state.pinned,
            peak: state.peak,
            local_pools: state.locals.values().filter(|local| !local.closed).count(),
        }
    }
}

/// A partition's or gate's account with the global pool; dropping it closes it.
#[derive(Debug)]
pub struct LocalPool {
    shared: Arc<Shared>,
    id: u64,
    arrived: Arc<Condvar>,
}

impl LocalPool {
    /// A segment if one is free and this pool may hold another.
    ///
    /// # Errors
    /// [`RequestError::Closed`] after [`close`](Self::close), or the kernel's refusal.
    pub fn try_request(&self) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.shared.lock();
        self.check_open(&state)?;
        let can = state.can_take(self.id, self.shared.total);
        can.then(|| self.shared.take(&mut state, self.id)).transpose()
    }

    /// Like [`try_request`](Self::try_request), or registers the listener in the same step, so
    /// that no segment can arrive unseen in between.
    ///
    /// # Errors
    /// [`RequestError::Closed`] after [`close`](Self::close), or the kernel's refusal.
    pub fn request_or_listen(
        &self,
        listener: impl FnOnce() -> Arc<dyn SegmentListener>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.shared.lock();
        self.check_open(&state)?;
        if state.can_take(self.id, self.shared.total) {
            return self.shared.take(&mut state, self.id).map(Some);
        }
        let local = state.locals.get_mut(&self.id).expect("open pools are registered");
        local.listeners.push(listener());
        Ok(None)
    }

    /// Waits up to `timeout` for a segment.
    ///
    /// # Errors
    /// [`RequestError::Closed`] when the pool is closed before or meanwhile, or the kernel's refusal.
    pub fn request(&self, timeout: Duration) -> Result<Option<PooledSegment>, RequestError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            self.check_open(&state)?;
            if state.can_take(self.id, self.shared.total) {
                return self.shared.take(&mut state, self.id).map(Some);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state =
                self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Changes what is guaranteed, as channels come and go, if `leave` more could still be promised
    /// to anybody afterwards.
    ///
    /// # Errors
    /// [`PoolTooSmall`] when the new minimum does not fit; nothing changes then.
    pub fn set_minimum(&self, min: usize, max: usize, leave: usize) -> Result<(), PoolTooSmall> {
        let mut state = self.shared.lock();
        let total = self.shared.total;
        let others = state.locals.iter().filter(|(id, local)| **id != self.id && !local.closed);
        admit(others.map(|(_, local)| local.share), min + leave, state.pinned, total)?;
        if let Some(local) = state.locals.get_mut(&self.id) {
            local.share.min = min;
            local.share.max = max.max(min);
        }
        state.rebalance(total);
        let woken = state.wake(total);
        drop(state);
        notify(woken);
        Ok(())
    }

    /// Segments this pool may hold now, and holds.
    pub fn usage(&self) -> (usize, usize) {
        let state = self.shared.lock();
        state.locals.get(&self.id).map_or((0, 0), |local| (local.share.size, local.share.held))
    }

    /// Refuses further requests; segments still out go back to the global pool as they are dropped.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        let Some(local) = state.locals.get_mut(&self.id) else {
            return;
        };
        local.closed = true;
        local.arrived.notify_all();
        let mut woken = std::mem::take(&mut local.listeners);
        if local.share.held == 0 {
            state.locals.remove(&self.id);
        }
        state.rebalance(self.shared.total);
        woken.append(&mut state.wake(self.shared.total));
        drop(state);
        notify(woken);
    }

    fn check_open(&self, state: &State) -> Result<(), RequestError> {
        match state.locals.get(&self.id) {
            Some(local) if !local.closed && !state.closed => Ok(()),
            _ => Err(RequestError::Closed),
        }
    }
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        if !self.shared.is_forked() {
            self.close();
        }
    }
}

/// One segment, owned; goes back to where it came from when dropped, exactly once.
#[derive(Debug)]
pub struct PooledSegment {
    /// `None` only while it is being dropped.
    segment: Option<Segment>,
    home: Arc<Shared>,
    id: u64,
    /// On the "pinned" account instead of pool `id`'s; changes once, under the pool's lock.
    pinned: AtomicBool,
}

impl PooledSegment {
    fn segment(&self) -> &Segment {
        self.segment.as_ref().expect("present until drop")
    }

    pub(crate) fn start(&mut self) -> NonNull<u8> {
        self.segment().start()
    }

    /// Moves the segment from its pool's account to that of batches the caller keeps, unless these
    /// already hold half of the budget or the guaranteed minimums would no longer fit.
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.home.lock();
        if self.pinned.load(Ordering::Relaxed) {
            return true;
        }
        let total = self.home.total;
        let open = state.locals.values().filter(|local| !local.closed);
        let promised: usize = open.map(|local| local.share.min).sum();
        if (state.pinned + 1) * 2 > total || promised + state.pinned + 1 > total {
            return false;
        }
        self.pinned.store(true, Ordering::Relaxed);
        state.held -= 1;
        state.pinned += 1;
        if let Some(local) = state.locals.get_mut(&self.id) {
            local.share.held -= 1;
            if local.closed && local.share.held == 0 {
                state.locals.remove(&self.id);
            }
        }
        state.rebalance(total);
        let woken = state.wake(total);
        drop(state);
        notify(woken);
        true
    }
}

impl Deref for PooledSegment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.segment().as_slice()
    }
}

impl DerefMut for PooledSegment {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.segment.as_mut().expect("present until drop").as_mut_slice()
    }
}

impl AsRef<[u8]> for PooledSegment {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PooledSegment {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for PooledSegment {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.home.recycle(segment, self.id, self.pinned.load(Ordering::Relaxed));
        }
    }
}
