//! A partition's or gate's part of the global pool.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{PoolTooSmall, RequestError};
use crate::foreign::Charge;
use crate::ledger::admit;
use crate::listener::{SegmentListener, notify};
use crate::local::{Local, Want};
use crate::pooled_segment::PooledSegment;
use crate::shared::Shared;
use crate::state::State;
use crate::sync::Condvar;

/// A partition's or gate's account with the global pool; dropping it closes it.
#[derive(Debug)]
pub struct LocalPool {
    shared: Arc<Shared>,
    id: u64,
    arrived: Arc<Condvar>,
    /// The account lives on without this handle, until its last segment is back.
    detached: bool,
}

impl LocalPool {
    pub(crate) fn new(shared: Arc<Shared>, id: u64, arrived: Arc<Condvar>) -> Self {
        Self { shared, id, arrived, detached: false }
    }

    /// Leaves the account open when this handle is dropped.
    pub(crate) fn detach(&mut self) {
        self.detached = true;
    }

    /// A segment if this pool may hold another one and one is free, or by overdraft.
    ///
    /// # Errors
    /// [`RequestError::Closed`] after [`close`](Self::close), or the kernel's refusal.
    pub fn try_request(&self) -> Result<Option<PooledSegment>, RequestError> {
        self.try_request_for(None)
    }

    /// Like [`try_request`](Self::try_request), and counts the segment for a subpartition until it
    /// is back or pinned.
    ///
    /// # Errors
    /// As [`try_request`](Self::try_request).
    pub fn try_request_for(
        &self,
        subpartition: Option<usize>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.shared.lock();
        self.check_open(&state)?;
        self.shared.take(&mut state, self.id, subpartition)
    }

    /// Like [`try_request`](Self::try_request), or registers the listener in the same step, so
    /// that no segment can arrive unseen in between.
    ///
    /// # Errors
    /// As [`try_request`](Self::try_request).
    pub fn request_or_listen(
        &self,
        listener: impl FnOnce() -> Arc<dyn SegmentListener>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.shared.lock();
        self.check_open(&state)?;
        let taken = self.shared.take(&mut state, self.id, None)?;
        if taken.is_none() {
            self.local(&mut state)?.listeners.push(listener());
        }
        Ok(taken)
    }

    /// Waits up to `timeout` for a segment.
    ///
    /// # Errors
    /// [`RequestError::Closed`] when the pool is closed before or meanwhile, or the kernel's refusal.
    pub fn request(&self, timeout: Duration) -> Result<Option<PooledSegment>, RequestError> {
        self.request_for(None, timeout)
    }

