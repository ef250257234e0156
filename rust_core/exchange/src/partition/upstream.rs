//! What consumers tell the writer of a partition, and how it learns of it.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::metrics::Activity;
use crate::partition::{ResultPartition, TaskEvent};

impl ResultPartition {
    /// Takes task events of this name from now on; consumers that send one before get an error.
    ///
    /// # Errors
    /// When it takes them already.
    pub fn subscribe_task_event(&self, name: &str) -> Result<()> {
        if self.task_events.subscribe(name) {
            Ok(())
        } else {
            Err(ExchangeError::State("this task event has a handler already"))
        }
    }

    /// Whether task events wait for the writer's thread; costs no lock.
    pub fn has_task_events(&self) -> bool {
        self.task_events.has_pending()
    }

    /// The oldest task event that nobody took.
    pub fn take_task_event(&self) -> Option<TaskEvent> {
        self.task_events.take()
    }

    pub(crate) fn publish_task_event(&self, index: usize, event: &[u8]) -> Result<()> {
        self.task_events.publish(index, event)
    }

    /// What a buffer for these subpartitions should hold, in bytes: the least that one of them wishes.
    pub(crate) fn buffer_size(&self, targets: Range<usize>) -> usize {
        let wishes = self.subpartitions[targets].iter().map(|target| target.buffer_size());
        wishes.min().unwrap_or(usize::MAX)
    }

    /// The consumer of one subpartition has processed everything up to the end of data.
    pub(crate) fn acknowledged(&self, index: usize) {
        self.lock().acknowledged[index] = true;
        self.changed.notify_all();
    }

    /// Waits until every consumer acknowledged that it processed all records, or has taken the whole
    /// subpartition, or is gone; false on timeout.
    ///
    /// # Errors
    /// Why the partition failed, or what the interrupt says.
    pub fn wait_all_data_processed(
        &self,
        timeout: Option<Duration>,
        interrupt: Interrupt<'_>,
    ) -> Result<bool> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let _wait = self.shared.metrics.timer.wait(Activity::SoftBackPressured);
        loop {
            self.check()?;
            let progress = self.lock();
            let mut each = progress.acknowledged.iter().zip(&progress.closed);
            if each.all(|(acknowledged, closed)| *acknowledged || *closed) {
                return Ok(true);
            }
            let left = deadline.map_or(INTERRUPT_PERIOD, |deadline| {
                deadline.saturating_duration_since(Instant::now()).min(INTERRUPT_PERIOD)
            });
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.changed.wait_timeout(progress, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.shared.foreign.release();
            interrupt()?;
        }
    }
}
