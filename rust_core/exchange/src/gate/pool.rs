//! The segments of a gate's remote channels: exclusive ones promised to each, floating ones for
//! those with a backlog (spec 1.7, 8.7).
//!
//! [`SegmentQueue`] decides which channel gets the next segment; this module moves the segments.

use std::sync::{Arc, Mutex, Weak};

use headgate_memory::{GlobalPool, LocalPool, PooledSegment, RequestError, SegmentListener, lock};
use headgate_protocol::{BufferKind, QueuedFor, SegmentQueue};

use crate::config::BufferOptions;
use crate::error::{ExchangeError, Result};

/// A channel that fills segments of its gate's pool.
pub(crate) trait SegmentConsumer: Send + Sync {
    /// The channel's place in the queue. Changes only under the queue's lock.
    fn queued_for(&self) -> &Mutex<QueuedFor>;
    /// Returns the kind of segment the channel needs next.
    fn wants(&self) -> Option<BufferKind>;
    /// Takes a free segment, or drops it if the channel needs none any more.
    fn offer(&self, segment: PooledSegment);
    /// Fails the channel: the pool cannot give it segments.
    fn fail(&self, cause: ExchangeError);
}

/// A channel in the queue, compared by identity.
#[derive(Clone)]
struct Waiting(Arc<dyn SegmentConsumer>);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The segments of all remote channels of one gate.
pub(crate) struct GatePool {
    local: LocalPool,
    segment_size: usize,
    /// Exclusive segments per channel.
    exclusive: usize,
    /// Floating segments, shared by all channels.
    floating: usize,
    /// Exclusive segments of the open channels: the local pool's guaranteed minimum. Held while the
    /// minimum changes, which may call `refill`; so `refill` never takes this lock.
    promised: Mutex<usize>,
    queue: Mutex<SegmentQueue<Waiting>>,
    this: Weak<Self>,
}

impl GatePool {
    pub(crate) fn new(global: &GlobalPool, buffers: &BufferOptions) -> Result<Arc<Self>> {
        let (exclusive, floating) =
            (buffers.buffers_per_channel, buffers.floating_buffers_per_gate);
        let segment_size = global.segment_size();
        // Without exclusive segments one floating segment is guaranteed, so that data can flow.
        let needed = usize::from(exclusive == 0);
        let local = global.create_local_pool(needed, floating).map_err(|source| {
            ExchangeError::PoolTooSmall { what: "an input gate", needed, segment_size, source }
        })?;
        Ok(Arc::new_cyclic(|this| Self {
            local,
            segment_size,
            exclusive,
            floating,
            promised: Mutex::default(),
            queue: Mutex::new(SegmentQueue::new()),
            this: this.clone(),
        }))
    }

    /// Promises a new channel its exclusive segments, or as many as the global pool guarantees, at
    /// least one. Returns the promised number, and those segments that are free now. The channel
    /// [asks](Self::ask) for the others.
    pub(crate) fn admit(&self) -> Result<(usize, Vec<PooledSegment>)> {
        if self.exclusive == 0 {
            return Ok((0, Vec::new()));
        }
        let _admission = Admission::new(self);
        let exclusive = self.promise()?;
        let segments = self.collect(exclusive).inspect_err(|_| self.dismiss(exclusive))?;
        Ok((exclusive, segments))
    }

    /// Takes up to `count` free segments; none while another channel still lacks exclusive ones.
    fn collect(&self, count: usize) -> Result<Vec<PooledSegment>> {
        let mut segments = Vec::with_capacity(count);
        while segments.len() < count {
            fail_point!("pool.exclusive", text => return Err(ExchangeError::Aborted(text)));
            let queue = lock(&self.queue);
            if queue.misses_exclusive() {
                break;
            }
            let requested = self.local.try_request();
            match requested.map_err(|error| ExchangeError::of_request(error, "input gate"))? {
                Some(segment) => segments.push(segment),
                None => break,
            }
        }
        Ok(segments)
    }

