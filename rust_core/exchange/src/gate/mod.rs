//! A consumer's input: all channels of one gate, served fairly (spec 8.1 to 8.4).

mod local;
mod pool;
mod remote;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use headgate_memory::Buffer;
use headgate_protocol::{DataType, Totals};

use crate::error::{ExchangeError, INTERRUPT_PERIOD, Interrupt, Result};
use crate::lock::lock;
use crate::stats::ChannelStats;

pub(crate) use local::LocalChannel;
pub(crate) use pool::GatePool;
pub(crate) use remote::{CreditSink, RemoteChannel, Target};

/// One buffer or event of one channel.
#[derive(Debug)]
pub struct Received {
    /// Index of the channel in the gate.
    pub channel: usize,
    /// The bytes.
    pub buffer: Buffer,
    /// Of what kind they are.
    pub data_type: DataType,
    /// With EndOfPartition: what the producer says it sent.
    pub totals: Option<Totals>,
}

/// One buffer out of a channel, and whether there is more.
pub(crate) struct Taken {
    pub(crate) buffer: Buffer,
    pub(crate) data_type: DataType,
    pub(crate) totals: Option<Totals>,
    pub(crate) more: bool,
}

pub(crate) enum Channel {
    Local(LocalChannel),
    Remote(Arc<RemoteChannel>),
}

impl Channel {
    fn take(&self) -> Result<Option<Taken>> {
        match self {
            Self::Local(channel) => channel.take(),
            Self::Remote(channel) => channel.take(),
        }
    }

    fn release(&self) {
        match self {
            Self::Local(channel) => channel.release(),
            Self::Remote(channel) => channel.release(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Local(channel) => channel.name(),
            Self::Remote(channel) => channel.name(),
        }
    }
}

#[derive(Default)]
struct State {
    channels: Vec<Slot>,
    /// Channels with something to read, each at most once: `Slot::queued` says which.
    queue: VecDeque<usize>,
    ended: usize,
    sealed: bool,
    closed: bool,
    failure: Option<ExchangeError>,
}

struct Slot {
    channel: Arc<Channel>,
    queued: bool,
    ended: bool,
}

/// What channels and their listeners know of their gate.
#[derive(Default)]
pub(crate) struct GateQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

impl GateQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The channel has something to read, or an error to raise.
    pub(crate) fn notify_non_empty(&self, channel: usize) {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return;
        };
        if slot.ended || std::mem::replace(&mut slot.queued, true) {
            return;
        }
        state.queue.push_back(channel);
        drop(state);
        self.arrived.notify_one();
    }
}

/// The consumer's end of all its channels. Channels may be added while it is read, until sealed.
pub struct InputGate {
    queue: Arc<GateQueue>,
    pool: Arc<GatePool>,
    /// The process that made it; a forked child never touches its locks.
    owner: u32,
}

impl InputGate {
    pub(crate) fn new(pool: Arc<GatePool>) -> Self {
        Self { queue: Arc::default(), pool, owner: std::process::id() }
    }

    pub(crate) fn queue(&self) -> &Arc<GateQueue> {
        &self.queue
    }

    pub(crate) fn pool(&self) -> &Arc<GatePool> {
        &self.pool
    }

    /// Makes room for a channel before it exists, so that its notifications find their place.
    pub(crate) fn add_channel(
        &self,
        make: impl FnOnce(usize) -> Result<Channel>,
    ) -> Result<Arc<Channel>> {
        fail_point!("channel.added", error => return Err(error));
        let mut state = self.queue.lock();
        if state.closed {
            return Err(ExchangeError::Closed("input gate"));
        }
        if state.sealed {
            return Err(ExchangeError::State("the input gate is sealed: no channel can be added"));
        }
        let channel = Arc::new(make(state.channels.len())?);
        state.channels.push(Slot { channel: Arc::clone(&channel), queued: false, ended: false });
        Ok(channel)
    }

    /// No further channel will be added.
    pub fn seal(&self) {
        fail_point!("gate.sealed");
        self.queue.lock().sealed = true;
        self.queue.arrived.notify_all();
    }

