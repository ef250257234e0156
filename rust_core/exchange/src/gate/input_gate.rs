//! The consumer's end of several subpartitions.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use headgate_memory::Process;
use headgate_net::UpstreamMessage;
use headgate_protocol::DataType;
use headgate_record::Event;
use headgate_trace::{Event as Trace, Kind, record, text};

use crate::error::{ExchangeError, Interrupt, Result};
use crate::gate::channel::{InputChannel, More, Taken};
use crate::gate::checkpointing::{
    CheckpointedChannel, CheckpointedChannels, CheckpointedInput, Checkpointing,
};
use crate::gate::data_input::{AvailabilityListener, DataInput, EndOfDataStatus, Received};
use crate::gate::debloat::Debloating;
use crate::gate::decompression::Decompression;
use crate::gate::pool::GatePool;
use crate::gate::queue::{GateQueue, State, Turn};
use crate::gate::slot::Slot;
use crate::gate::wait::{wait_for, wait_until};
use crate::metrics::{Idle, TaskIoMetrics, Timer};
use crate::stats::{ChannelStats, GateStats, Usage};

/// The name in snapshots of a channel whose producer is not known.
const UNKNOWN: &str = "unknown channel";

/// The position of a channel in its gate.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Behind the other channels.
    New,
    /// In place of an unknown channel.
    Unknown(usize),
}

