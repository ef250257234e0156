//! The part of the global pool that one partition or gate uses.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::account::{Account, Want};
use crate::error::{PoolTooSmall, RequestError};
use crate::foreign::Charge;
use crate::ledger::admit;
use crate::listener::{SegmentListener, notify};
use crate::pool_inner::PoolInner;
use crate::pooled_segment::PooledSegment;
use crate::state::PoolState;
use crate::sync::Condvar;

/// Account of a partition or gate with the global pool; dropping it closes the pool.
#[derive(Debug)]
pub struct LocalPool {
    inner: Arc<PoolInner>,
    id: u64,
    arrived: Arc<Condvar>,
    /// True if the account stays open without this handle, until its last segment is returned.
    detached: bool,
}

impl LocalPool {
    pub(crate) fn new(inner: Arc<PoolInner>, id: u64, arrived: Arc<Condvar>) -> Self {
        Self { inner, id, arrived, detached: false }
    }

    /// Keeps the account open when this handle is dropped.
    pub(crate) fn detach(&mut self) {
        self.detached = true;
    }

    /// Takes a free segment, within the pool's size or by overdraft; `None` if the pool may not
    /// take one.
    ///
    /// # Errors
    /// [`RequestError::Closed`] after [`close`](Self::close), or the kernel refused a mapping.
    pub fn try_request(&self) -> Result<Option<PooledSegment>, RequestError> {
        self.try_request_for(None)
    }

    /// Like [`try_request`](Self::try_request), and counts the segment for a subpartition until it
    /// is returned or pinned.
    ///
    /// # Errors
    /// As [`try_request`](Self::try_request).
    pub fn try_request_for(
        &self,
        subpartition: Option<usize>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.inner.lock();
        self.check_open(&state)?;
        PooledSegment::take(&self.inner, &mut state, self.id, subpartition)
    }

    /// Like [`try_request`](Self::try_request). If there is no segment, registers the listener
    /// under the same lock, so that it cannot miss one.
    ///
    /// # Errors
    /// As [`try_request`](Self::try_request).
    pub fn request_or_listen(
        &self,
        listener: impl FnOnce() -> Arc<dyn SegmentListener>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        let mut state = self.inner.lock();
        self.check_open(&state)?;
        let taken = PooledSegment::take(&self.inner, &mut state, self.id, None)?;
        if taken.is_none() {
            self.account(&mut state)?.listeners.push(listener());
        }
        Ok(taken)
    }

    /// Waits up to `timeout` for a segment.
    ///
    /// # Errors
    /// [`RequestError::Closed`] if the pool is closed before or during the wait, or the kernel
    /// refused a mapping.
    pub fn request(&self, timeout: Duration) -> Result<Option<PooledSegment>, RequestError> {
        self.request_for(None, timeout)
    }