    /// Wakes the reader with this cause, unless it failed before.
    pub fn fail(&self, cause: ExchangeError) {
        self.queue.lock().failure.get_or_insert(cause);
        self.queue.arrived.notify_all();
    }

    /// Channels known so far.
    pub fn num_channels(&self) -> usize {
        self.queue.lock().channels.len()
    }

    pub(crate) fn stats(&self) -> Vec<ChannelStats> {
        let state = self.queue.lock();
        let channels: Vec<_> =
            state.channels.iter().map(|slot| Arc::clone(&slot.channel)).collect();
        drop(state);
        let stats = |channel: &Arc<Channel>| {
            let (credit, queued) = match &**channel {
                Channel::Local(_) => (None, 0),
                Channel::Remote(remote) => {
                    let (credit, queued) = remote.usage();
                    (Some(credit), queued)
                }
            };
            ChannelStats { name: channel.name().to_owned(), credit, queued }
        };
        channels.iter().map(stats).collect()
    }

    /// The name of a channel in errors.
    pub fn channel_name(&self, channel: usize) -> String {
        let state = self.queue.lock();
        let name = state.channels.get(channel).map(|slot| slot.channel.name().to_owned());
        name.unwrap_or_else(|| format!("channel {channel}"))
    }

    /// The next buffer or event of any channel; `None` once it is sealed and all channels ended.
    ///
    /// With several channels that always have data, each is served one buffer in turn.
    ///
    /// # Errors
    /// The failure of a channel or of the gate, or what the interrupt says.
    pub fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>> {
        loop {
            let Some((index, channel)) = self.wait_for_channel(interrupt)? else {
                return Ok(None);
            };
            // Outside the lock: a local channel takes its producer's.
            let taken = match channel.take() {
                Ok(taken) => taken,
                Err(error) => {
                    self.fail(error.clone());
                    return Err(error);
                }
            };
            let Some(Taken { buffer, data_type, totals, more }) = taken else {
                continue;
            };
            if data_type == DataType::EndOfPartition {
                self.end(index);
            } else if more {
                self.queue.notify_non_empty(index);
            }
            return Ok(Some(Received { channel: index, buffer, data_type, totals }));
        }
    }

    /// Whether a call of [`next`](Self::next) returns without waiting for a channel.
    #[cfg(test)]
    pub(crate) fn is_readable(&self) -> bool {
        let state = self.queue.lock();
        let ended = state.sealed && state.ended == state.channels.len();
        ended || !state.queue.is_empty() || state.closed || state.failure.is_some()
    }

    fn wait_for_channel(&self, interrupt: Interrupt<'_>) -> Result<Option<(usize, Arc<Channel>)>> {
        let mut state = self.queue.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.closed {
                return Err(ExchangeError::Closed("input gate"));
            }
            if let Some(index) = state.queue.pop_front() {
                let slot = &mut state.channels[index];
                slot.queued = false;
                return Ok(Some((index, Arc::clone(&slot.channel))));
            }
            if state.sealed && state.ended == state.channels.len() {
                return Ok(None);
            }
            let (next, waited) = self
                .queue
                .arrived
                .wait_timeout(state, INTERRUPT_PERIOD)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                drop(state);
                interrupt()?;
                state = self.queue.lock();
            }
        }
    }

    /// Counts a channel as ended, also one that could not be set up.
    pub(crate) fn end(&self, index: usize) {
        let mut state = self.queue.lock();
        let Some(slot) = state.channels.get_mut(index) else {
            return;
        };
        slot.ended = true;
        let channel = Arc::clone(&slot.channel);
        fail_point!("channel.ended");
        state.ended += 1;
        drop(state);
        channel.release();
    }

    /// Cancels what has not ended, gives every segment back and wakes a blocked reader.
    pub fn close(&self) {
        fail_point!("gate.closed");
        let mut state = self.queue.lock();
        state.closed = true;
        state.queue.clear();
        // A channel holds its gate's queue: taking the channels out of it breaks that circle.
        let slots = std::mem::take(&mut state.channels);
        drop(state);
        self.queue.arrived.notify_all();
        for slot in slots {
            slot.channel.release();
        }
        self.pool.close();
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.close();
        }
    }
}
