//! A channel from another process: credited segments, received pages, credit given back (spec 8.7).

mod usage;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use headgate_memory::{Buffer, PooledSegment};
use headgate_protocol::{
    BufferHeader, BufferKind, ChannelId, DataType, PrioritizedDeque, ReceiveChannel, Sequence,
    Totals,
};

use crate::error::{ExchangeError, Result};
use crate::gate::announcement::{Arrived, prioritize};
use crate::gate::pool::SegmentConsumer;
use crate::gate::{GatePool, GateQueue, More, Taken, UpstreamMessage};
use crate::lock::lock;
use crate::metrics::Passed;

/// Where a channel's messages to its producer go; the I/O thread's mailbox.
pub(crate) trait CreditSink: Send + Sync {
    /// The channel has credit to announce.
    fn credit_available(&self, channel: Arc<RemoteChannel>);
    /// Nothing more is wanted from the producer.
    fn cancel(&self, channel: Arc<RemoteChannel>);
    /// The producer may go on behind a barrier.
    fn resume(&self, channel: Arc<RemoteChannel>);
    /// The channel has something else to say to its producer.
    fn tell(&self, channel: Arc<RemoteChannel>, message: UpstreamMessage);
}

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
    this: Weak<Self>,
}

struct State {
    receive: ReceiveChannel,
    /// Free segments: as many as the ledger says are available.
    free: Vec<PooledSegment>,
    /// Priority events first.
    received: PrioritizedDeque<Arrived>,
    /// Data buffers that the reader took.
    taken: Passed,
    failure: Option<ExchangeError>,
    released: bool,
    /// The reader took a barrier that stops the producer, and has not resumed it.
    blocked: bool,
}

/// Where the payload of an announced buffer goes.
pub(crate) enum Target {
    /// A credited segment.
    Segment(PooledSegment),
    /// Ordinary memory of the exact size: an event, never more than the event limit.
    Event(Vec<u8>),
    /// Nowhere: nobody reads this channel any more.
    Discard,
}

