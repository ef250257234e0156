//! What a global pool and all its local pools share, under one lock.

use std::sync::{Arc, PoisonError};

use crate::error::RequestError;
use crate::listener::notify;
use crate::pooled_segment::PooledSegment;
use crate::process::process_id;
use crate::segment::Segment;
use crate::state::State;
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) segment_size: usize,
    /// The process this pool lives in. After a fork the child holds a copy whose lock may have been
    /// taken by a thread it does not have, so there nothing is ever returned: it leaks on purpose.
    process: u32,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn new(total: usize, segment_size: usize) -> Self {
        let process = process_id();
        Self { segment_size, process, state: Mutex::new(State::new(total)) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can leave the numbers half changed, so a panic elsewhere
        // in the holder does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != process_id()
    }

    /// A segment on the account of pool `id`, if it may take one.
    pub(crate) fn take(
        self: &Arc<Self>,
        state: &mut State,
        id: u64,
        channel: Option<usize>,
    ) -> Result<Option<PooledSegment>, RequestError> {
        if !state.can_take(id, true) {
            return Ok(None);
        }
        let segment = match state.idle.pop() {
            Some(mut segment) => {
                segment.allow();
                segment
            }
            None => state.cut(self.segment_size).map_err(RequestError::Unmappable)?,
        };
        state.charge(id, channel);
        Ok(Some(PooledSegment::new(segment, Arc::clone(self), id, channel)))
    }

    /// Brings a segment home; whoever waits for one is told.
    pub(crate) fn recycle(
        &self,
        mut segment: Segment,
        id: u64,
        channel: Option<usize>,
        pinned: bool,
    ) {
        if self.is_forked() {
            std::mem::forget(segment);
            return;
        }
        let mut state = self.lock();
        if pinned {
            state.pinned -= 1;
            state.rebalance();
        } else {
            state.discharge(id, channel);
        }
        let unmapped = if state.closed {
            Some(segment)
        } else {
            segment.forbid();
            state.idle.push(segment);
            None
        };
        let woken = state.wake();
        drop(state);
        drop(unmapped);
        notify(woken);
    }
}