    /// Like [`request`](Self::request), and counts the segment for a subpartition. A request that
    /// has to wait waits until the pool is below its size: overdrawn segments are returned first.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn request_for(
        &self,
        subpartition: Option<usize>,
        timeout: Duration,
    ) -> Result<Option<PooledSegment>, RequestError> {
        self.wait_for(Want::Segment, timeout, |state| {
            PooledSegment::take(&self.inner, state, self.id, subpartition)
        })
    }

    /// Waits up to `timeout` until `count` segments are free, and takes all of them at once, for a
    /// subpartition and without overdraft. The wait cannot succeed while the segments that this
    /// pool holds and `count` together exceed its size.
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
                && let Some(segment) =
                    PooledSegment::take(&self.inner, state, self.id, subpartition)?
            {
                segments.push(segment);
            }
            Ok((segments.len() == count).then_some(()))
        })?;
        Ok(taken.map(|()| Charge::new(segments)))
    }

    /// Returns true if the pool may take a segment without overdraft and no subpartition has
    /// reached its soft maximum, or if the pool is closed: a request fails at once, so there is
    /// nothing to wait for.
    pub fn is_available(&self) -> bool {
        let state = self.inner.lock();
        let free = state.is_free();
        state.closed
            || state.accounts.get(&self.id).is_none_or(|account| account.is_available(free))
    }

    /// Lets the pool be available until all subpartitions have reached their soft maximum: for a
    /// writer that chooses one that has not.
    pub fn need_one_subpartition(&self) {
        let mut state = self.inner.lock();
        if let Some(account) = state.accounts.get_mut(&self.id) {
            account.subpartitions.need_one();
        }
    }

    /// Returns the segments that each subpartition holds. Pinned ones do not count.
    pub fn held_by_subpartitions(&self) -> Vec<usize> {
        let state = self.inner.lock();
        let account = state.accounts.get(&self.id);
        account.map_or_else(Vec::new, |account| account.subpartitions.out().to_vec())
    }

    /// Waits up to `timeout` until the pool [is available](Self::is_available); returns false on
    /// timeout.
    ///
    /// # Errors
    /// [`RequestError::Closed`] if the pool is closed before or during the wait.
    pub fn wait_available(&self, timeout: Duration) -> Result<bool, RequestError> {
        let available = self.wait_for(Want::Availability, timeout, |state| {
            let free = state.is_free();
            let account = self.account(state)?;
            Ok(account.is_available(free).then_some(()))
        })?;
        Ok(available.is_some())
    }

    /// Like [`wait_available`](Self::wait_available), but [`wake_up`](Self::wake_up) ends the wait too.
    /// Returns `None` on timeout, else whether the pool is available.
    ///
    /// # Errors
    /// As [`wait_available`](Self::wait_available).
    pub fn wait_available_or_woken(&self, timeout: Duration) -> Result<Option<bool>, RequestError> {
        self.wait_for(Want::Availability, timeout, |state| {
            let free = state.is_free();
            let account = self.account(state)?;
            let is_available = account.is_available(free);
            let woken = std::mem::take(&mut account.woken);
            Ok((woken || is_available).then_some(is_available))
        })
    }

    /// Ends a wait of [`wait_available_or_woken`](Self::wait_available_or_woken), or the next one, at
    /// once.
    pub fn wake_up(&self) {
        if let Some(account) = self.inner.lock().accounts.get_mut(&self.id) {
            account.woken = true;
            if *account.waiting(Want::Availability) > 0 {
                self.arrived.notify_all();
            }
        }
    }

    /// Returns true if the pool [is available](Self::is_available). Otherwise registers the
    /// listener, to be called once when the pool becomes available or is closed.
    pub fn available_or_listen(&self, listener: impl FnOnce() -> Arc<dyn SegmentListener>) -> bool {
        let mut state = self.inner.lock();
        let free = state.is_free();
        match state.accounts.get_mut(&self.id) {
            Some(account) if !account.is_available(free) => {
                account.availability_listeners.push(listener());
                false
            }
            _ => true,
        }
    }

    /// Waits up to `timeout` until `count` segments are reserved for this pool alone, including
    /// those it holds. The reservation lasts until the pool is closed. On timeout returns false and
    /// changes nothing.
    ///
    /// Other pools may have borrowed segments of the guaranteed minimum; this waits until they are
    /// returned.
    ///
    /// # Errors
    /// [`RequestError::Closed`] if the pool is closed before or during the wait.
    ///
    /// # Panics
    /// If `count` exceeds the guaranteed minimum.
    pub fn reserve(&self, count: usize, timeout: Duration) -> Result<bool, RequestError> {
        let mut given = 0;
        let reserved = self.wait_for(Want::Reserve, timeout, |state| {
            let min = self.account(state)?.share.min;
            assert!(count <= min, "reservation of {count} segments exceeds the minimum of {min}");
            given += state.reserve_up_to(self.id, count);
            Ok((self.account(state)?.reservation >= count).then_some(()))
        })?;
        if reserved.is_none() && given > 0 {
            let mut state = self.inner.lock();
            state.change_reservation(self.id, |reserved| reserved.saturating_sub(given));
            let woken = state.wake();
            drop(state);
            notify(woken);
        }
        Ok(reserved.is_some())
    }

    /// Changes the minimum and maximum, provided that `leave` further segments could still be
    /// guaranteed to other pools afterwards. A minimum that is no larger takes nothing, so it is
    /// granted even if pinned segments take the place of what was promised.
    ///
    /// # Errors
    /// [`PoolTooSmall`] if the new minimum does not fit; nothing changes then.
    pub fn set_minimum(&self, min: usize, max: usize, leave: usize) -> Result<(), PoolTooSmall> {
        let mut state = self.inner.lock();
        let others =
            state.accounts.iter().filter(|(id, account)| **id != self.id && !account.closed);
        let others = others.map(|(_, account)| account.share);
        let promised = state.accounts.get(&self.id).map_or(0, |account| account.share.min);
        if min + leave > promised {
            admit(others, min + leave, state.pinned, state.total)?;
        }
        state.change_reservation(self.id, |reserved| reserved.min(min));
        if let Some(account) = state.accounts.get_mut(&self.id) {
            account.share.min = min;
            account.share.max = max.max(min);
        }
        state.rebalance();
        let woken = state.wake();
        drop(state);
        notify(woken);
        Ok(())
    }

    /// Returns the pool's current size and the segments it holds.
    pub fn usage(&self) -> (usize, usize) {
        let state = self.inner.lock();
        state
            .accounts
            .get(&self.id)
            .map_or((0, 0), |account| (account.share.size, account.share.held))
    }

    /// Refuses further requests. Segments in use return to the global pool when they are dropped.
    pub fn close(&self) {
        let mut state = self.inner.lock();
        let mut woken = state.close_account(self.id);
        state.rebalance();
        woken.append(&mut state.wake());
        drop(state);
        notify(woken);
    }

    /// Calls `attempt` at once and after each wake-up for `want`; `None` on timeout.
    fn wait_for<T>(
        &self,
        want: Want,
        timeout: Duration,
        mut attempt: impl FnMut(&mut PoolState) -> Result<Option<T>, RequestError>,
    ) -> Result<Option<T>, RequestError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.inner.lock();
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
            *self.account(&mut state)?.waiting(want) += 1;
            state =
                self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            // The account of a closed pool may be removed during the wait.
            if let Some(account) = state.accounts.get_mut(&self.id) {
                *account.waiting(want) -= 1;
            }
        }
    }

    fn account<'a>(&self, state: &'a mut PoolState) -> Result<&'a mut Account, RequestError> {
        state.accounts.get_mut(&self.id).ok_or(RequestError::Closed)
    }

    fn check_open(&self, state: &PoolState) -> Result<(), RequestError> {
        match state.accounts.get(&self.id) {
            Some(account) if !account.closed && !state.closed => Ok(()),
            _ => Err(RequestError::Closed),
        }
    }
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        if !self.detached && !self.inner.is_forked() {
            self.close();
        }
    }
}
