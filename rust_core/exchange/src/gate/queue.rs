//! Which channels of a gate have something, in the order in which they are read (spec 8.1, 8.2).

use std::sync::{Arc, Weak};
use std::task::Poll;

use headgate_protocol::{PrioritizedDeque, Sequence};
use headgate_record::StopMode;

use crate::error::{ExchangeError, Result};
use crate::gate::slot::{Slot, is_new};
use crate::gate::wake::{Listeners, Wake};
use crate::gate::{AvailabilityListener, Channel, EndOfDataStatus, More, Upstream};
use crate::metrics::Idle;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// A channel to read and its index; pending when none has anything, `None` when none will have.
pub(super) type Turn = Poll<Option<(usize, Arc<Channel>)>>;

pub(super) struct State {
    pub(super) channels: Vec<Slot>,
    /// Channels with something to read, each at most once: `Slot::queued` says which.
    queue: PrioritizedDeque<usize>,
    ended: usize,
    paused: usize,
    end_of_data: usize,
    /// Every end of data so far was a drain.
    drained: bool,
    pub(super) sealed: bool,
    pub(super) closed: bool,
    /// Had ended before it was closed.
    finished: bool,
    pub(super) failure: Option<ExchangeError>,
    listeners: Listeners,
    /// The reader found nothing, or the last thing, and its listeners want to be told.
    reader_waits: bool,
    pub(super) idle: Idle,
}

impl State {
    fn new(idle: Idle) -> Self {
        Self {
            channels: Vec::new(),
            queue: PrioritizedDeque::new(),
            ended: 0,
            paused: 0,
            end_of_data: 0,
            drained: true,
            sealed: false,
            closed: false,
            finished: false,
            failure: None,
            listeners: Arc::new([]),
            reader_waits: true,
            idle,
        }
    }
}

impl State {
    /// The index of the next channel.
    pub(super) fn check_addable(&self) -> Result<usize> {
        if self.closed {
            return Err(ExchangeError::Closed("input gate"));
        }
        if self.sealed {
            return Err(ExchangeError::State("the input gate is sealed: no channel can be added"));
        }
        Ok(self.channels.len())
    }

    pub(super) fn is_unknown(&self, channel: usize) -> bool {
        !self.closed && self.channels.get(channel).is_some_and(|slot| slot.channel.is_none())
    }

    pub(super) fn is_finished(&self) -> bool {
        if self.closed { self.finished } else { self.sealed && self.ended == self.channels.len() }
    }

    pub(super) fn has_reached_end_of_superstep(&self) -> bool {
        self.sealed && self.paused > 0 && self.ended + self.paused == self.channels.len()
    }

    pub(super) fn is_available(&self) -> bool {
        let over = self.is_finished() || self.has_reached_end_of_superstep();
        over || !self.queue.is_empty() || self.failure.is_some() || self.closed
    }

    pub(super) fn has_priority_event(&self) -> bool {
        self.queue.priority_len() > 0
    }

    pub(super) fn end_of_data_status(&self) -> EndOfDataStatus {
        match (self.sealed && self.end_of_data == self.channels.len(), self.drained) {
            (false, _) => EndOfDataStatus::NotEndOfData,
            (true, true) => EndOfDataStatus::Drained,
            (true, false) => EndOfDataStatus::Stopped,
        }
    }

