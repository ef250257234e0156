//! A channel from another process: segments with credit, received pages, and credit announced again
//! (spec 8.7).

use std::fmt::Display;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use headgate_memory::{Buffer, PooledSegment, lock};
use headgate_net::{Channel, ConnectionError, CreditSink, Target, UpstreamMessage};
use headgate_protocol::{
    BufferHeader, BufferKind, ChannelId, ChannelStateBuilder, CheckpointId, DataType,
    PrioritizedDeque, QueuedFor, ReceiveChannel, Sequence,
};
use headgate_record::EventError;
use headgate_record::compression::plain_len;

use crate::error::{ExchangeError, Result};
use crate::gate::announcement::{Arrived, prioritize};
use crate::gate::channel::{InputChannel, More, Taken, totals_of};
use crate::gate::persisting::Persisting;
use crate::gate::pool::{GatePool, SegmentConsumer};
use crate::gate::queue::GateQueue;
use crate::metrics::Passed;
use crate::stats::{ChannelStats, Origin, Queued, Usage};

/// The consumer's end of a subpartition of another process.
pub(crate) struct RemoteChannel {
    id: ChannelId,
    index: usize,
    name: String,
    exclusive: usize,
    queue: Arc<GateQueue>,
    pool: Arc<GatePool>,
    sink: Arc<dyn CreditSink>,
    state: Mutex<State>,
    queued_for: Mutex<QueuedFor>,
    this: Weak<Self>,
}

struct State {
    receive: ReceiveChannel,
    /// Free segments. Invariant: as many as the ledger's `available`.
    free: Vec<PooledSegment>,
    /// Buffers that wait for the reader, priority events first.
    received: PrioritizedDeque<Arrived>,
    persisting: Persisting,
    /// Data buffers that the reader took.
    taken: Passed,
    failure: Option<ExchangeError>,
    released: bool,
    /// True from a barrier that the reader took until it resumes the channel.
    blocked: bool,
}

impl RemoteChannel {
    /// Creates a channel. `free` has as many segments as the ledger of `receive` has free buffers.
    pub(crate) fn new(
        receive: ReceiveChannel,
        index: usize,
        name: String,
        free: Vec<PooledSegment>,
        queue: &Arc<GateQueue>,
        pool: &Arc<GatePool>,
        sink: Arc<dyn CreditSink>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            id: receive.channel(),
            index,
            name,
            exclusive: receive.ledger().promised() as usize,
            queue: Arc::clone(queue),
            pool: Arc::clone(pool),
            sink,
            state: Mutex::new(State {
                receive,
                free,
                received: PrioritizedDeque::new(),
                persisting: Persisting::default(),
                taken: Passed::default(),
                failure: None,
                released: false,
                blocked: false,
            }),
            queued_for: Mutex::default(),
            this: this.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn me(&self) -> Arc<Self> {
        self.this.upgrade().expect("called through an Arc")
    }

    /// Fails the channel. Buffers that arrived before are still read.
    fn end(&self, cause: ExchangeError) {
        let mut state = self.lock();
        if state.receive.declared().is_none() && !state.released {
            state.failure.get_or_insert(cause);
            state.receive.ledger_mut().stop();
        }
        drop(state);
        self.queue.notify_non_empty(self.index);
    }

    /// Returns true if no message to the producer has an effect any more.
    fn is_over(&self) -> bool {
        let state = self.lock();
        state.released || state.receive.declared().is_some() || state.failure.is_some()
    }

    /// Asks the gate's pool for a segment if the channel wants one.
    pub(crate) fn ask_for_segments(&self) {
        if self.wants().is_some() {
            self.pool.ask(&self.consumer());
        }
    }

    fn consumer(&self) -> Arc<dyn SegmentConsumer> {
        self.me()
    }

    fn integrity(&self, error: &dyn Display) -> ConnectionError {
        ConnectionError::Integrity { channel: self.name.clone(), detail: error.to_string() }
    }
}

impl Channel for RemoteChannel {
    fn id(&self) -> ChannelId {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, header: &BufferHeader) -> Result<Target, ConnectionError> {
        let mut state = self.lock();
        if state.released || state.failure.is_some() {
            return Ok(Target::Discard);
        }
        state.receive.on_buffer(header).map_err(|error| self.integrity(&error))?;
        if header.data_type.is_event() {
            let mut given_up = Vec::new();
            if header.data_type.blocks_upstream() {
                // The producer drops the credit for these when it resumes.
                let count = state.receive.ledger_mut().on_blocked() as usize;
                let kept = state.free.len() - count;
                given_up = state.free.split_off(kept);
            }
            drop(state);
            drop(given_up);
            // Its backlog may be the first that the channel learns of.
            self.ask_for_segments();
            return Ok(Target::Event(vec![0; header.size as usize]));
        }
        fail_point!("credit.spent");
        let segment = state.free.pop().expect("the ledger counts what `free` holds");
        drop(state);
        self.ask_for_segments();
        Ok(Target::Segment(segment))
    }

