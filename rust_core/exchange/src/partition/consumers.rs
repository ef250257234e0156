//! The progress of a partition's consumers, and waiting for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headgate_memory::lock;

use crate::error::{ExchangeError, INTERRUPT_PERIOD, Result};

/// The state of each consumer, and the failure of the partition.
#[derive(Default)]
pub(super) struct Progress {
    /// Number of `false` in `closed`.
    open: usize,
    /// True for a subpartition that is consumed, released or was never built.
    closed: Vec<bool>,
    /// True for a subpartition whose consumer processed all records.
    acknowledged: Vec<bool>,
    /// Lost consumers. A loss does not count once its subpartition is closed.
    losses: Vec<Loss>,
    failure: Option<ExchangeError>,
}

/// A consumer whose process is gone.
struct Loss {
    index: usize,
    since: Instant,
    cause: ExchangeError,
}

/// The reason why a partition cannot go on.
pub(super) enum Failure {
    /// The partition failed before, or the wait was interrupted.
    Known(ExchangeError),
    /// Nobody explained the loss of a consumer in time: the partition must be failed with it.
    Overdue(ExchangeError),
}

impl Progress {
    /// True once no consumer wants anything more.
    pub(super) fn is_consumed(&self) -> bool {
        self.open == 0
    }

    /// True once every consumer has acknowledged its records, or wants nothing more.
    pub(super) fn is_processed(&self) -> bool {
        let mut each = self.acknowledged.iter().zip(&self.closed);
        each.all(|(acknowledged, closed)| *acknowledged || *closed)
    }

    fn check(&self, lost_timeout: Duration) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(Failure::Known(failure.clone()));
        }
        let is_overdue =
            |loss: &&Loss| !self.closed[loss.index] && loss.since.elapsed() >= lost_timeout;
        match self.losses.iter().find(is_overdue) {
            Some(loss) => Err(Failure::Overdue(loss.cause.clone())),
            None => Ok(()),
        }
    }
}

/// The consumers of one partition.
pub(super) struct Consumers {
    /// As in [`PartitionOptions`](super::options::PartitionOptions).
    lost_timeout: Duration,
    progress: Mutex<Progress>,
    /// Notified after each change of `progress`.
    changed: Condvar,
}

impl Consumers {
    /// One consumer for each wanted subpartition.
    pub(super) fn new(wanted: &[bool], lost_timeout: Duration) -> Self {
        let closed: Vec<bool> = wanted.iter().map(|wanted| !wanted).collect();
        let open = wanted.iter().filter(|wanted| **wanted).count();
        let acknowledged = closed.clone();
        let progress = Progress { open, closed, acknowledged, ..Progress::default() };
        Self { lost_timeout, progress: Mutex::new(progress), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// # Errors
    /// The failure of the partition, or a loss that nobody explained in time.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.lock().check(self.lost_timeout)
    }

    /// True once no consumer wants anything more.
    pub(super) fn are_done(&self) -> bool {
        self.lock().is_consumed()
    }

    /// Ends every wait with this cause, unless there was another one before.
    pub(super) fn fail(&self, cause: &ExchangeError) {
        self.change(|progress| {
            progress.failure.get_or_insert_with(|| cause.clone());
        });
    }

    /// Ends every wait for consumers that will not get everything.
    pub(super) fn refuse_waiting(&self) {
        self.change(|progress| {
            if !progress.is_consumed() {
                progress.failure.get_or_insert(ExchangeError::Closed("result partition"));
            }
        });
    }

    /// The consumer of this subpartition wants nothing more.
    pub(super) fn close(&self, index: usize) {
        self.change(|progress| {
            if !std::mem::replace(&mut progress.closed[index], true) {
                progress.open -= 1;
            }
        });
    }

    /// The consumer of this subpartition has processed everything up to the end of data.
    pub(super) fn acknowledge(&self, index: usize) {
        self.change(|progress| progress.acknowledged[index] = true);
    }

    /// Records that a consumer's process is gone. True if the partition must fail at once.
    pub(super) fn lose(&self, index: usize, cause: &ExchangeError) -> bool {
        let mut progress = self.lock();
        if progress.closed[index] {
            return false;
        }
        progress.losses.push(Loss { index, since: Instant::now(), cause: cause.clone() });
        self.lost_timeout.is_zero()
    }

    /// Waits until the progress is `done`; false on timeout. Calls `pause` between two looks.
    ///
    /// # Errors
    /// As of [`check`](Self::check), or what `pause` returns.
    pub(super) fn wait_until(
        &self,
        done: impl Fn(&Progress) -> bool,
        timeout: Option<Duration>,
        pause: impl Fn() -> Result<()>,
    ) -> Result<bool, Failure> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let progress = self.lock();
            progress.check(self.lost_timeout)?;
            if done(&progress) {
                return Ok(true);
            }
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.changed.wait_timeout(progress, left);
            let progress = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !done(&progress) && progress.failure.is_none() {
                drop(progress);
                pause().map_err(Failure::Known)?;
            }
        }
    }
}
