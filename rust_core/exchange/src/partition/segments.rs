//! The segments of a partition: waiting for them is the back-pressure (spec 1.5, 4.5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use headgate_memory::{Charge, ForeignMemory, PooledSegment, RequestError};

use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::metrics::{Activity, Wait};
use crate::partition::ResultPartition;

fn refused(error: RequestError) -> ExchangeError {
    ExchangeError::of_request(error, "result partition")
}

impl ResultPartition {
    /// A segment to write into, if one is free.
    ///
    /// # Errors
    /// Why the partition failed.
    pub(crate) fn try_request_segment(
        &self,
        subpartition: Option<usize>,
    ) -> Result<Option<PooledSegment>> {
        self.check()?;
        fail_point!("pool.requested", error => return Err(error));
        self.pool.try_request_for(subpartition).map_err(refused)
    }

    /// A segment to write into, for one subpartition or for all; waits for consumers to give some
    /// back once the overdraft is used up.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub(crate) fn request_segment(
        &self,
        subpartition: Option<usize>,
        interrupt: Interrupt<'_>,
    ) -> Result<PooledSegment> {
        let mut waits = None;
        loop {
            if let Some(segment) = self.try_request_segment(subpartition)? {
                return Ok(segment);
            }
            if self.make_room()? {
                continue;
            }
            // The clock is asked only where there is something to wait for.
            waits.get_or_insert_with(|| self.back_pressured(Activity::HardBackPressured));
            let requested = self.pool.request_for(subpartition, INTERRUPT_PERIOD);
            if let Some(segment) = requested.map_err(refused)? {
                return Ok(segment);
            }
            self.shared.foreign.release();
            interrupt()?;
        }
    }

    /// Segments to stand for memory of others, for one subpartition or for all. Waits for consumers to give
    /// some back, if so many can be had at all; none where `patient` is not set, or where it takes long
    /// although a single one could be had: whom they would wait for may be waiting for these very rows.
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
            self.check()?;
            let charge = self.pool.request_charge(subpartition, count, timeout).map_err(refused)?;
            let (size, held) = self.pool.usage();
            let in_vain = count > size || (held < size && !timeout.is_zero());
            if charge.is_some() || !patient || in_vain {
                return Ok(charge);
            }
            waits.get_or_insert_with(|| self.back_pressured(Activity::HardBackPressured));
            timeout = INTERRUPT_PERIOD;
            self.shared.foreign.release();
            interrupt()?;
        }
    }

    pub(crate) fn foreign(&self) -> &Arc<ForeignMemory> {
        &self.shared.foreign
    }

    /// Whether a record can be begun without waiting: there is a segment without overdraft, and no
    /// subpartition has as many queued as one should have. True when the partition is closed, and
    /// where what is queued can go to disk.
    pub fn is_available(&self) -> bool {
        self.has_room_on_disk() || self.pool.is_available()
    }

    /// Waits until the partition [is available](Self::is_available); false on timeout. For one that has
    /// reached its limit on disk, that is a free segment.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_available(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        self.check()?;
        if self.is_available() {
            return Ok(true);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let _waits = self.back_pressured(Activity::SoftBackPressured);
        loop {
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            let available = self.pool.wait_available(left).map_err(refused)?;
            // A failure gives everything back, which makes the pool available.
            self.check()?;
            if available || left < INTERRUPT_PERIOD {
                return Ok(available);
            }
            interrupt()?;
        }
    }

    /// How long the writer has waited for segments, in ns, a wait that still lasts included.
    pub fn back_pressured_ns(&self) -> u64 {
        self.timer.back_pressured_ns()
    }

    /// Counts as waiting, for the writer and for the task, until what it returns is dropped.
    fn back_pressured(&self, activity: Activity) -> [Wait<'_>; 2] {
        [&self.timer, &*self.shared.metrics.timer].map(|timer| timer.wait(activity))
    }
}
