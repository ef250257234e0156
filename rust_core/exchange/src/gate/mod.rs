//! A consumer's input: all channels of one gate, served fairly (spec 8.1 to 8.4).

mod announcement;
mod channel;
mod debloat;
mod decompression;
mod input;
mod local;
mod pool;
mod queue;
mod remote;
mod slot;
mod union;
mod upstream;
mod usage;
mod wait;
mod wake;

use std::sync::{Arc, Weak};
use std::task::Poll;

use headgate_memory::process_id;
use headgate_protocol::DataType;
use headgate_record::Event;

use crate::error::{ExchangeError, Interrupt, Result};
use crate::metrics::{Idle, TaskIoMetrics, Timer};

pub(crate) use channel::{Channel, More, Taken};
pub(crate) use debloat::Debloating;
use decompression::Decompression;
pub use input::{AvailabilityListener, DataInput, EndOfDataStatus, Received};
pub(crate) use local::{LocalChannel, LocalRequest};
pub(crate) use pool::GatePool;
pub(crate) use queue::GateQueue;
use queue::{State, Turn};
pub(crate) use remote::{CreditSink, RemoteChannel, Target};
use slot::Slot;
pub use union::UnionInputGate;
pub(crate) use upstream::{Upstream, UpstreamMessage};
use wait::wait_until;

/// Where a channel goes in its gate.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Behind the others.
    New,
    /// Where an unknown channel is.
    Unknown(usize),
}

/// The consumer's end of all its channels. Channels may be added while it is read, until sealed.
pub struct InputGate {
    queue: Arc<GateQueue>,
    pool: Arc<GatePool>,
    /// None where buffers are always as large as they can be.
    debloating: Option<Debloating>,
    decompression: Decompression,
    metrics: Arc<TaskIoMetrics>,
    /// Of its reader alone.
    timer: Arc<Timer>,
    /// The process that made it; a forked child never touches its locks.
    owner: u32,
}

impl InputGate {
    pub(crate) fn new(pool: Arc<GatePool>, metrics: Arc<TaskIoMetrics>) -> Self {
        let timer = Arc::<Timer>::default();
        timer.begin();
        let idle = Idle::new(vec![Arc::clone(&timer), Arc::clone(&metrics.timer)]);
        Self {
            queue: Arc::new(GateQueue::new(idle)),
            pool,
            debloating: None,
            decompression: Decompression::default(),
            metrics,
            timer,
            owner: process_id(),
        }
    }

    pub(crate) fn queue(&self) -> &Arc<GateQueue> {
        &self.queue
    }

    pub(crate) fn pool(&self) -> &Arc<GatePool> {
        &self.pool
    }

    /// Puts a channel in its place before it is connected, so that its notifications find it there.
    /// Returns its index with it; `None` if it was to become known and cannot any more.
    pub(crate) fn place_channel(
        &self,
        place: Place,
        make: impl FnOnce(usize) -> Result<Channel>,
    ) -> Result<Option<(usize, Arc<Channel>)>> {
        fail_point!("channel.added", error => return Err(error));
        let mut state = self.queue.lock();
        let index = match place {
            Place::New => state.check_addable()?,
            Place::Unknown(index) if state.is_unknown(index) => index,
            Place::Unknown(_) => return Ok(None),
        };
        let channel = Arc::new(make(index)?);
        match place {
            Place::New => {
                state.channels.push(Slot::new(Some(Arc::clone(&channel))));
                self.queue.upstream.added();
            }
            Place::Unknown(_) => state.channels[index].channel = Some(Arc::clone(&channel)),
        }
        Ok(Some((index, channel)))
    }

    /// Undoes `place_channel`: a new channel counts as ended, one that was unknown is so again.
    pub(crate) fn take_back(&self, place: Place, index: usize) {
        match place {
            Place::New => {
                self.queue.upstream.given_up();
                if let Ok(Some(channel)) = self.queue.end(index) {
                    channel.release();
                }
            }
            Place::Unknown(_) => {
                if let Some(slot) = self.queue.lock().channels.get_mut(index) {
                    slot.channel = None;
                }
            }
        }
    }