    /// The index of the channel whose turn it is.
    fn poll_index(&mut self) -> Result<Poll<Option<usize>>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.closed {
            return Err(ExchangeError::Closed("input gate"));
        }
        if let Some(index) = self.queue.poll() {
            self.channels[index].queued = false;
            return Ok(Poll::Ready(Some(index)));
        }
        self.reader_waits = true;
        let over = self.is_finished() || self.has_reached_end_of_superstep();
        Ok(if over { Poll::Ready(None) } else { Poll::Pending })
    }

    /// The channel whose turn it is.
    pub(super) fn poll_channel(&mut self) -> Result<Turn> {
        loop {
            let polled = self.poll_index()?;
            let Poll::Ready(Some(index)) = polled else {
                return Ok(polled.map(|_| None));
            };
            if let Some(channel) = &self.channels[index].channel {
                return Ok(Poll::Ready(Some((index, Arc::clone(channel)))));
            }
        }
    }

    /// Like [`poll_channel`](Self::poll_channel), for a reader that has nothing else to do.
    pub(super) fn poll_or_idle(&mut self) -> Result<Turn> {
        let turn = self.poll_channel()?;
        if turn.is_pending() {
            self.idle.begin();
        }
        Ok(turn)
    }

    /// The channel has something ordinary to read.
    fn queue_channel(&mut self, index: usize) -> bool {
        let Some(slot) = self.channels.get_mut(index) else {
            return false;
        };
        if slot.ended || slot.paused || std::mem::replace(&mut slot.queued, true) {
            return false;
        }
        self.queue.add(index);
        true
    }

    /// The channel has a priority event to read: it comes before all that have none.
    fn queue_priority(&mut self, index: usize, sequence: Sequence) -> bool {
        let Some(slot) = self.channels.get_mut(index) else {
            return false;
        };
        if slot.ended || !is_new(sequence, slot.seen) {
            return false;
        }
        if is_new(sequence, slot.announced) {
            slot.announced = Some(sequence);
        }
        self.promote(index)
    }

    /// Puts the channel before all that have no priority event.
    fn promote(&mut self, index: usize) -> bool {
        let Some(slot) = self.channels.get_mut(index).filter(|slot| !slot.ended) else {
            return false;
        };
        if std::mem::replace(&mut slot.queued, true) {
            self.queue.prioritize(|queued| *queued == index);
        } else {
            self.queue.add_priority(index);
        }
        true
    }

    /// A buffer of the channel was taken; says whether a channel waits, and one with priority.
    fn requeue(&mut self, index: usize, more: More, priority: Option<Sequence>) -> (bool, bool) {
        if let Some(slot) = self.channels.get_mut(index) {
            if let Some(sequence) = priority.filter(|sequence| is_new(*sequence, slot.seen)) {
                slot.seen = Some(sequence);
            }
            if slot.has_priority() || more == More::PriorityEvent {
                self.promote(index);
            } else if more == More::Something {
                self.queue_channel(index);
            }
        }
        self.reader_waits = self.queue.is_empty();
        (!self.queue.is_empty(), self.queue.priority_len() > 0)
    }

    fn wake(&mut self, priority: bool) -> Wake {
        self.idle.end();
        let data = std::mem::take(&mut self.reader_waits);
        let listeners = (data || priority).then(|| Arc::clone(&self.listeners));
        Wake { data, priority, listeners }
    }
}

/// What channels and their listeners know of their gate.
pub(crate) struct GateQueue {
    pub(super) state: Mutex<State>,
    pub(super) arrived: Condvar,
    /// What goes to the producers.
    pub(crate) upstream: Upstream,
}

impl GateQueue {
    pub(super) fn new(idle: Idle) -> Self {
        let (arrived, upstream) = (Condvar::new(), Upstream::default());
        Self { state: Mutex::new(State::new(idle)), arrived, upstream }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state; if there is something to poll afterwards, the reader is told.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let wake = if state.is_available() { state.wake(false) } else { Wake::default() };
        drop(state);
        self.arrived.notify_all();
        wake.tell();
        result
    }

    /// The channel has something to read, or an error to raise.
    pub(crate) fn notify_non_empty(&self, channel: usize) {
        let mut state = self.lock();
        if !state.queue_channel(channel) {
            return;
        }
        let wake = state.wake(false);
        drop(state);
        self.arrived.notify_one();
        wake.tell();
    }

    /// The channel has a priority event of this number; ignored if it was read already.
    pub(crate) fn notify_priority_event(&self, channel: usize, sequence: Sequence) {
        self.prioritize(|state| state.queue_priority(channel, sequence));
    }

