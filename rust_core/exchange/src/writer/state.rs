//! The state that both writers share: the end of data, and flushing by time.
//!
//! Decision: ADR 0015.

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use headgate_protocol::{Alignment, CheckpointId, DataType};
use headgate_record::Event;
use headgate_record::event::Barrier;

use super::barriers::Barriers;
use super::timeout::BufferTimeout;
use crate::clock;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Result};
use crate::event::data_type_of;
use crate::flusher::TimedFlush;
use crate::partition::{PartitionKind, ResultPartition};
use crate::random::random;
use crate::reader::ChannelStates;

/// The state of the one writer of a partition.
pub(super) struct WriterState {
    partition: Arc<ResultPartition>,
    /// True if each record is flushed.
    pub(super) flush_always: bool,
    /// Its flushing by time; only with a timeout, and until it is finished.
    pub(super) timed: Option<Arc<TimedFlush>>,
    barriers: Arc<Barriers>,
    /// The newest barrier with the output flusher, if that has a timeout.
    timed_barrier: Option<Arc<TimedFlush>>,
    /// True once the end of data was announced.
    ended: bool,
    finished: bool,
}

impl WriterState {
    /// The state of a new writer, without a timeout.
    pub(super) fn new(partition: Arc<ResultPartition>) -> Self {
        let barriers = Arc::new(Barriers::new(Arc::clone(&partition)));
        Self {
            partition,
            flush_always: false,
            timed: None,
            barriers,
            timed_barrier: None,
            ended: false,
            finished: false,
        }
    }

    /// Sets the timeout. The environment's output flusher calls `flush` once it has passed since a
    /// write; see [`TimedFlush`].
    ///
    /// # Errors
    /// When the flusher cannot be started.
    pub(super) fn set_timeout(
        &mut self,
        timeout: BufferTimeout,
        environment: &ShuffleEnvironment,
        flush: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        self.flush_always = timeout == BufferTimeout::EveryRecord;
        self.timed = None;
        // A blocking partition is not read before its end.
        let timed = self.partition.kind() != PartitionKind::Blocking;
        if let (true, BufferTimeout::After(timeout)) = (timed, timeout) {
            let partition = Arc::clone(&self.partition);
            let fail = move |cause: &ExchangeError| partition.fail(cause);
            self.timed = Some(environment.flusher().register(timeout, flush, fail)?);
        }
        Ok(())
    }

    /// # Errors
    /// Why the output flusher failed.
    pub(super) fn check_flusher(&self) -> Result<()> {
        self.timed.as_ref().map_or(Ok(()), |timed| timed.check())
    }

    /// # Errors
    /// After the end, or the failure of the flusher or of the partition.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.finished {
            return Err(ExchangeError::Closed("record writer"));
        }
        self.check_flusher()?;
        self.partition.check()
    }

    /// # Errors
    /// As [`check_open`](Self::check_open), and after the end of data.
    pub(super) fn check_emits(&self) -> Result<()> {
        if self.ended {
            return Err(ExchangeError::State(
                "the end of data was announced: no record can follow it",
            ));
        }
        self.check_open()
    }

    /// # Errors
    /// When the end of data was announced before.
    pub(super) fn check_not_ended(&self) -> Result<()> {
        if self.ended {
            return Err(ExchangeError::State("the end of data was announced before"));
        }
        Ok(())
    }

    /// Appends an event to every subpartition. It needs no segment of the pool, yet must fit one:
    /// nothing larger crosses a connection.
    ///
    /// # Errors
    /// An event that cannot be encoded or is too large, or a type that a stored partition cannot
    /// take.
    pub(super) fn broadcast_event(&self, event: &Event, data_type: DataType) -> Result<()> {
        let bytes = self.checked(event, data_type)?;
        for subpartition in self.partition.subpartitions() {
            subpartition.add_event(bytes.clone(), data_type);
        }
        Ok(())
    }

    /// Sends the barrier of a checkpoint to every subpartition. The environment's output flusher lets
    /// it overtake when its timeout has passed.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event), or when the flusher cannot be started.
    pub(super) fn broadcast_barrier(
        &mut self,
        barrier: &Barrier,
        environment: &ShuffleEnvironment,
    ) -> Result<()> {
        let is_priority = barrier.options.alignment == Alignment::Unaligned;
        let event = Event::CheckpointBarrier(barrier.clone());
        let data_type = data_type_of(&event, is_priority);
        self.checked(&event, data_type)?;
        self.timed_barrier = None;
        self.barriers.send(barrier, data_type)?;
        if let Some(deadline) = barrier.deadline() {
            let (barriers, partition) = (Arc::clone(&self.barriers), Arc::clone(&self.partition));
            let overtake = move || {
                if let Err(error) = barriers.time_out() {
                    partition.fail(&error);
                }
                false
            };
            let partition = Arc::clone(&self.partition);
            let fail = move |cause: &ExchangeError| partition.fail(cause);
            let timed = environment.flusher().register(clock::until(deadline), overtake, fail)?;
            timed.written();
            self.timed_barrier = Some(timed);
        }
        Ok(())
    }

    /// Takes the data that the barrier of a checkpoint overtook; see [`Barriers`].
    ///
    /// # Errors
    /// Another barrier was sent last, or it was taken.
    pub(super) fn take_channel_state(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<ChannelStates>> {
        self.barriers.take_channel_state(checkpoint)
    }

    /// Tells every consumer that a checkpoint was given up.
    ///
    /// # Errors
    /// As [`broadcast_event`](Self::broadcast_event).
    pub(super) fn broadcast_cancellation(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.barriers.cancel(checkpoint);
        let event = Event::CancelCheckpointMarker { checkpoint_id: checkpoint.0 };
        self.broadcast_event(&event, DataType::EventBuffer)
    }

    /// Encodes an event that can be sent to every subpartition.
    fn checked(&self, event: &Event, data_type: DataType) -> Result<Bytes> {
        let overtakes_or_blocks = data_type.has_priority() || data_type.blocks_upstream();
        if overtakes_or_blocks && self.partition.kind().is_stored() {
            return Err(ExchangeError::State(
                "a blocking or hybrid partition takes no barrier and no event with priority: what is \
                 on disk cannot be overtaken",
            ));
        }
        let bytes = event.encode().map_err(|error| ExchangeError::Event(error.to_string()))?;
        let limit = self.partition.segments().segment_size() as u64;
        let size = bytes.len() as u64;
        if size > limit {
            return Err(ExchangeError::EventTooLarge { size, limit });
        }
        Ok(bytes)
    }

    /// Records that the end of data was announced.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Ends writing and flushing. True at the first call.
    pub(super) fn finish(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.finished, true);
        if first {
            self.timed = None;
        }
        first
    }
}

/// A source of choices for `random_emit`, seeded by the operating system: fastrand's own seeds
/// repeat in forked processes.
pub(super) fn random_choices() -> Result<Rng> {
    Ok(Rng::with_seed(u64::from_le_bytes(random()?)))
}
