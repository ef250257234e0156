//! The interface of records of one kind to their writer.

use std::sync::Arc;

use headgate_record::Selector;

use super::lane::Lane;
use crate::counters::Counters;
use crate::error::{Interrupt, Result};
use crate::flusher::TimedFlush;
use crate::partition::ResultPartition;

/// The partition that records are written to, and what happens to them there.
pub struct Destination {
    pub(super) partition: Arc<ResultPartition>,
    pub(super) selector: Selector,
    pub(super) counters: Arc<Counters>,
    /// True if each record is flushed.
    pub(super) flush_always: bool,
    /// The flushing by time; only with a timeout, and until the writer is finished.
    pub(super) timed: Option<Arc<TimedFlush>>,
}

impl Destination {
    pub(super) fn num_subpartitions(&self) -> u32 {
        u32::try_from(self.partition.num_subpartitions()).expect("checked when it was made")
    }

    /// The lane of the next record, if the selector goes by the loads of the subpartitions.
    pub(super) fn lane_by_load(&mut self) -> Option<Lane> {
        let index = self.selector.select_by_load(|| self.partition.loads())?;
        Some(Lane::One(index as usize))
    }
}

/// A kind of records, with the open buffers that they are written into.
pub trait Records {
    /// A record, or a batch of them.
    type Record<'a>;

    /// Writes a record, or all rows of a batch, to a lane; without one, to the subpartitions that the
    /// selector names.
    ///
    /// # Errors
    /// A record of another form or above the limit, the failure of the partition, or what the interrupt
    /// says.
    fn emit(
        &mut self,
        to: &mut Destination,
        lane: Option<Lane>,
        record: Self::Record<'_>,
        interrupt: Interrupt<'_>,
    ) -> Result<()>;

    /// Ends all open buffers, so that an event can follow them.
    fn end_all(&mut self, to: &Destination);

    /// Shows everything that was written to the readers.
    fn flush(&self, to: &Destination);

    /// Returns the call by which the output flusher does this. It returns true if something stays to be
    /// flushed.
    fn timed_flush(&self, to: &Destination) -> Box<dyn Fn() -> bool + Send + Sync>;
}