    /// Like [`notify_priority_event`](Self::notify_priority_event), whatever was read before.
    pub(super) fn force_priority_event(&self, channel: usize) {
        self.prioritize(|state| state.promote(channel));
    }

    fn prioritize(&self, change: impl FnOnce(&mut State) -> bool) {
        let mut state = self.lock();
        let none_before = state.queue.priority_len() == 0;
        if !change(&mut state) {
            return;
        }
        let wake = state.wake(none_before);
        drop(state);
        self.arrived.notify_one();
        wake.tell();
    }

    /// A buffer of the channel was taken, a priority event if it has a number here; says whether a
    /// channel waits, and one with priority. Nobody is told: it is the reader who learns it here.
    pub(super) fn taken(
        &self,
        channel: usize,
        more: More,
        priority: Option<Sequence>,
    ) -> (bool, bool) {
        self.lock().requeue(channel, more, priority)
    }

    /// The channel's producer said that its records are over.
    pub(super) fn end_of_data(&self, channel: usize, mode: StopMode) {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return;
        };
        if !std::mem::replace(&mut slot.end_of_data, true) {
            state.end_of_data += 1;
            state.drained &= mode == StopMode::Drain;
        }
    }

    /// Counts a channel as ended and returns it, if there is one to release.
    ///
    /// # Errors
    /// [`ExchangeError::State`] when it had ended before.
    pub(super) fn end(&self, channel: usize) -> Result<Option<Arc<Channel>>> {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return Ok(None);
        };
        if std::mem::replace(&mut slot.ended, true) {
            return Err(ExchangeError::State("a channel ended twice"));
        }
        let channel_of_slot = slot.channel.clone();
        fail_point!("channel.ended");
        if std::mem::take(&mut slot.queued) {
            let removed = state.queue.remove_first(|queued| *queued == channel);
            debug_assert!(removed.is_ok(), "`queued` says that it is in the queue");
        }
        state.ended += 1;
        Ok(channel_of_slot)
    }

    /// Reads the channel no further for now, except for priority events.
    pub(super) fn pause(&self, channel: usize) {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return;
        };
        if slot.ended || std::mem::replace(&mut slot.paused, true) {
            return;
        }
        if !slot.has_priority() && std::mem::take(&mut slot.queued) {
            let removed = state.queue.remove_first(|queued| *queued == channel);
            debug_assert!(removed.is_ok(), "`queued` says that it is in the queue");
        }
        state.paused += 1;
    }

    /// Reads all paused channels again.
    pub(super) fn resume_all(&self) -> Result<()> {
        self.change(|state| {
            if !state.has_reached_end_of_superstep() {
                return Err(ExchangeError::State(
                    "a channel has not reached the end of the superstep: read on before the next",
                ));
            }
            state.paused = 0;
            for index in 0..state.channels.len() {
                if std::mem::take(&mut state.channels[index].paused) {
                    state.queue_channel(index);
                }
            }
            Ok(())
        })
    }

    /// Drops what waits, and returns the channels: each holds this queue, which breaks that circle.
    pub(super) fn close(&self) -> Vec<Arc<Channel>> {
        self.change(|state| {
            state.finished = state.is_finished();
            state.closed = true;
            state.queue.clear();
            std::mem::take(&mut state.channels)
                .into_iter()
                .filter_map(|slot| slot.channel)
                .collect()
        })
    }

    pub(super) fn add_listener(&self, listener: Weak<dyn AvailabilityListener>) {
        let mut state = self.lock();
        let live = state.listeners.iter().filter(|listener| listener.strong_count() > 0).cloned();
        state.listeners = live.chain([Weak::clone(&listener)]).collect();
        let (data, priority) = (state.is_available(), state.queue.priority_len() > 0);
        drop(state);
        Wake { data, priority, listeners: Some(Arc::new([listener])) }.tell();
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod tests;