/// The consumer's end of all its channels. Channels may be added while it is read, until sealed.
pub struct InputGate {
    queue: Arc<GateQueue>,
    pool: Arc<GatePool>,
    /// `None` if buffers always have their full size.
    debloating: Option<Debloating>,
    decompression: Decompression,
    checkpointing: Checkpointing,
    metrics: Arc<TaskIoMetrics>,
    /// Idle time of this gate's reader.
    timer: Arc<Timer>,
    /// The process that created the gate; a forked child must not take its locks.
    owner: Process,
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
            checkpointing: Checkpointing::default(),
            metrics,
            timer,
            owner: Process::current(),
        }
    }

    /// Adds buffer debloating to a gate without channels.
    pub(crate) fn debloated(mut self, debloating: Debloating) -> Self {
        // Channels get the starting size with their request.
        if let Some(size) = NonZeroU32::new(debloating.buffer_size()) {
            self.announce_buffer_size(size);
        }
        self.debloating = Some(debloating);
        self
    }

    pub(crate) fn queue(&self) -> &Arc<GateQueue> {
        &self.queue
    }

    pub(crate) fn pool(&self) -> &Arc<GatePool> {
        &self.pool
    }

    /// Time that the reader was idle.
    pub(crate) fn timer(&self) -> &Arc<Timer> {
        &self.timer
    }

    pub(crate) fn metrics(&self) -> &Arc<TaskIoMetrics> {
        &self.metrics
    }

    /// Puts a channel in its place before it is connected, so that its notifications find it there.
    /// Returns the channel and its index; `None` if the unknown channel is none any more.
    pub(crate) fn place_channel<C: InputChannel + 'static>(
        &self,
        place: Place,
        make: impl FnOnce(usize) -> Result<Arc<C>>,
    ) -> Result<Option<(usize, Arc<C>)>> {
        fail_point!("channel.added", text => return Err(ExchangeError::Aborted(text)));
        let mut state = self.queue.lock();
        let index = match place {
            Place::New => state.check_addable()?,
            Place::Unknown(index) if state.is_unknown(index) => index,
            Place::Unknown(_) => return Ok(None),
        };
        let channel = make(index)?;
        let in_slot: Arc<dyn InputChannel> = Arc::<C>::clone(&channel);
        match place {
            Place::New => {
                state.channels.push(Slot::new(Some(in_slot)));
                self.queue.upstream.added();
            }
            Place::Unknown(_) => state.channels[index].channel = Some(in_slot),
        }
        Ok(Some((index, channel)))
    }

    /// Undoes `place_channel`: a new channel counts as ended, an unknown one is unknown again.
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

    /// Returns true if the channel's producer is not known yet; false after close.
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

    /// Returns all channels in order, `None` for an unknown one. Their methods must be called outside
    /// the gate's lock.
    fn channels(&self) -> Vec<Option<Arc<dyn InputChannel>>> {
        self.queue.lock().channels.iter().map(|slot| slot.channel.clone()).collect()
    }

    /// Declares that no further channel will be added.
    pub fn seal(&self) {
        fail_point!("gate.sealed");
        self.queue.change(|state| state.sealed = true);
        self.queue.upstream.sealed();
    }

    /// Fails the gate and wakes its reader. The first cause is kept.
    pub fn fail(&self, cause: ExchangeError) {
        self.queue.change(|state| {
            let gate = state.idle.gate();
            record(Kind::Gate, || Trace::Failed { gate, cause: text(&cause) });
            state.failure.get_or_insert(cause);
        });
    }

    /// Channels added so far.
    pub fn num_channels(&self) -> usize {
        self.queue.lock().channels.len()
    }

    /// Returns true if no further channel can be added.
    pub fn is_sealed(&self) -> bool {
        self.queue.lock().sealed
    }

    /// Cancels the requests that have not ended, frees every segment and wakes a blocked reader.
    pub fn close(&self) {
        fail_point!("gate.closed");
        for channel in self.queue.close() {
            channel.release();
        }
        self.queue.upstream.close();
        self.pool.close();
    }

    /// Sends an event to the tasks behind all channels, channels to come included.
    ///
    /// # Errors
    /// An event that cannot be encoded or does not fit a segment, or a closed gate. If a producer
    /// refuses the event, its channel fails.
    pub fn send_task_event(&self, name: &str, body: Bytes) -> Result<()> {
        self.queue.upstream.send_task_event(name, body, self.pool.segment_size())
    }

    /// Tells the producers of all channels, channels to come included, how many bytes a buffer should
    /// hold from now on. A wish: the first record, or row, of a buffer may be larger, and data on disk
    /// ignores it.
    pub fn announce_buffer_size(&self, size: NonZeroU32) {
        self.queue.upstream.announce_buffer_size(size);
    }

    /// Tells the producer of a channel that all records up to its end of data are processed.
    ///
    /// # Errors
    /// The channel does not exist.
    pub fn acknowledge_all_records_processed(&self, channel: usize) -> Result<()> {
        let unknown = ExchangeError::State("the channel's producer is not known yet");
        let channel = self.checkpointed_channel(channel)?.ok_or(unknown)?;
        channel.0.tell(UpstreamMessage::Acknowledge);
        Ok(())
    }

    pub(crate) fn stats(&self) -> GateStats {
        let stats = |channel: &Option<Arc<dyn InputChannel>>| match channel {
            Some(channel) => channel.stats(),
            None => ChannelStats { name: UNKNOWN.to_owned(), ..ChannelStats::default() },
        };
        let channels: Vec<_> = self.channels().iter().map(stats).collect();
        let exclusive: Usage = channels.iter().map(|channel| channel.exclusive).sum();
        let free: usize = channels.iter().map(|channel| channel.free).sum();
        // Read a moment after the channels' numbers, so the sum may differ.
        let (size, held) = self.pool.usage();
        let floating = Usage {
            used: held.saturating_sub(free).saturating_sub(exclusive.used),
            size: size.saturating_sub(exclusive.size),
        };
        let debloating = self.debloating.as_ref().map(Debloating::stats);
        GateStats { exclusive, floating, times: self.timer.times(), debloating, channels }
    }

    /// Takes one buffer of a queued channel; `None` if the channel turns out to be empty.
    fn take(&self, index: usize, channel: &dyn InputChannel) -> Result<Option<Received>> {
        let Some(taken) = channel.take()? else {
            // Another channel may be queued: no notification for it will come again.
            self.queue.taken(index, More::Nothing, None);
            return Ok(None);
        };
        let Taken { buffer, data_type, sequence, totals, more } = taken;
        let buffer = self
            .decompression
            .plain(buffer)
            .map_err(|error| ExchangeError::damaged(channel.name(), sequence, &error))?;
        if data_type.is_buffer() {
            self.metrics.taken(channel.is_local(), buffer.len());
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

    /// Like `take`; an error fails the gate.
    fn take_or_fail(&self, index: usize, channel: &dyn InputChannel) -> Result<Option<Received>> {
        // Outside the gate's lock, as a local channel takes its producer's.
        let taken = self.take(index, channel).inspect_err(|error| self.fail(error.clone()))?;
        if let (Some(received), Some(debloating)) = (&taken, &self.debloating) {
            let size = debloating.receive(received.buffer.len(), || self.buffers_in_use());
            if let Some(size) = size {
                self.announce_buffer_size(size);
            }
        }
        Ok(taken)
    }

    /// Counts the buffers of all channels that wait here or at the producers.
    pub(super) fn buffers_in_use(&self) -> usize {
        self.channels().iter().flatten().map(|channel| channel.buffers_in_use()).sum()
    }

    fn poll_channel(
        &self,
        state: &mut State,
        poll_channel: fn(&mut State) -> Result<Turn>,
    ) -> Result<Turn> {
        let turn = poll_channel(state)?;
        if let Some(debloating) = &self.debloating
            && !matches!(turn, Poll::Ready(Some(_)))
        {
            debloating.pause();
        }
        Ok(turn)
    }

    fn wait_for_channel(
        &self,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<(usize, Arc<dyn InputChannel>)>> {
        let GateQueue { state, arrived, .. } = &*self.queue;
        wait_until(state, arrived, interrupt, |state| self.poll_channel(state, State::poll_or_idle))
            .inspect_err(|_| self.queue.lock().idle.end())
    }

    fn poll(&self, poll_channel: fn(&mut State) -> Result<Turn>) -> Result<Poll<Option<Received>>> {
        loop {
            // The gate's lock is released before the channel's is taken.
            let polled = self.poll_channel(&mut self.queue.lock(), poll_channel)?;
            match polled {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => return Ok(Poll::Ready(None)),
                Poll::Ready(Some((index, channel))) => {
                    if let Some(received) = self.take_or_fail(index, &*channel)? {
                        return Ok(Poll::Ready(Some(received)));
                    }
                }
            }
        }
    }

    /// Like [`poll_next`](DataInput::poll_next), for a reader that has other gates to read: finding
    /// nothing here, it does not count as idle.
    pub(crate) fn poll_among_others(&self) -> Result<Poll<Option<Received>>> {
        self.poll(State::poll_channel)
    }

    /// Pauses the measurement for debloating while the reader is at other gates, unless data waits.
    pub(crate) fn pause_unless_available(&self) {
        if let Some(debloating) = &self.debloating
            && !self.is_available()
        {
            debloating.pause();
        }
    }
}

impl DataInput for InputGate {
    fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>> {
        while let Some((index, channel)) = self.wait_for_channel(interrupt)? {
            if let Some(received) = self.take_or_fail(index, &*channel)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn poll_next(&self) -> Result<Poll<Option<Received>>> {
        self.poll(State::poll_or_idle)
    }

    fn wait_available(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<bool> {
        let GateQueue { state, arrived, .. } = &*self.queue;
        let is_wanted =
            |state: &mut State| std::mem::take(&mut state.woken) || state.is_available();
        wait_for(state, arrived, timeout, interrupt, is_wanted)?;
        Ok(self.is_available())
    }

    fn is_available(&self) -> bool {
        self.queue.lock().is_available()
    }

    fn has_priority_event(&self) -> bool {
        self.queue.lock().has_priority_event()
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

    fn channel_name(&self, channel: usize) -> String {
        let state = self.queue.lock();
        let known = state.channels.get(channel).and_then(|slot| slot.channel.as_ref());
        known.map_or_else(|| format!("channel {channel}"), |known| known.name().to_owned())
    }
}

impl CheckpointedInput for InputGate {
    fn checkpointing(&self) -> &Checkpointing {
        &self.checkpointing
    }

    fn checkpointed_channels(&self) -> Result<CheckpointedChannels> {
        let state = self.queue.lock();
        if !state.sealed {
            return Err(ExchangeError::State(
                "checkpoints need a gate that is sealed: declare channels to come as unknown ones",
            ));
        }
        let count = state.channels.len();
        let ended = (0..count).filter(|index| state.channels[*index].ended).collect();
        Ok(CheckpointedChannels { count, ended })
    }

    fn checkpointed_channel(&self, channel: usize) -> Result<Option<CheckpointedChannel>> {
        let state = self.queue.lock();
        let slot = state.channels.get(channel).ok_or(ExchangeError::State("no such channel"))?;
        Ok(slot.channel.clone().map(CheckpointedChannel))
    }

    fn wake_up(&self) {
        self.queue.wake_up();
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        if self.owner == Process::current() {
            self.close();
        }
    }
}