impl RemoteChannel {
    /// A channel with the segments that `receive` says are there.
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
                taken: Passed::default(),
                failure: None,
                released: false,
                blocked: false,
            }),
            this: this.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn me(&self) -> Arc<Self> {
        self.this.upgrade().expect("called through an Arc")
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A header arrived: says where its payload goes, and spends the credit it used.
    pub(crate) fn begin(&self, header: &BufferHeader) -> Result<Target> {
        let mut state = self.lock();
        if state.released || state.failure.is_some() {
            return Ok(Target::Discard);
        }
        state.receive.on_buffer(header).map_err(|error| self.integrity(&error))?;
        if header.data_type.is_event() {
            let mut given_up = Vec::new();
            if header.data_type.blocks_upstream() {
                // The producer forgets its credit for them when it goes on.
                let count = state.receive.ledger_mut().on_blocked() as usize;
                let kept = state.free.len() - count;
                given_up = state.free.split_off(kept);
            }
            drop(state);
            drop(given_up);
            // It may be the first to tell of data behind it.
            self.ask_for_segments();
            return Ok(Target::Event(vec![0; header.size as usize]));
        }
        fail_point!("credit.spent");
        let segment = state.free.pop().expect("the ledger counts what `free` holds");
        drop(state);
        self.ask_for_segments();
        Ok(Target::Segment(segment))
    }

    /// The payload is complete and its checksum right. A barrier for which the reader waits only for a
    /// time is announced ahead of what arrived before it.
    pub(crate) fn deliver(
        &self,
        buffer: Buffer,
        data_type: DataType,
        sequence: Sequence,
    ) -> Result<()> {
        let mut state = self.lock();
        if state.released {
            return Ok(());
        }
        if buffer.is_compressed() {
            let plain_len = u32::try_from(buffer.plain_len()).expect("within a segment");
            state.receive.on_compressed(plain_len);
        }
        if data_type == DataType::EndOfPartition {
            let totals = totals_of(buffer.as_slice(), &self.name)?;
            state.receive.on_end(totals).map_err(|error| self.integrity(&error))?;
        }
        let arrived = Arrived::new(buffer, data_type, sequence);
        let announced = data_type.requires_announcement();
        let priority = announced || data_type.has_priority();
        if announced {
            state.received.add_priority(arrived.announcement()?);
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

    /// Data waits for a channel that has no segments of its own, so no header could say so.
    pub(crate) fn on_backlog(&self, backlog: NonZeroU32) {
        let mut state = self.lock();
        if !state.released && state.failure.is_none() {
            state.receive.ledger_mut().on_backlog(backlog.get());
        }
        drop(state);
        self.ask_for_segments();
    }

    /// The credit that the producer does not know of yet.
    pub(crate) fn take_credit(&self) -> Option<NonZeroU32> {
        fail_point!("credit.announced");
        self.lock().receive.ledger_mut().take_unannounced()
    }

    /// Buffers that wait for the reader, and at the producer beyond the channel's own.
    pub(super) fn buffers_in_use(&self) -> usize {
        let state = self.lock();
        state.received.len() + state.receive.ledger().outstanding() as usize
    }

    /// The channel is broken; what arrived intact before is still read.
    pub(crate) fn fail(&self, cause: ExchangeError) {
        let mut state = self.lock();
        if state.receive.declared().is_none() && !state.released {
            state.failure.get_or_insert(cause);
            state.receive.ledger_mut().stop();
        }
        drop(state);
        self.queue.notify_non_empty(self.index);
    }

    pub(crate) fn take(&self) -> Result<Option<Taken>> {
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

    /// Lets an announced barrier overtake what arrived before it; false if it does not wait here.
    pub(super) fn convert_to_priority(&self, sequence: Sequence) -> bool {
        let converted = prioritize(&mut self.lock().received, sequence);
        if converted {
            // Its number was seen with the announcement: told as it is, it would count as read.
            self.queue.force_priority_event(self.index);
        }
        converted
    }

    /// Tells the producer something, unless the channel is over.
    pub(crate) fn tell(&self, message: UpstreamMessage) {
        if !self.is_over() {
            self.sink.tell(self.me(), message);
        }
    }

    /// Lets the producer go on behind a barrier.
    pub(crate) fn resume(&self) -> Result<()> {
        if !std::mem::take(&mut self.lock().blocked) {
            return Err(ExchangeError::State("the channel is not blocked by a barrier"));
        }
        if !self.is_over() {
            self.sink.resume(self.me());
        }
        Ok(())
    }

    /// The producer is told to go on: credit that is announced from now on reaches it after that.
    pub(crate) fn resumed(&self) {
        self.lock().receive.ledger_mut().on_resumed();
    }

    /// Whether there is nobody left to tell anything.
    fn is_over(&self) -> bool {
        let state = self.lock();
        state.released || state.receive.declared().is_some() || state.failure.is_some()
    }

    /// Gives all free segments back; tells the producer if it might still send.
    pub(crate) fn release(&self) {
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

    /// Asks the gate's pool for a segment if the channel wants one.
    pub(crate) fn ask_for_segments(&self) {
        if self.wants().is_some() {
            self.pool.ask(&self.consumer());
        }
    }

    fn consumer(&self) -> Arc<dyn SegmentConsumer> {
        self.me()
    }

    fn integrity(&self, error: &dyn std::fmt::Display) -> ExchangeError {
        ExchangeError::Integrity { channel: self.name.clone(), detail: error.to_string() }
    }
}

impl SegmentConsumer for RemoteChannel {
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
        self.fail(cause);
    }
}

/// What the producer says it sent, behind the four bytes of its EndOfPartition.
pub(crate) fn totals_of(event: &[u8], channel: &str) -> Result<Totals> {
    let body = event.get(4..).unwrap_or_default();
    Totals::decode(body).map_err(|error| ExchangeError::Integrity {
        channel: channel.to_owned(),
        detail: error.to_string(),
    })
}

/// Compares what arrived with what was sent, rows aside: only the reader counts those.
pub(crate) fn compare_totals(received: &Totals, sent: &Totals, channel: &str) -> Result<()> {
    if (received.bytes, received.buffers) == (sent.bytes, sent.buffers) {
        return Ok(());
    }
    Err(ExchangeError::Integrity {
        channel: channel.to_owned(),
        detail: format!(
            "{} bytes in {} buffers arrived, {} bytes in {} buffers were sent",
            received.bytes, received.buffers, sent.bytes, sent.buffers
        ),
    })
}
