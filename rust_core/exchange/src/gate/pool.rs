//! The segments of a gate's remote channels: exclusive ones promised, floating ones where they are
//! wanted (spec 1.7, 8.7).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use headgate_memory::{GlobalPool, LocalPool, PooledSegment, SegmentListener};

use crate::config::BufferOptions;
use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::gate::RemoteChannel;
use crate::lock::lock;

/// How long a new channel waits for segments that others have borrowed.
const EXCLUSIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// The segments of all remote channels of one gate.
pub(crate) struct GatePool {
    local: LocalPool,
    segment_size: usize,
    /// Segments that belong to a channel as long as it lives.
    exclusive: usize,
    /// Segments that go where the backlog is.
    floating: usize,
    /// Exclusive segments of the live channels: the pool's guaranteed minimum. Held while that is
    /// changed, which may call `refill`; so `refill` never takes it.
    promised: Mutex<usize>,
    /// New channels that wait for their exclusive segments. Nobody else takes a segment meanwhile,
    /// or what is promised to them would go to other channels as floating ones.
    admitting: Mutex<usize>,
    /// Channels that want a segment; those short of exclusive ones first. A channel's `queued` says
    /// whether it is in here, and changes under this lock only.
    needy: Mutex<VecDeque<Arc<RemoteChannel>>>,
    /// A listener is registered with the pool, or about to be.
    listening: AtomicBool,
    this: Weak<Self>,
}

impl GatePool {
    pub(crate) fn new(global: &GlobalPool, buffers: &BufferOptions) -> Result<Arc<Self>> {
        let (exclusive, floating) =
            (buffers.buffers_per_channel, buffers.floating_buffers_per_gate);
        let segment_size = global.segment_size();
        // Without exclusive segments one of the floating ones is certain, so that data can flow.
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
            admitting: Mutex::default(),
            needy: Mutex::default(),
            listening: AtomicBool::new(false),
            this: this.clone(),
        }))
    }

    /// Promises a new channel its exclusive segments, or as many as there are, at least one, and
    /// waits until they are there.
    pub(crate) fn admit(&self, interrupt: Interrupt<'_>) -> Result<Vec<PooledSegment>> {
        if self.exclusive == 0 {
            return Ok(Vec::new());
        }
        let _admission = Admission::new(self);
        let exclusive = self.promise()?;
        let segments = self.collect(exclusive, interrupt);
        segments.inspect_err(|_| self.dismiss(exclusive))
    }

    fn collect(&self, count: usize, interrupt: Interrupt<'_>) -> Result<Vec<PooledSegment>> {
        let deadline = Instant::now() + EXCLUSIVE_TIMEOUT;
        let mut segments = Vec::with_capacity(count);
        while segments.len() < count {
            fail_point!("pool.exclusive", error => return Err(error));
            let requested = self.local.request(INTERRUPT_PERIOD);
            match requested.map_err(|error| ExchangeError::of_request(error, "input gate"))? {
                Some(segment) => segments.push(segment),
                None if Instant::now() >= deadline => {
                    return Err(ExchangeError::Memory(format!(
                        "no segment came free for a new channel within {} s",
                        EXCLUSIVE_TIMEOUT.as_secs()
                    )));
                }
                None => interrupt()?,
            }
        }
        Ok(segments)
    }

    fn promise(&self) -> Result<usize> {
        fail_point!("pool.promised", error => return Err(error));
        let mut promised = lock(&self.promised);
        let mut refused = None;
        for exclusive in (1..=self.exclusive).rev() {
            let min = *promised + exclusive;
            // More than one only where many more channels could still come.
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

    /// The channel needs its exclusive segments no more.
    pub(crate) fn dismiss(&self, exclusive: usize) {
        if exclusive == 0 {
            return;
        }
        let mut promised = lock(&self.promised);
        *promised -= exclusive;
        let lowered = self.local.set_minimum(*promised, *promised + self.floating, 0);
        debug_assert!(lowered.is_ok(), "less is always granted");
    }

    /// Segments it may hold now, and holds.
    pub(super) fn usage(&self) -> (usize, usize) {
        self.local.usage()
    }

    /// Bytes of a segment.
    pub(crate) fn segment_size(&self) -> usize {
        self.segment_size
    }

    pub(super) fn want(&self, channel: &Arc<RemoteChannel>, urgent: bool) {
        let mut needy = lock(&self.needy);
        if channel.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        if urgent {
            needy.push_front(Arc::clone(channel));
        } else {
            needy.push_back(Arc::clone(channel));
        }
    }

    fn forget(&self, channel: &Arc<RemoteChannel>) {
        let mut needy = lock(&self.needy);
        channel.queued.store(false, Ordering::Relaxed);
        needy.retain(|other| !Arc::ptr_eq(other, channel));
    }

    /// Gives free segments to the channels that want some, until there is none of either.
    pub(crate) fn refill(&self) {
        loop {
            let Some(channel) = lock(&self.needy).front().cloned() else {
                return;
            };
            // Held until one is taken or not: none may slip away behind the back of `admit`.
            let admitting = lock(&self.admitting);
            if *admitting > 0 {
                return;
            }
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
            drop(admitting);
            match segment {
                Ok(Some(segment)) => {
                    fail_point!("pool.floating");
                    if channel.offer(segment) {
                        self.forget(&channel);
                        // It may have come to want another one before it was off the list.
                        if let Some(urgent) = channel.wants() {
                            self.want(&channel, urgent);
                        }
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    channel.fail(ExchangeError::of_request(error, "input gate"));
                    self.forget(&channel);
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        for channel in std::mem::take(&mut *lock(&self.needy)) {
            channel.queued.store(false, Ordering::Relaxed);
        }
        self.local.close();
    }
}

/// A new channel waits for its exclusive segments; the others go on when it has them or gave up.
struct Admission<'a>(&'a GatePool);

impl<'a> Admission<'a> {
    fn new(pool: &'a GatePool) -> Self {
        *lock(&pool.admitting) += 1;
        Self(pool)
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        *lock(&self.0.admitting) -= 1;
        self.0.refill();
    }
}

struct Refill(Weak<GatePool>);

impl SegmentListener for Refill {
    fn segment_available(&self) {
        fail_point!("pool.returned");
        if let Some(pool) = self.0.upgrade() {
            pool.listening.store(false, Ordering::Release);
            pool.refill();
        }
    }
}
