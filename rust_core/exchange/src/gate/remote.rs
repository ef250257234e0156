//! A channel from another process: credited segments, received pages, credit given back (spec 8.7).

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use headgate_memory::{Buffer, GlobalPool, LocalPool, PooledSegment, SegmentListener};
use headgate_protocol::{
    BufferHeader, BufferKind, ChannelId, DataType, Generation, ReceiveChannel, Recycled, Totals,
};

use crate::error::{ExchangeError, Result};
use crate::gate::{GateQueue, Taken};

/// Segments that belong to a channel as long as it lives.
const EXCLUSIVE_BUFFERS: usize = 2;
/// How long a new channel waits for segments that others have borrowed.
const EXCLUSIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Segments of a gate that go where the backlog is.
const FLOATING_BUFFERS: usize = 8;

/// Where a channel's messages to its producer go; the I/O thread's mailbox.
pub(crate) trait CreditSink: Send + Sync {
    /// The channel has credit to announce.
    fn credit_available(&self, channel: Arc<RemoteChannel>);
    /// Nothing more is wanted from the producer.
    fn cancel(&self, channel: Arc<RemoteChannel>);
}

/// The segments of all remote channels of one gate.
pub(crate) struct GatePool {
    local: LocalPool,
    segment_size: usize,
    state: Mutex<Needs>,
    /// A listener is registered with the pool, or about to be.
    listening: AtomicBool,
    this: Weak<Self>,
}

#[derive(Default)]
struct Needs {
    /// Exclusive segments of the live channels: the pool's guaranteed minimum.
    promised: usize,
    /// Channels that want a segment, each at most once; those short of exclusive ones first.
    needy: VecDeque<Arc<RemoteChannel>>,
}

