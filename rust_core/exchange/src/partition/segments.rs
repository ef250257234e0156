//! The segments of a partition. Waiting for them is the back-pressure (spec 1.5, 4.5).
//!
//! Decision: ADR 0013.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headgate_memory::{
    Charge, GlobalPool, LocalPool, LocalPoolOptions, PooledSegment, RequestError,
};

use super::options::{PartitionKind, PartitionOptions};
use super::output::Output;
use super::shared::Shared;
use crate::config::BufferOptions;
use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::metrics::{Activity, MemoryWait, TaskTimes, Timer, Wait};
use crate::stats::Usage;

fn refused(error: RequestError) -> ExchangeError {
    ExchangeError::of_request(error, "result partition")
}

/// The segments that the writer of one partition fills.
pub(crate) struct Segments {
    pool: LocalPool,
    segment_size: usize,
    output: Arc<Output>,
    /// Waits of this partition's writer alone.
    timer: Timer,
    shared: Shared,
}

impl Segments {
    /// Creates the pool of a partition of this kind.
    ///
    /// # Errors
    /// [`ExchangeError::PoolTooSmall`] when there is not one segment per subpartition and one more.
    pub(super) fn create_pool(
        options: &PartitionOptions,
        buffers: &BufferOptions,
        global: &GlobalPool,
    ) -> Result<LocalPool> {
        let built = options.wanted.iter().filter(|wanted| **wanted).count();
        let min = built + 1;
        // Each subpartition queues its own segments beside the one that is being written.
        let bounded = built * (buffers.buffers_per_channel + 1) + buffers.floating_buffers_per_gate;
        let (max, max_overdraft, max_buffers_per_channel) = match options.kind {
            PartitionKind::Pipelined => (usize::MAX, 0, usize::MAX),
            PartitionKind::PipelinedBounded => {
                (bounded, buffers.max_overdraft_buffers, buffers.max_buffers_per_channel + 1)
            }
            // No limit per channel: what waits too long goes to disk.
            PartitionKind::Blocking | PartitionKind::Hybrid => (bounded, 0, usize::MAX),
        };
        let pool = LocalPoolOptions {
            max_overdraft,
            num_subpartitions: options.wanted.len(),
            max_buffers_per_channel,
            ..LocalPoolOptions::new(min, max)
        };
        global.create_local_pool_with(&pool).map_err(|source| {
            let (what, segment_size) = ("a result partition", global.segment_size());
            ExchangeError::PoolTooSmall { what, needed: min, segment_size, source }
        })
    }

    pub(super) fn new(
        pool: LocalPool,
        segment_size: usize,
        output: Arc<Output>,
        shared: Shared,
    ) -> Self {
        let timer = Timer::default();
        timer.begin();
        Self { pool, segment_size, output, timer, shared }
    }

    /// Bytes of one segment.
    pub(crate) fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// Returns a segment to write into, if one is free.
    ///
    /// # Errors
    /// Why the partition failed.
    pub(crate) fn try_request(&self, subpartition: Option<usize>) -> Result<Option<PooledSegment>> {
        self.output.check()?;
        fail_point!("pool.requested", text => return Err(ExchangeError::Aborted(text)));
        self.pool.try_request_for(subpartition).map_err(refused)
    }

