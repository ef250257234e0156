//! What a global pool and all its local pools share, under one lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::RequestError;
use crate::ledger::{Share, redistribute};
use crate::pooled_segment::PooledSegment;
use crate::segment::Segment;

/// Told, outside every lock and at most once per registration, that a request may succeed now.
pub trait SegmentListener: Send + Sync {
    /// Ask again; register again if that still fails.
    fn segment_available(&self);
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) total: usize,
    pub(crate) segment_size: usize,
    /// The process this pool lives in. After a fork the child holds a copy whose lock may have been
    /// taken by a thread it does not have, so there nothing is ever returned: it leaks on purpose.
    pub(crate) process: u32,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Mapped and unused; `idle.len() + held + pinned` is at most `total`.
    pub(crate) idle: Vec<Segment>,
    pub(crate) held: usize,
    pub(crate) pinned: usize,
    pub(crate) peak: usize,
    pub(crate) closed: bool,
    pub(crate) next_id: u64,
    pub(crate) locals: BTreeMap<u64, Local>,
}

pub(crate) struct Local {
    pub(crate) share: Share,
    pub(crate) closed: bool,
    pub(crate) arrived: Arc<Condvar>,
    pub(crate) listeners: Vec<Arc<dyn SegmentListener>>,
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

/// Calls the listeners; never under the lock.
pub(crate) fn notify(woken: Woken) {
    for listener in woken {
        listener.segment_available();
    }
}

impl State {
    pub(crate) fn can_take(&self, id: u64, total: usize) -> bool {
        let free = self.held + self.pinned < total;
        self.locals.get(&id).is_some_and(|local| free && local.share.held < local.share.size)
    }

    pub(crate) fn rebalance(&mut self, total: usize) {
        let mut open: Vec<&mut Share> =
            self.locals.values_mut().filter(|l| !l.closed).map(|l| &mut l.share).collect();
        redistribute(&mut open, self.pinned, total);
    }

    /// Wakes whoever could take a segment now; listeners are called after the lock is gone.
    pub(crate) fn wake(&mut self, total: usize) -> Woken {
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can leave the numbers half changed, so a panic elsewhere
        // in the holder does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn take(
        self: &Arc<Self>,
        state: &mut State,
        id: u64,
    ) -> Result<PooledSegment, RequestError> {
        let segment = match state.idle.pop() {
            Some(segment) => segment,
            None => Segment::map(self.segment_size).map_err(RequestError::Unmappable)?,
        };
        let local = state.locals.get_mut(&id).expect("checked by can_take");
        local.share.held += 1;
        state.held += 1;
        state.peak = state.peak.max(state.held + state.pinned);
        Ok(PooledSegment::new(segment, Arc::clone(self), id))
    }

    pub(crate) fn recycle(&self, segment: Segment, id: u64, pinned: bool) {
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
