//! The order in which a gate's channels are read (spec 8.1, 8.2).

use std::sync::{Arc, Weak};
use std::task::Poll;

use headgate_protocol::{PrioritizedDeque, Sequence};
use headgate_record::StopMode;

use crate::error::{ExchangeError, Result};
use crate::gate::channel::{InputChannel, More};
use crate::gate::data_input::{AvailabilityListener, EndOfDataStatus};
use crate::gate::slot::{Slot, is_new};
use crate::gate::upstream::Upstream;
use crate::gate::wake::{Listeners, Wake};
use crate::metrics::Idle;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// The channel to read and its index; pending if none has a buffer, `None` if none will have.
pub(super) type Turn = Poll<Option<(usize, Arc<dyn InputChannel>)>>;

pub(super) struct State {
    pub(super) channels: Vec<Slot>,
    /// Channels to read. Invariant: each at most once, and exactly those with `Slot::queued`.
    queue: PrioritizedDeque<usize>,
    /// Channels with `Slot::ended`.
    ended: usize,
    /// Channels with `Slot::end_of_data`.
    end_of_data: usize,
    /// True while every end of data so far was a drain.
    drained: bool,
    pub(super) sealed: bool,
    pub(super) closed: bool,
    /// True if all channels had ended when the gate was closed.
    finished: bool,
    pub(super) failure: Option<ExchangeError>,
    listeners: Listeners,
    /// True if the queue was empty after the reader's last call: the next notification must wake it.
    reader_waits: bool,
    /// True if the next wait for data ends at once, or the current one.
    pub(super) woken: bool,
    pub(super) idle: Idle,
}

impl State {
    fn new(idle: Idle) -> Self {
        Self {
            channels: Vec::new(),
            queue: PrioritizedDeque::new(),
            ended: 0,
            end_of_data: 0,
            drained: true,
            sealed: false,
            closed: false,
            finished: false,
            failure: None,
            listeners: Arc::new([]),
            reader_waits: true,
            woken: false,
            idle,
        }
    }

    /// Returns the index of the next channel to add.
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

    pub(super) fn is_available(&self) -> bool {
        self.is_finished() || !self.queue.is_empty() || self.failure.is_some() || self.closed
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

    /// Takes the index of the next channel to read.
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
        Ok(if self.is_finished() { Poll::Ready(None) } else { Poll::Pending })
    }

    /// Takes the next channel to read.
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

    /// Like [`poll_channel`](Self::poll_channel); a reader that finds nothing counts as idle.
    pub(super) fn poll_or_idle(&mut self) -> Result<Turn> {
        let turn = self.poll_channel()?;
        if turn.is_pending() {
            self.idle.begin();
        }
        Ok(turn)
    }

    /// Queues a channel that has a buffer or an ordinary event. Returns false if nothing changed.
    pub(super) fn queue_channel(&mut self, index: usize) -> bool {
        let Some(slot) = self.channels.get_mut(index) else {
            return false;
        };
        if slot.ended || std::mem::replace(&mut slot.queued, true) {
            return false;
        }
        self.queue.add(index);
        true
    }

    /// Queues a channel that has a priority event, unless that was read already. Returns false if
    /// nothing changed.
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

    /// Puts a channel before all channels without priority events.
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

    /// Takes a channel out of the queue.
    pub(super) fn dequeue(&mut self, index: usize) {
        if std::mem::take(&mut self.channels[index].queued) {
            let removed = self.queue.remove_first(|queued| *queued == index);
            debug_assert!(removed.is_ok(), "`queued` says that it is in the queue");
        }
    }

    /// Queues a channel again after one buffer of it was taken. Returns whether a channel is queued,
    /// and whether one with a priority event is.
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

/// The part of a gate that its channels notify.
pub(crate) struct GateQueue {
    pub(super) state: Mutex<State>,
    pub(super) arrived: Condvar,
    /// Messages to the producers.
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

    /// Changes the state, and wakes the reader if there is something to poll afterwards.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let wake = if state.is_available() { state.wake(false) } else { Wake::default() };
        drop(state);
        self.arrived.notify_all();
        wake.call();
        result
    }

    /// Records that a channel has something to read, or an error to raise.
    pub(crate) fn notify_non_empty(&self, channel: usize) {
        let mut state = self.lock();
        if !state.queue_channel(channel) {
            return;
        }
        let wake = state.wake(false);
        drop(state);
        self.arrived.notify_one();
        wake.call();
    }

    /// Records that a channel has the priority event `sequence`; ignored if it was read already.
    pub(crate) fn notify_priority_event(&self, channel: usize, sequence: Sequence) {
        self.prioritize(|state| state.queue_priority(channel, sequence));
    }

    /// Like [`notify_priority_event`](Self::notify_priority_event), for an event whose number was seen
    /// before.
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
        wake.call();
    }

    /// Records that one buffer of a channel was taken, or the priority event `priority`. Returns
    /// whether a channel is queued, and whether one with a priority event is. Wakes no thread, as the
    /// reader itself calls this.
    pub(super) fn taken(
        &self,
        channel: usize,
        more: More,
        priority: Option<Sequence>,
    ) -> (bool, bool) {
        self.lock().requeue(channel, more, priority)
    }

    /// Records a channel's end of data.
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

    /// Counts a channel as ended. Returns it, to be released, if its producer is known.
    ///
    /// # Errors
    /// [`ExchangeError::State`] if it had ended before.
    pub(super) fn end(&self, channel: usize) -> Result<Option<Arc<dyn InputChannel>>> {
        let mut state = self.lock();
        let Some(slot) = state.channels.get_mut(channel) else {
            return Ok(None);
        };
        if std::mem::replace(&mut slot.ended, true) {
            return Err(ExchangeError::State("a channel ended twice"));
        }
        let channel_of_slot = slot.channel.clone();
        fail_point!("channel.ended");
        state.dequeue(channel);
        state.ended += 1;
        Ok(channel_of_slot)
    }

    /// Clears the queue and returns the channels. Each channel holds this queue: taking them out
    /// breaks the reference cycle.
    pub(super) fn close(&self) -> Vec<Arc<dyn InputChannel>> {
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

    /// Ends a wait for data, and has listeners poll.
    pub(super) fn wake_up(&self) {
        let mut state = self.lock();
        state.woken = true;
        let listeners = Some(Arc::clone(&state.listeners));
        drop(state);
        self.arrived.notify_all();
        Wake { data: true, priority: false, listeners }.call();
    }

    pub(super) fn add_listener(&self, listener: Weak<dyn AvailabilityListener>) {
        let mut state = self.lock();
        let live = state.listeners.iter().filter(|listener| listener.strong_count() > 0).cloned();
        state.listeners = live.chain([Weak::clone(&listener)]).collect();
        let (data, priority) = (state.is_available(), state.queue.priority_len() > 0);
        drop(state);
        Wake { data, priority, listeners: Some(Arc::new([listener])) }.call();
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod tests;