    fn promise(&self) -> Result<usize> {
        fail_point!("pool.promised", text => return Err(ExchangeError::Aborted(text)));
        let mut promised = lock(&self.promised);
        let mut refused = None;
        for exclusive in (1..=self.exclusive).rev() {
            let min = *promised + exclusive;
            // More than one only if the global pool keeps room for many more channels.
            let leave = if exclusive > 1 { self.floating } else { 0 };
            match self.local.set_minimum(min, min + self.floating, leave) {
                Ok(()) => {
                    *promised = min;
                    return Ok(exclusive);
                }
                Err(source) => refused = Some(source),
            }
        }
        Err(ExchangeError::PoolTooSmall {
            what: "an input gate",
            needed: *promised + 1,
            segment_size: self.segment_size,
            source: refused.expect("at least one try was made"),
        })
    }

    /// Takes back the promise of a channel's exclusive segments.
    pub(crate) fn dismiss(&self, exclusive: usize) {
        if exclusive == 0 {
            return;
        }
        let mut promised = lock(&self.promised);
        *promised -= exclusive;
        let lowered = self.local.set_minimum(*promised, *promised + self.floating, 0);
        debug_assert!(lowered.is_ok(), "a lower minimum is always granted");
    }

    /// Returns how many segments the pool may hold now, and how many it holds.
    pub(super) fn usage(&self) -> (usize, usize) {
        self.local.usage()
    }

    /// Bytes of a segment.
    pub(crate) fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// Queues a channel that wants a segment, and hands out free ones.
    pub(super) fn ask(&self, channel: &Arc<dyn SegmentConsumer>) {
        self.update(&Waiting(Arc::clone(channel)));
        self.refill();
    }

    /// Takes a released channel out of the queue.
    pub(super) fn forget(&self, channel: &Arc<dyn SegmentConsumer>) {
        let channel = Waiting(Arc::clone(channel));
        lock(&self.queue).update(&channel, &mut lock(channel.0.queued_for()), None);
    }

    /// Queues the channel, moves it or takes it out of the queue, according to the kind of segment
    /// that it needs next.
    fn update(&self, channel: &Waiting) {
        let mut queue = lock(&self.queue);
        // Read under the queue's lock, so that no older answer overwrites a newer one.
        let wants = channel.0.wants();
        queue.update(channel, &mut lock(channel.0.queued_for()), wants);
    }

    /// Hands out free segments, one per channel and turn, until none is free or wanted.
    fn refill(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let Some(channel) = queue.next().cloned() else {
                return;
            };
            match self.take_or_listen(&mut queue) {
                Ok(None) => return,
                Ok(Some(segment)) => {
                    queue.update(&channel, &mut lock(channel.0.queued_for()), None);
                    drop(queue);
                    fail_point!("pool.floating");
                    channel.0.offer(segment);
                    self.update(&channel);
                }
                Err(error) => {
                    queue.update(&channel, &mut lock(channel.0.queued_for()), None);
                    drop(queue);
                    channel.0.fail(ExchangeError::of_request(error, "input gate"));
                }
            }
        }
    }

    /// Takes a free segment; if there is none, the pool calls `refill` once there is.
    fn take_or_listen(
        &self,
        queue: &mut SegmentQueue<Waiting>,
    ) -> std::result::Result<Option<PooledSegment>, RequestError> {
        if queue.is_listening() {
            return self.local.try_request();
        }
        let this = self.this.clone();
        let taken = self.local.request_or_listen(|| Arc::new(Refill(this)));
        if matches!(taken, Ok(None)) {
            queue.on_empty();
        }
        taken
    }

    pub(crate) fn close(&self) {
        for channel in lock(&self.queue).drain() {
            *lock(channel.0.queued_for()) = QueuedFor::default();
        }
        self.local.close();
    }
}

/// The admission of a channel, until it is dropped.
struct Admission<'a>(&'a GatePool);

impl<'a> Admission<'a> {
    fn new(pool: &'a GatePool) -> Self {
        lock(&pool.queue).begin_admission();
        Self(pool)
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).end_admission();
        self.0.refill();
    }
}

struct Refill(Weak<GatePool>);

impl SegmentListener for Refill {
    fn segment_available(&self) {
        fail_point!("pool.returned");
        if let Some(pool) = self.0.upgrade() {
            lock(&pool.queue).on_available();
            pool.refill();
        }
    }
}

#[cfg(test)]
mod tests;
