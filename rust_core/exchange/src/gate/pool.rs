//! The segments of a gate's remote channels: exclusive ones promised, floating ones where they are
//! wanted (spec 1.7, 8.7).

use std::sync::{Arc, Mutex, Weak};

use headgate_memory::{GlobalPool, LocalPool, PooledSegment, RequestError, SegmentListener};
use headgate_protocol::{BufferKind, PrioritizedDeque};

use crate::config::BufferOptions;
use crate::error::{ExchangeError, Result};
use crate::gate::RemoteChannel;
use crate::lock::lock;

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
    needy: Mutex<Needy>,
    this: Weak<Self>,
}

/// Who waits for segments.
#[derive(Default)]
struct Needy {
    /// Channels that want a segment, in turn; first those to which an exclusive one is owed. A
    /// channel's `queued` says where in here it is.
    channels: PrioritizedDeque<Arc<RemoteChannel>>,
    /// Channels that are being added. Floating segments wait meanwhile, or what was just promised
    /// would become those.
    admitting: usize,
    /// A listener is registered with the pool.
    listening: bool,
}

impl Needy {
    /// The channel whose turn it is.
    fn next(&self) -> Option<Arc<RemoteChannel>> {
        let none_owed = self.channels.priority_len() == 0;
        if self.admitting > 0 && none_owed { None } else { self.channels.peek().cloned() }
    }

    /// Puts a channel where it belongs.
    fn place(&mut self, channel: &Arc<RemoteChannel>, wants: Option<BufferKind>) {
        let queued = std::mem::replace(&mut *lock(&channel.queued), wants);
        if queued == wants {
            return;
        }
        if queued.is_some() {
            let removed = self.channels.remove_first(|other| Arc::ptr_eq(other, channel));
            debug_assert!(removed.is_ok(), "`queued` says that it is in here");
        }
        match wants {
            Some(BufferKind::Exclusive) => self.channels.add_priority(Arc::clone(channel)),
            Some(BufferKind::Floating) => self.channels.add(Arc::clone(channel)),
            None => {}
        }
    }
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
            needy: Mutex::default(),
            this: this.clone(),
        }))
    }

    /// Promises a new channel its exclusive segments, or as many as there are, at least one. Returns
    /// how many, and those of them that are free now; the others come as the channel
    /// [wants](RemoteChannel::ask_for_segments) them.
    pub(crate) fn admit(&self) -> Result<(usize, Vec<PooledSegment>)> {
        if self.exclusive == 0 {
            return Ok((0, Vec::new()));
        }
        let _admission = Admission::new(self);
        let exclusive = self.promise()?;
        let segments = self.collect(exclusive).inspect_err(|_| self.dismiss(exclusive))?;
        Ok((exclusive, segments))
    }

    /// Up to so many segments, unless other channels are owed some.
    fn collect(&self, count: usize) -> Result<Vec<PooledSegment>> {
        let mut segments = Vec::with_capacity(count);
        while segments.len() < count {
            fail_point!("pool.exclusive", error => return Err(error));
            let needy = lock(&self.needy);
            if needy.channels.priority_len() > 0 {
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

    /// Puts a channel among those that want a segment, or takes it away from there.
    pub(super) fn place(&self, channel: &Arc<RemoteChannel>) {
        let mut needy = lock(&self.needy);
        needy.place(channel, channel.wants());
    }

    /// Gives free segments to the channels that want some, one to each in turn, until there is none
    /// of either.
    pub(crate) fn refill(&self) {
        loop {
            let mut needy = lock(&self.needy);
            let Some(channel) = needy.next() else {
                return;
            };
            match self.take_or_listen(&mut needy.listening) {
                Ok(None) => return,
                Ok(Some(segment)) => {
                    needy.place(&channel, None);
                    drop(needy);
                    fail_point!("pool.floating");
                    channel.offer(segment);
                    self.place(&channel);
                }
                Err(error) => {
                    needy.place(&channel, None);
                    drop(needy);
                    channel.fail(ExchangeError::of_request(error, "input gate"));
                }
            }
        }
    }

    /// A free segment; where there is none, `refill` is called once there is.
    fn take_or_listen(
        &self,
        listening: &mut bool,
    ) -> std::result::Result<Option<PooledSegment>, RequestError> {
        if *listening {
            return self.local.try_request();
        }
        let this = self.this.clone();
        let taken = self.local.request_or_listen(|| Arc::new(Refill(this)));
        *listening = matches!(taken, Ok(None));
        taken
    }

    pub(crate) fn close(&self) {
        for channel in std::mem::take(&mut lock(&self.needy).channels).iter() {
            *lock(&channel.queued) = None;
        }
        self.local.close();
    }
}

/// A channel is being added; the others get floating segments again when it has what there is.
struct Admission<'a>(&'a GatePool);

impl<'a> Admission<'a> {
    fn new(pool: &'a GatePool) -> Self {
        lock(&pool.needy).admitting += 1;
        Self(pool)
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        lock(&self.0.needy).admitting -= 1;
        self.0.refill();
    }
}

struct Refill(Weak<GatePool>);

impl SegmentListener for Refill {
    fn segment_available(&self) {
        fail_point!("pool.returned");
        if let Some(pool) = self.0.upgrade() {
            lock(&pool.needy).listening = false;
            pool.refill();
        }
    }
}