    /// Adds a channel whose producer is not known yet, and returns its index. The reader waits for
    /// it, also once the gate is sealed.
    ///
    /// # Errors
    /// After [`seal`](Self::seal) or [`close`](Self::close).
    pub fn add_unknown_channel(&self) -> Result<usize> {
        let mut state = self.queue.lock();
        let index = state.check_addable()?;
        state.channels.push(Slot::new(None));
        drop(state);
        self.queue.upstream.added();
        Ok(index)
    }

    /// Whether the channel's producer is not known, and can still be; false after close.
    ///
    /// # Errors
    /// [`ExchangeError::State`]: there is no such channel.
    pub fn is_unknown(&self, channel: usize) -> Result<bool> {
        let state = self.queue.lock();
        if !state.closed && channel >= state.channels.len() {
            return Err(ExchangeError::State("the input gate has no channel of that index"));
        }
        Ok(state.is_unknown(channel))
    }

    fn channel(&self, index: usize) -> Result<Arc<Channel>> {
        let state = self.queue.lock();
        let slot = state.channels.get(index).ok_or(ExchangeError::State("no such channel"))?;
        slot.channel.clone().ok_or(ExchangeError::State("the channel's producer is not known yet"))
    }

    /// All channels in order, to be asked outside the gate's lock; `None` for an unknown one.
    fn channels(&self) -> Vec<Option<Arc<Channel>>> {
        self.queue.lock().channels.iter().map(|slot| slot.channel.clone()).collect()
    }

    fn check_open(&self) -> Result<()> {
        let closed = self.queue.lock().closed;
        if closed { Err(ExchangeError::Closed("input gate")) } else { Ok(()) }
    }

    /// No further channel will be added.
    pub fn seal(&self) {
        fail_point!("gate.sealed");
        self.queue.change(|state| state.sealed = true);
        self.queue.upstream.sealed();
    }

    /// Wakes the reader with this cause, unless it failed before.
    pub fn fail(&self, cause: ExchangeError) {
        self.queue.change(|state| {
            state.failure.get_or_insert(cause);
        });
    }

    /// Channels known so far.
    pub fn num_channels(&self) -> usize {
        self.queue.lock().channels.len()
    }

    /// Whether no further channel can be added.
    pub fn is_sealed(&self) -> bool {
        self.queue.lock().sealed
    }

    /// Whether a channel with a priority event waits to be read.
    pub(crate) fn has_priority_event(&self) -> bool {
        self.queue.lock().has_priority_event()
    }

    /// Cancels what has not ended, gives every segment back and wakes a blocked reader.
    pub fn close(&self) {
        fail_point!("gate.closed");
        for channel in self.queue.close() {
            channel.release();
        }
        self.queue.upstream.close();
        self.pool.close();
    }

    /// Takes one buffer of a channel that said it has one; none if it has not after all.
    fn take(&self, index: usize, channel: &Channel) -> Result<Option<Received>> {
        let Some(taken) = channel.take()? else {
            // Another one may wait, and nobody will say so again.
            self.queue.taken(index, More::Nothing, None);
            return Ok(None);
        };
        let Taken { buffer, data_type, sequence, totals, more } = taken;
        let buffer = self
            .decompression
            .plain(buffer)
            .map_err(|error| ExchangeError::damaged(channel.name(), sequence, &error))?;
        if data_type.is_buffer() {
            self.metrics.taken(matches!(channel, Channel::Local(_)), buffer.len());
        }
        let priority = data_type.has_priority().then_some(sequence);
        let ended = data_type == DataType::EndOfPartition;
        if data_type == DataType::EndOfData {
            let event = Event::decode(buffer.as_slice());
            match event.map_err(|error| ExchangeError::Event(error.to_string()))? {
                Event::EndOfData(mode) => self.queue.end_of_data(index, mode),
                _ => return Err(ExchangeError::Event("an EndOfData that is none".to_owned())),
            }
        } else if ended && let Some(channel) = self.queue.end(index)? {
            channel.release();
        }
        let more = if ended { More::Nothing } else { more };
        let (more_available, more_priority_events) = self.queue.taken(index, more, priority);
        Ok(Some(Received {
            channel: index,
            buffer,
            data_type,
            sequence,
            totals,
            more_available,
            more_priority_events,
        }))
    }