    /// Returns a segment to write into, for one subpartition or for all. Once the overdraft is used
    /// up, it waits until consumers return segments.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(crate) fn request(
        &self,
        subpartition: Option<usize>,
        interrupt: Interrupt<'_>,
    ) -> Result<PooledSegment> {
        let mut waits = None;
        loop {
            if let Some(segment) = self.try_request(subpartition)? {
                return Ok(segment);
            }
            if self.output.make_room()? {
                continue;
            }
            // Only a call that waits reads the clock.
            waits.get_or_insert_with(|| self.back_pressured(Activity::HardBackPressured));
            let requested = self.pool.request_for(subpartition, INTERRUPT_PERIOD);
            if let Some(segment) = requested.map_err(refused)? {
                return Ok(segment);
            }
            interrupt.check()?;
        }
    }

    /// Takes `count` segments that stand for foreign memory, for one subpartition or for all. If
    /// `patient`, it waits until consumers return segments. Returns none if the pool is too small,
    /// or if single segments become free but not `count` at once: the consumers may be waiting for
    /// these very rows.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(crate) fn request_charge(
        &self,
        subpartition: Option<usize>,
        count: usize,
        patient: bool,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Charge>> {
        let mut waits = None;
        let mut timeout = Duration::ZERO;
        loop {
            self.output.check()?;
            let charge = self.pool.request_charge(subpartition, count, timeout).map_err(refused)?;
            let (size, held) = self.pool.usage();
            let in_vain = count > size || (held < size && !timeout.is_zero());
            if charge.is_some() || !patient || in_vain {
                return Ok(charge);
            }
            waits.get_or_insert_with(|| self.back_pressured(Activity::HardBackPressured));
            timeout = INTERRUPT_PERIOD;
            interrupt.check()?;
        }
    }

    /// Lets a record begin while any subpartition is below its limit of queued buffers: its writer
    /// chooses one that is.
    pub(super) fn need_one_subpartition(&self) {
        self.pool.need_one_subpartition();
    }

    /// Segments of each subpartition that are written or queued.
    pub(super) fn held_by_subpartitions(&self) -> Vec<usize> {
        self.pool.held_by_subpartitions()
    }

    /// True if a record can be begun without waiting: a segment is free without overdraft, and no
    /// subpartition has reached its limit of queued buffers, or, if its writer chooses by loads, not
    /// all have. True also once the partition is closed, and while queued buffers can go to disk.
    pub(crate) fn is_available(&self) -> bool {
        self.output.has_room_on_disk() || self.pool.is_available()
    }

    /// Waits until a record [can be begun](Self::is_available), or [`wake_up`](Self::wake_up) is called;
    /// false then, and on timeout. A partition that has reached its limit on disk waits for a free
    /// segment.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(crate) fn wait_available(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.wait(timeout, interrupt, |left| self.pool.wait_available_or_woken(left))
    }

    /// Like [`wait_available`](Self::wait_available), but no wake-up ends it.
    ///
    /// # Errors
    /// As [`wait_available`](Self::wait_available).
    pub(crate) fn wait_for_room(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.wait(None, interrupt, |left| Ok(self.pool.wait_available(left)?.then_some(true)))
            .map(|_| ())
    }

    /// Ends a wait of [`wait_available`](Self::wait_available), or the next one, at once.
    pub(crate) fn wake_up(&self) {
        self.pool.wake_up();
    }

    /// Waits by calls of `wait_for_pool`, which returns `None` on timeout.
    fn wait(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
        wait_for_pool: impl Fn(Duration) -> std::result::Result<Option<bool>, RequestError>,
    ) -> Result<bool> {
        self.output.check()?;
        if self.is_available() {
            return Ok(true);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let _waits = self.back_pressured(Activity::SoftBackPressured);
        loop {
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            let available = wait_for_pool(left).map_err(refused)?;
            // A failure returns all segments, which makes the pool available.
            self.output.check()?;
            if let Some(available) = available {
                return Ok(available);
            }
            if left < INTERRUPT_PERIOD {
                return Ok(false);
            }
            interrupt.check()?;
        }
    }

    /// Time that the writer has waited for segments, in ns, a current wait included.
    pub(crate) fn back_pressured_ns(&self) -> u64 {
        self.timer.back_pressured_ns()
    }

    /// Counts as waiting, for the writer and for the task, until the returned guards are dropped.
    fn back_pressured(&self, activity: Activity) -> ([Wait<'_>; 2], Option<MemoryWait<'_>>) {
        let metrics = &self.shared.metrics;
        let waits = [&self.timer, &*metrics.timer].map(|timer| timer.wait(activity));
        (waits, self.output.is_read_remotely().then(|| metrics.waits.memory()))
    }

    /// Promises the writer no segments any more; queued ones return to the pool as they are read.
    pub(super) fn give_up_minimum(&self) {
        let lowered = self.pool.set_minimum(0, 0, 0);
        debug_assert!(lowered.is_ok(), "a lower minimum is always granted");
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }

    pub(super) fn usage(&self) -> Usage {
        let (size, used) = self.pool.usage();
        Usage { used, size }
    }

    pub(super) fn times(&self) -> TaskTimes {
        self.timer.times()
    }
}