    fn freeze_compressed(
        &self,
        payload: PooledSegment,
        size: usize,
        sequence: Sequence,
    ) -> Option<Buffer> {
        match plain_len(&payload[..size], payload.len()) {
            Ok(plain_len) => Some(Buffer::freeze_compressed(payload, size, plain_len)),
            Err(error) => {
                self.end(ExchangeError::damaged(&self.name, sequence, &error));
                None
            }
        }
    }

    /// A barrier with a timeout is announced ahead of the
    /// buffers that arrived before it.
    fn deliver(
        &self,
        buffer: Buffer,
        data_type: DataType,
        sequence: Sequence,
    ) -> Result<(), ConnectionError> {
        let mut state = self.lock();
        if state.released {
            return Ok(());
        }
        if buffer.is_compressed() {
            let plain_len = u32::try_from(buffer.plain_len()).expect("within a segment");
            state.receive.on_compressed(plain_len);
        }
        if data_type == DataType::EndOfPartition {
            let totals = totals_of(buffer.as_slice()).map_err(|error| self.integrity(&error))?;
            state.receive.on_end(totals).map_err(|error| self.integrity(&error))?;
        }
        if data_type.is_buffer() {
            state.persisting.on_data(&buffer, data_type);
        } else {
            state.persisting.on_event(&buffer, data_type, sequence);
        }
        let arrived = Arrived::new(buffer, data_type, sequence);
        let announced = data_type.requires_announcement();
        let priority = announced || data_type.has_priority();
        if announced {
            let announcement = arrived.announcement();
            let unreadable = |error: EventError| ConnectionError::Event(error.to_string());
            state.received.add_priority(announcement.map_err(unreadable)?);
        }
        if data_type.has_priority() {
            state.received.add_priority(arrived);
        } else {
            state.received.add(arrived);
        }
        let first = state.received.len() == 1;
        drop(state);
        if priority {
            self.queue.notify_priority_event(self.index, sequence);
        } else if first {
            self.queue.notify_non_empty(self.index);
        }
        Ok(())
    }

    fn on_backlog(&self, backlog: NonZeroU32) {
        let mut state = self.lock();
        if !state.released && state.failure.is_none() {
            state.receive.ledger_mut().on_backlog(backlog.get());
        }
        drop(state);
        self.ask_for_segments();
    }

    fn take_credit(&self) -> Option<NonZeroU32> {
        fail_point!("credit.announced");
        self.lock().receive.ledger_mut().take_unannounced()
    }

    fn resumed(&self) {
        self.lock().receive.ledger_mut().on_resumed();
    }

    fn fail(&self, cause: ConnectionError) {
        self.end(cause.into());
    }
}

impl InputChannel for RemoteChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_local(&self) -> bool {
        false
    }