    /// Like `take`; an error ends the gate.
    fn take_or_fail(&self, index: usize, channel: &Channel) -> Result<Option<Received>> {
        // Outside the gate's lock: a local channel takes its producer's.
        let taken = self.take(index, channel).inspect_err(|error| self.fail(error.clone()))?;
        if let Some(received) = &taken {
            self.measure(received.buffer.len());
        }
        Ok(taken)
    }

    fn poll_channel(
        &self,
        state: &mut State,
        poll_channel: fn(&mut State) -> Result<Turn>,
    ) -> Result<Turn> {
        let turn = poll_channel(state)?;
        if !matches!(turn, Poll::Ready(Some(_))) {
            self.pause_measurement();
        }
        Ok(turn)
    }

    fn wait_for_channel(&self, interrupt: Interrupt<'_>) -> Result<Option<(usize, Arc<Channel>)>> {
        let GateQueue { state, arrived, .. } = &*self.queue;
        wait_until(state, arrived, interrupt, |state| self.poll_channel(state, State::poll_or_idle))
            .inspect_err(|_| self.queue.lock().idle.end())
    }

    /// What there is to take now, by a reader that may have another gate to turn to.
    fn poll(&self, poll_channel: fn(&mut State) -> Result<Turn>) -> Result<Poll<Option<Received>>> {
        loop {
            // The lock is left before the channel's is taken.
            let polled = self.poll_channel(&mut self.queue.lock(), poll_channel)?;
            match polled {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => return Ok(Poll::Ready(None)),
                Poll::Ready(Some((index, channel))) => {
                    if let Some(received) = self.take_or_fail(index, &channel)? {
                        return Ok(Poll::Ready(Some(received)));
                    }
                }
            }
        }
    }

    /// Like [`poll_next`](DataInput::poll_next), for a union: finding nothing here, it is not idle.
    fn poll_of_union(&self) -> Result<Poll<Option<Received>>> {
        self.poll(State::poll_channel)
    }
}

impl DataInput for InputGate {
    fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>> {
        while let Some((index, channel)) = self.wait_for_channel(interrupt)? {
            if let Some(received) = self.take_or_fail(index, &channel)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn poll_next(&self) -> Result<Poll<Option<Received>>> {
        self.poll(State::poll_or_idle)
    }

    fn is_available(&self) -> bool {
        self.queue.lock().is_available()
    }

    fn is_finished(&self) -> bool {
        self.queue.lock().is_finished()
    }

    fn end_of_data_status(&self) -> EndOfDataStatus {
        self.queue.lock().end_of_data_status()
    }

    fn add_listener(&self, listener: Weak<dyn AvailabilityListener>) {
        self.queue.add_listener(listener);
    }

    fn end_superstep(&self, channel: usize) {
        self.queue.pause(channel);
    }

    fn has_reached_end_of_superstep(&self) -> bool {
        self.queue.lock().has_reached_end_of_superstep()
    }

    fn start_next_superstep(&self) -> Result<()> {
        self.queue.resume_all()
    }

    fn channel_name(&self, channel: usize) -> String {
        let state = self.queue.lock();
        let known = state.channels.get(channel).and_then(|slot| slot.channel.as_ref());
        known.map_or_else(|| format!("channel {channel}"), |known| known.name().to_owned())
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        if self.owner == process_id() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests;