impl GatePool {
    pub(crate) fn new(global: &GlobalPool) -> Result<Arc<Self>> {
        let segment_size = global.segment_size();
        let local = global
            .create_local_pool(0, FLOATING_BUFFERS)
            .map_err(|source| ExchangeError::PoolTooSmall {
                what: "an input gate",
                needed: 0,
                segment_size,
                source,
            })?;
        Ok(Arc::new_cyclic(|this| Self {
            local,
            segment_size,
            state: Mutex::default(),
            listening: AtomicBool::new(false),
            this: this.clone(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Needs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises a new channel its exclusive segments, two, or one where that is all there is, and
    /// waits until they are there.
    pub(crate) fn admit(&self) -> Result<Vec<PooledSegment>> {
        let exclusive = self.promise()?;
        let deadline = Instant::now() + EXCLUSIVE_TIMEOUT;
        let mut segments = Vec::with_capacity(exclusive);
        while segments.len() < exclusive {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.local.request(left) {
                Ok(Some(segment)) => segments.push(segment),
                Ok(None) => {
                    self.dismiss(exclusive);
                    return Err(ExchangeError::Memory(format!(
                        "no segment came free for a new channel within {} s",
                        EXCLUSIVE_TIMEOUT.as_secs()
                    )));
                }
                Err(error) => {
                    self.dismiss(exclusive);
                    return Err(ExchangeError::of_request(error, "input gate"));
                }
            }
        }
        Ok(segments)
    }

    fn promise(&self) -> Result<usize> {
        let mut needs = self.lock();
        let mut refused = None;
        for exclusive in (1..=EXCLUSIVE_BUFFERS).rev() {
            let min = needs.promised + exclusive;
            match self.local.set_minimum(min, min + FLOATING_BUFFERS) {
                Ok(()) => {
                    needs.promised = min;
                    return Ok(exclusive);
                }
                Err(source) => refused = Some(source),
            }
        }
        Err(ExchangeError::PoolTooSmall {
            what: "an input gate",
            needed: needs.promised + 1,
            segment_size: self.segment_size,
            source: refused.expect("at least one try was made"),
        })
    }

    fn dismiss(&self, exclusive: usize) {
        let mut needs = self.lock();
        needs.promised -= exclusive;
        // Less is always granted.
        let _ = self
            .local
            .set_minimum(needs.promised, needs.promised + FLOATING_BUFFERS);
    }

    fn want(&self, channel: Arc<RemoteChannel>, urgent: bool) {
        let mut needs = self.lock();
        if urgent {
            needs.needy.push_front(channel);
        } else {
            needs.needy.push_back(channel);
        }
    }

    /// Gives free segments to the channels that want some, until there is none of either.
    pub(crate) fn refill(&self) {
        loop {
            let Some(channel) = self.lock().needy.front().cloned() else {
                return;
            };
            let segment = if self.listening.swap(true, Ordering::AcqRel) {
                self.local.try_request()
            } else {
                let this = self.this.clone();
                let taken = self.local.request_or_listen(|| Arc::new(Refill(this)));
                if !matches!(taken, Ok(None)) {
                    self.listening.store(false, Ordering::Release);
                }
                taken
            };
            match segment {
                Ok(Some(segment)) => {
                    let satisfied = channel.offer(segment);
                    if satisfied {
                        self.lock()
                            .needy
                            .retain(|other| !Arc::ptr_eq(other, &channel));
                        // It may have become needy again before it was taken off the list.
                        channel.ask_for_segments();
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    channel.fail(ExchangeError::of_request(error, "input gate"));
                    self.lock()
                        .needy
                        .retain(|other| !Arc::ptr_eq(other, &channel));
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.lock().needy.clear();
        self.local.close();
    }
}

struct Refill(Weak<GatePool>);

impl SegmentListener for Refill {
    fn segment_available(&self) {
        if let Some(pool) = self.0.upgrade() {
            pool.listening.store(false, Ordering::Release);
            pool.refill();
        }
    }
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
    /// Exclusive segments that were filled and not yet replaced.
    exclusive_out: u32,
    /// On the gate pool's list.
    asked: bool,
    received: VecDeque<(Buffer, DataType)>,
    totals: Option<Totals>,
    failure: Option<ExchangeError>,
    released: bool,
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
    pub(crate) fn new(
        id: ChannelId,
        index: usize,
        name: String,
        exclusive: Vec<PooledSegment>,
        queue: &Arc<GateQueue>,
        pool: &Arc<GatePool>,
        sink: Arc<dyn CreditSink>,
    ) -> Arc<Self> {
        let credit = u32::try_from(exclusive.len()).expect("a handful");
        Arc::new_cyclic(|this| Self {
            id,
            index,
            name,
            exclusive: exclusive.len(),
            queue: Arc::clone(queue),
            pool: Arc::clone(pool),
            sink,
            state: Mutex::new(State {
                receive: ReceiveChannel::new(id, Generation(0), credit),
                free: exclusive,
                exclusive_out: 0,
                asked: false,
                received: VecDeque::new(),
                totals: None,
                failure: None,
                released: false,
            }),
            this: this.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What the partition request announces.
    pub(crate) fn initial_credit(&self) -> NonZeroU32 {
        let exclusive = u32::try_from(self.exclusive).expect("a handful");
        NonZeroU32::new(exclusive).expect("a channel has at least one segment")
    }

    /// A header arrived: says where its payload goes, and spends the credit it used.
    pub(crate) fn begin(&self, header: &BufferHeader) -> Result<Target> {
        let mut state = self.lock();
        if state.released || state.failure.is_some() {
            return Ok(Target::Discard);
        }
        let arrival = state
            .receive
            .on_buffer(header)
            .map_err(|error| self.integrity(&error))?;
        let Some(kind) = arrival.buffer else {
            return Ok(Target::Event(vec![0; header.size as usize]));
        };
        if kind == BufferKind::Exclusive {
            state.exclusive_out += 1;
        }
        let segment = state
            .free
            .pop()
            .expect("the ledger counts what `free` holds");
        drop(state);
        self.ask_for_segments();
        Ok(Target::Segment(segment))
    }

    /// The payload is complete and its checksum right.
    pub(crate) fn deliver(&self, buffer: Buffer, data_type: DataType) -> Result<()> {
        let mut state = self.lock();
        if state.released {
            return Ok(());
        }
        if data_type == DataType::EndOfPartition {
            let totals = totals_of(buffer.as_slice(), &self.name)?;
            state
                .receive
                .on_end(totals)
                .map_err(|error| self.integrity(&error))?;
            state.totals = Some(totals);
        }
        state.received.push_back((buffer, data_type));
        let first = state.received.len() == 1;
        drop(state);
        if first {
            self.queue.notify_non_empty(self.index);
        }
        Ok(())
    }

    /// The credit that the producer does not know of yet.
    pub(crate) fn take_credit(&self) -> Option<NonZeroU32> {
        self.lock().receive.ledger_mut().take_unannounced()
    }

    /// Credit not yet used by the producer, and buffers waiting for the reader.
    pub(crate) fn usage(&self) -> (u32, usize) {
        let state = self.lock();
        (state.receive.ledger().available(), state.received.len())
    }

    /// The channel is broken; what arrived intact before is still read.
    pub(crate) fn fail(&self, cause: ExchangeError) {
        let mut state = self.lock();
        if state.totals.is_none() && !state.released {
            state.failure.get_or_insert(cause);
        }
        drop(state);
        self.queue.notify_non_empty(self.index);
    }

    pub(crate) fn take(&self) -> Result<Option<Taken>> {
        let mut state = self.lock();
        let Some((buffer, data_type)) = state.received.pop_front() else {
            return state.failure.clone().map_or(Ok(None), Err);
        };
        let more = !state.received.is_empty() || state.failure.is_some();
        let totals = state
            .totals
            .filter(|_| data_type == DataType::EndOfPartition);
        Ok(Some(Taken {
            buffer,
            data_type,
            totals,
            more,
        }))
    }

    /// Gives all free segments back; tells the producer if it might still send.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.released, true) {
            return;
        }
        let free = std::mem::take(&mut state.free);
        let received = std::mem::take(&mut state.received);
        state.receive.ledger_mut().close();
        let ended = state.totals.is_some();
        drop(state);
        drop((free, received));
        self.pool.dismiss(self.exclusive);
        if !ended {
            self.sink.cancel(self.me());
        }
    }

    /// Gets on the gate pool's list if a segment is wanted, and has the pool look at it.
    fn ask_for_segments(&self) {
        let mut state = self.lock();
        let wants = state.wants();
        if !wants || std::mem::replace(&mut state.asked, true) {
            return;
        }
        let urgent = state.exclusive_out > 0;
        drop(state);
        self.pool.want(self.me(), urgent);
        self.pool.refill();
    }

    /// Takes a segment from the pool; true when it wants no more and left the list.
    fn offer(&self, segment: PooledSegment) -> bool {
        let mut state = self.lock();
        if !state.wants() {
            state.asked = false;
            // Dropping it may call back into this channel.
            drop(state);
            drop(segment);
            return true;
        }
        let mut excess = None;
        let unannounced = state.receive.ledger().unannounced();
        if state.exclusive_out > 0 {
            state.exclusive_out -= 1;
            let recycled = state
                .receive
                .ledger_mut()
                .on_recycled(BufferKind::Exclusive);
            match recycled.expect("exclusive_out counts what is out") {
                Recycled::Credited => state.free.push(segment),
                Recycled::ReturnFloating | Recycled::ToPool => excess = Some(segment),
            }
        } else {
            state.receive.ledger_mut().on_floating(1);
            state.free.push(segment);
        }
        let announce = unannounced == 0 && state.receive.ledger().unannounced() > 0;
        let satisfied = !state.wants();
        if satisfied {
            state.asked = false;
        }
        drop(state);
        drop(excess);
        if announce {
            self.sink.credit_available(self.me());
        }
        satisfied
    }

    fn integrity(&self, error: &dyn std::fmt::Display) -> ExchangeError {
        ExchangeError::Integrity {
            channel: self.name.clone(),
            detail: error.to_string(),
        }
    }
}

impl State {
    fn wants(&self) -> bool {
        let ledger = self.receive.ledger();
        let open = !self.released && !self.receive.ended() && self.failure.is_none();
        open && (self.exclusive_out > 0 || ledger.available() < ledger.required())
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