    fn take(&self) -> Result<Option<Taken>> {
        let mut state = self.lock();
        let Some(arrived) = state.received.poll() else {
            return state.failure.clone().map_or(Ok(None), Err);
        };
        let Arrived { buffer, data_type, sequence, blocks_upstream } = arrived;
        state.blocked |= blocks_upstream;
        if data_type.is_buffer() {
            state.taken.add(buffer.plain_len());
        }
        let more = if state.received.priority_len() > 0 {
            More::PriorityEvent
        } else if !state.received.is_empty() || state.failure.is_some() {
            More::Something
        } else {
            More::Nothing
        };
        let ended = data_type == DataType::EndOfPartition;
        let totals = state.receive.declared().filter(|_| ended);
        Ok(Some(Taken { buffer, data_type, sequence, totals, more }))
    }

    fn release(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.released, true) {
            return;
        }
        let free = std::mem::take(&mut state.free);
        let received = std::mem::take(&mut state.received);
        let closed = state.receive.ledger_mut().close();
        debug_assert_eq!(closed as usize, free.len(), "the ledger counts what `free` holds");
        let ended = state.receive.declared().is_some();
        drop(state);
        fail_point!("channel.released");
        drop((free, received));
        self.pool.forget(&self.consumer());
        self.pool.dismiss(self.exclusive);
        if !ended {
            self.sink.cancel(self.me());
        }
    }

    fn tell(&self, message: UpstreamMessage) {
        if !self.is_over() {
            self.sink.tell(self.me(), message);
        }
    }

    fn resume(&self) -> Result<()> {
        if !std::mem::take(&mut self.lock().blocked) {
            return Err(ExchangeError::State("the channel is not blocked by a barrier"));
        }
        if !self.is_over() {
            self.sink.resume(self.me());
        }
        Ok(())
    }

    fn convert_to_priority(&self, sequence: Sequence) -> bool {
        let converted = prioritize(&mut self.lock().received, sequence);
        if converted {
            // The announcement had the same number, so an ordinary notification would be ignored.
            self.queue.force_priority_event(self.index);
        }
        converted
    }

    fn start_persisting(&self, checkpoint: CheckpointId) -> Result<bool> {
        let State { persisting, received, .. } = &mut *self.lock();
        let waiting = received.iter().map(|it| (&it.buffer, it.data_type, it.sequence));
        Ok(persisting.start(checkpoint, waiting))
    }

    fn stop_persisting(&self, checkpoint: CheckpointId) {
        self.lock().persisting.stop(checkpoint);
    }

    fn take_persisted(&self, checkpoint: CheckpointId) -> Option<ChannelStateBuilder> {
        self.lock().persisting.take(checkpoint)
    }

    fn buffers_in_use(&self) -> usize {
        let state = self.lock();
        state.received.len() + state.receive.ledger().outstanding() as usize
    }

    fn stats(&self) -> ChannelStats {
        let state = self.lock();
        let data = state.received.iter().filter(|arrived| arrived.data_type.is_buffer());
        let bytes = data.map(|arrived| arrived.buffer.plain_len() as u64).sum();
        let size = if state.released { 0 } else { self.exclusive };
        let used = size.min(state.receive.ledger().exclusive_out() as usize);
        ChannelStats {
            name: self.name.clone(),
            origin: Origin::Remote,
            credit: Some(state.receive.ledger().available()),
            queue: Queued { buffers: state.received.len(), bytes },
            taken: state.taken,
            exclusive: Usage { used, size },
            free: state.free.len(),
        }
    }
}

impl SegmentConsumer for RemoteChannel {
    fn queued_for(&self) -> &Mutex<QueuedFor> {
        &self.queued_for
    }

    fn wants(&self) -> Option<BufferKind> {
        self.lock().receive.ledger().wants()
    }

    fn offer(&self, segment: PooledSegment) {
        let mut state = self.lock();
        let unannounced = state.receive.ledger().unannounced();
        let excess = if state.receive.ledger_mut().on_offered() {
            state.free.push(segment);
            None
        } else {
            Some(segment)
        };
        let announce = unannounced == 0 && state.receive.ledger().unannounced() > 0;
        drop(state);
        // Its return to the pool may call back into the channel.
        drop(excess);
        if announce {
            self.sink.credit_available(self.me());
        }
    }

    fn fail(&self, cause: ExchangeError) {
        self.end(cause);
    }
}
