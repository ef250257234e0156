//! A partition's or gate's part of the global pool.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{PoolTooSmall, RequestError};
use crate::ledger::admit;
use crate::pooled_segment::PooledSegment;
use crate::shared::{SegmentListener, Shared, State, notify};

/// A partition's or gate's account with the global pool; dropping it closes it.
#[derive(Debug)]
pub struct LocalPool {
    shared: Arc<Shared>,
    id: u64,
    arrived: Arc<Condvar>,
}

impl LocalPool {
    pub(crate) fn new(shared: Arc<Shared>, id: u64, arrived: Arc<Condvar>) -> Self {
        Self { shared, id, arrived }
    }

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