    /// Like [`request`](Self::request), and counts the segment for a subpartition. Once it has to
    /// wait, it waits for an ordinary segment: what was overdrawn comes back first.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_for(
        &self,
        subpartition: Option<usize>,
        timeout: Duration,
    ) -> Result<Option<PooledSegment>, RequestError> {
        self.wait_for(Want::Segment, timeout, |state| {
            self.shared.take(state, self.id, subpartition)
        })
    }

    /// Waits up to `timeout` for so many segments, for a subpartition, and takes all of them at once or none;
    /// never by overdraft. Those that this pool holds and `count` must not be more than its size, or the
    /// wait is in vain.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_charge(
        &self,
        subpartition: Option<usize>,
        count: usize,
        timeout: Duration,
    ) -> Result<Option<Charge>, RequestError> {
        let mut segments = Vec::new();
        let taken = self.wait_for(Want::Segment, timeout, |state| {
            if !state.can_take_all(self.id, count - segments.len()) {
                return Ok(None);
            }
            while segments.len() < count
                && let Some(segment) = self.shared.take(state, self.id, subpartition)?
            {
                segments.push(segment);
            }
            Ok((segments.len() == count).then_some(()))
        })?;
        Ok(taken.map(|()| Charge::new(segments)))
    }

    /// Whether a request would be granted without overdraft, and no subpartition has reached its
    /// soft maximum. True once the pool is closed: nobody has to wait to learn that.
    pub fn is_available(&self) -> bool {
        let state = self.shared.lock();
        let free = state.is_free();
        state.closed || state.locals.get(&self.id).is_none_or(|local| local.is_available(free))
    }

    /// Waits up to `timeout` until [`is_available`](Self::is_available); says whether it is.
    ///
    /// # Errors
    /// [`RequestError::Closed`] when the pool is closed before or meanwhile.
    pub fn wait_available(&self, timeout: Duration) -> Result<bool, RequestError> {
        let available = self.wait_for(Want::Availability, timeout, |state| {
            let free = state.is_free();
            let local = self.local(state)?;
            Ok(local.is_available(free).then_some(()))
        })?;
        Ok(available.is_some())
    }

    /// Whether it [is available](Self::is_available); if not, the listener is told, once, when it
    /// is, or when the pool is closed.
    pub fn available_or_listen(&self, listener: impl FnOnce() -> Arc<dyn SegmentListener>) -> bool {
        let mut state = self.shared.lock();
        let free = state.is_free();
        match state.locals.get_mut(&self.id) {
            Some(local) if !local.is_available(free) => {
                local.availability_listeners.push(listener());
                false
            }
            _ => true,
        }
    }

    /// Waits up to `timeout` until `count` segments, those out included, are set aside for this
    /// pool alone, for as long as it is open. False on timeout; nothing changed then.
    ///
    /// A guaranteed minimum is a promise that others may have to keep first, by giving back what
    /// they borrowed; this waits until they have.
    ///
    /// # Errors
    /// [`RequestError::Closed`] when the pool is closed before or meanwhile.
    ///
    /// # Panics
    /// When `count` is above the guaranteed minimum.
    pub fn reserve(&self, count: usize, timeout: Duration) -> Result<bool, RequestError> {
        let mut given = 0;
        let reserved = self.wait_for(Want::Reserve, timeout, |state| {
            let min = self.local(state)?.share.min;
            assert!(count <= min, "{count} segments to reserve of a minimum of {min}");
            given += state.set_aside(self.id, count);
            Ok((self.local(state)?.floor >= count).then_some(()))
        })?;
        if reserved.is_none() && given > 0 {
            let mut state = self.shared.lock();
            state.change_floor(self.id, |floor| floor.saturating_sub(given));
            let woken = state.wake();
            drop(state);
            notify(woken);
        }
        Ok(reserved.is_some())
    }

    /// Changes what is guaranteed, as channels come and go, if `leave` more could still be promised
    /// to anybody afterwards.
    ///
    /// # Errors
    /// [`PoolTooSmall`] when the new minimum does not fit; nothing changes then.
    pub fn set_minimum(&self, min: usize, max: usize, leave: usize) -> Result<(), PoolTooSmall> {
        let mut state = self.shared.lock();
        let others = state.locals.iter().filter(|(id, local)| **id != self.id && !local.closed);
        let others = others.map(|(_, local)| local.share);
        admit(others, min + leave, state.pinned, state.total)?;
        state.change_floor(self.id, |floor| floor.min(min));
        if let Some(local) = state.locals.get_mut(&self.id) {
            local.share.min = min;
            local.share.max = max.max(min);
        }
        state.rebalance();
        let woken = state.wake();
        drop(state);
        notify(woken);
        Ok(())
    }

    /// Segments this pool may hold now without overdraft, and holds.
    pub fn usage(&self) -> (usize, usize) {
        let state = self.shared.lock();
        state.locals.get(&self.id).map_or((0, 0), |local| (local.share.size, local.share.held))
    }

    /// Refuses further requests; segments still out go back to the global pool as they are dropped.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        let mut woken = state.close_local(self.id);
        state.rebalance();
        woken.append(&mut state.wake());
        drop(state);
        notify(woken);
    }

    /// Tries at once and whenever this pool may have what is wanted; `None` on timeout.
    fn wait_for<T>(
        &self,
        want: Want,
        timeout: Duration,
        mut attempt: impl FnMut(&mut State) -> Result<Option<T>, RequestError>,
    ) -> Result<Option<T>, RequestError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.shared.lock();
        loop {
            self.check_open(&state)?;
            if let Some(done) = attempt(&mut state)? {
                return Ok(Some(done));
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(None);
            }
            *self.local(&mut state)?.waiting(want) += 1;
            state =
                self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            // A closed pool may be gone by now.
            if let Some(local) = state.locals.get_mut(&self.id) {
                *local.waiting(want) -= 1;
            }
        }
    }

    fn local<'a>(&self, state: &'a mut State) -> Result<&'a mut Local, RequestError> {
        state.locals.get_mut(&self.id).ok_or(RequestError::Closed)
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
        if !self.detached && !self.shared.is_forked() {
            self.close();
        }
    }
}
