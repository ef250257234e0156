//! The state that a global pool, its local pools and their segments share, behind one lock.
//!
//! Decision: ADR 0004.

use std::sync::PoisonError;

use crate::listener::notify;
use crate::process::Process;
use crate::segment::Segment;
use crate::state::PoolState;
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct PoolInner {
    pub(crate) segment_size: usize,
    /// The process that created the pool. In a forked child the lock may be held by a thread
    /// that does not exist there, so the child never returns a segment: it leaks them on purpose.
    process: Process,
    state: Mutex<PoolState>,
}

impl PoolInner {
    pub(crate) fn new(total: usize, segment_size: usize) -> Self {
        let process = Process::current();
        Self { segment_size, process, state: Mutex::new(PoolState::new(total)) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code that holds the lock panics halfway through a change, so the numbers of a poisoned
        // lock are consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != Process::current()
    }

    /// Takes a segment back and wakes the threads and listeners that wait for one.
    pub(crate) fn recycle(
        &self,
        mut segment: Segment,
        id: u64,
        subpartition: Option<usize>,
        pinned: bool,
        kept: Option<usize>,
    ) {
        if self.is_forked() {
            std::mem::forget(segment);
            return;
        }
        let mut state = self.lock();
        if let Some(place) = kept {
            state.kept.remove(place);
        }
        if pinned {
            state.pinned -= 1;
            state.rebalance();
        } else {
            state.discharge(id, subpartition);
        }
        let unmapped = if state.closed {
            Some(segment)
        } else {
            segment.poison();
            state.idle.push(segment);
            None
        };
        let woken = state.wake();
        drop(state);
        drop(unmapped);
        notify(woken);
    }
}
