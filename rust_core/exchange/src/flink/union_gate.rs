//! Several gates that are read as one (spec 8.5).

use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use headgate_protocol::PrioritizedDeque;

use crate::error::{ExchangeError, Interrupt, Result};
use crate::gate::{
    AvailabilityListener, CheckpointedChannel, CheckpointedChannels, CheckpointedInput,
    Checkpointing, DataInput, EndOfDataStatus, InputGate, Listeners, Received, Wake, wait_for,
    wait_until,
};
use crate::metrics::Idle;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// A union of gates, read in turn, each with its own fair order of channels.
///
/// A channel's index counts over the gates in their order. Closing the union does not close its
/// gates.
pub struct UnionInputGate {
    gates: Vec<Arc<InputGate>>,
    /// Index of the first channel of each gate; the last element is the number of channels.
    offsets: Vec<usize>,
    queue: Arc<UnionQueue>,
    checkpointing: Checkpointing,
    /// Keeps the gates' listeners alive: a gate drops those without owner.
    _listeners: Vec<Arc<dyn AvailabilityListener>>,
}

/// The order in which the gates are read.
struct UnionQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    /// Gates to read, each at most once.
    queue: PrioritizedDeque<usize>,
    closed: bool,
    /// The gate of the last buffer, until the reader's next call.
    last: Option<usize>,
    listeners: Listeners,
    /// True if the queue was empty after the reader's last call: the next notification must wake it.
    reader_waits: bool,
    /// True if the next wait for data ends at once, or the current one.
    woken: bool,
    /// Idle time of all gates and of the task.
    idle: Idle,
}

impl UnionQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues a gate that has something to read, in front of the others for a priority event.
    fn notify(&self, gate: usize, priority: bool) {
        let mut state = self.lock();
        let none_before = state.queue.priority_len() == 0;
        if !state.add(gate, priority) {
            return;
        }
        state.idle.end();
        let data = std::mem::take(&mut state.reader_waits);
        let priority = priority && none_before;
        let listeners = (data || priority).then(|| Arc::clone(&state.listeners));
        drop(state);
        self.arrived.notify_one();
        Wake { data, priority, listeners }.call();
    }
}

impl State {
    /// Queues a gate. Returns false if nothing changed.
    fn add(&mut self, gate: usize, priority: bool) -> bool {
        let queued = self.queue.iter().any(|queued| *queued == gate);
        match (queued, priority) {
            (true, false) => return false,
            (true, true) => {
                self.queue.prioritize(|queued| *queued == gate);
            }
            (false, true) => self.queue.add_priority(gate),
            (false, false) => self.queue.add(gate),
        }
        true
    }
}

/// Notifies the union of what one of its gates has.
struct ToUnion {
    queue: Weak<UnionQueue>,
    gate: Weak<InputGate>,
    index: usize,
}

impl AvailabilityListener for ToUnion {
    fn data_available(&self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.notify(self.index, false);
        }
    }

    fn priority_available(&self) {
        // If the event was read meanwhile, the gate's data must not overtake other gates.
        let still = self.gate.upgrade().is_some_and(|gate| gate.has_priority_event());
        if let Some(queue) = self.queue.upgrade().filter(|_| still) {
            queue.notify(self.index, true);
        }
    }
}

impl UnionInputGate {
    /// Creates a union of sealed gates that have no other reader.
    ///
    /// # Errors
    /// [`ExchangeError::State`] for fewer than two gates, a duplicate, or a gate that is not sealed.
    pub fn new(gates: Vec<Arc<InputGate>>) -> Result<Self> {
        if gates.len() < 2 {
            return Err(ExchangeError::State("a union has two gates or more"));
        }
        for (index, gate) in gates.iter().enumerate() {
            if gates[..index].iter().any(|other| Arc::ptr_eq(other, gate)) {
                return Err(ExchangeError::State("a gate is in a union once"));
            }
            if !gate.is_sealed() {
                return Err(ExchangeError::State(
                    "a gate of a union is sealed: declare channels to come as unknown ones",
                ));
            }
        }
        for gate in &gates {
            gate.checkpointing().begin_reading()?;
        }
        let mut offsets = vec![0];
        for gate in &gates {
            offsets.push(offsets[offsets.len() - 1] + gate.num_channels());
        }
        let timers = gates.iter().map(|gate| Arc::clone(gate.timer()));
        let of_task = Arc::clone(&gates[0].metrics().timer);
        let idle = Idle::new(timers.chain([of_task]).collect());
        let queue = Arc::new(UnionQueue {
            state: Mutex::new(State {
                queue: PrioritizedDeque::new(),
                closed: false,
                last: None,
                listeners: Arc::new([]),
                reader_waits: true,
                woken: false,
                idle,
            }),
            arrived: Condvar::new(),
        });
        let listen = |(index, gate): (usize, &Arc<InputGate>)| {
            let (queue, weak) = (Arc::downgrade(&queue), Arc::downgrade(gate));
            let listener: Arc<dyn AvailabilityListener> =
                Arc::new(ToUnion { queue, gate: weak, index });
            gate.add_listener(Arc::downgrade(&listener));
            listener
        };
        let listeners = gates.iter().enumerate().map(listen).collect();
        let checkpointing = Checkpointing::default();
        Ok(Self { gates, offsets, queue, checkpointing, _listeners: listeners })
    }

    /// Channels of all gates.
    pub fn num_channels(&self) -> usize {
        self.offsets[self.gates.len()]
    }

    /// Closes the union and wakes a blocked reader; the gates stay open.
    pub fn close(&self) {
        let mut state = self.queue.lock();
        state.closed = true;
        state.idle.end();
        state.queue.clear();
        let listeners = Arc::clone(&state.listeners);
        drop(state);
        self.queue.arrived.notify_all();
        Wake { data: true, priority: false, listeners: Some(listeners) }.call();
    }

    /// Returns the gate of a channel, and the channel's index there.
    fn locate(&self, channel: usize) -> (&InputGate, usize) {
        let gate =
            self.offsets.partition_point(|first| *first <= channel).clamp(1, self.gates.len()) - 1;
        (&self.gates[gate], channel - self.offsets[gate])
    }

    fn has_something(&self, state: &State) -> bool {
        let waits = !state.queue.is_empty() || state.closed;
        waits || self.is_finished()
    }

    fn poll_gate(&self, state: &mut State) -> Result<Poll<Option<usize>>> {
        if let Some(last) = state.last.take() {
            self.gates[last].pause_unless_available();
        }
        if state.closed {
            return Err(ExchangeError::Closed("union input gate"));
        }
        if let Some(gate) = state.queue.poll() {
            return Ok(Poll::Ready(Some(gate)));
        }
        state.reader_waits = true;
        if self.is_finished() {
            state.idle.end();
            return Ok(Poll::Ready(None));
        }
        state.idle.begin();
        Ok(Poll::Pending)
    }

    /// Takes a buffer of a queued gate, if it has one. A gate with more, or with a failure, is queued
    /// again.
    fn take(&self, index: usize) -> Result<Option<Received>> {
        let polled = self.gates[index].poll_among_others();
        let polled = polled.inspect_err(|_| self.queue.notify(index, false))?;
        let Poll::Ready(Some(mut received)) = polled else {
            return Ok(None);
        };
        let mut state = self.queue.lock();
        if received.more_priority_events || received.more_available {
            state.add(index, received.more_priority_events);
        }
        state.reader_waits = state.queue.is_empty();
        state.last = Some(index);
        received.channel += self.offsets[index];
        received.more_available = !state.queue.is_empty();
        received.more_priority_events = state.queue.priority_len() > 0;
        Ok(Some(received))
    }

    fn wait_for_gate(&self, interrupt: Interrupt<'_>) -> Result<Option<usize>> {
        let UnionQueue { state, arrived } = &*self.queue;
        wait_until(state, arrived, interrupt, |state| self.poll_gate(state))
            .inspect_err(|_| self.queue.lock().idle.end())
    }
}

impl DataInput for UnionInputGate {
    fn next(&self, interrupt: Interrupt<'_>) -> Result<Option<Received>> {
        while let Some(gate) = self.wait_for_gate(interrupt)? {
            if let Some(received) = self.take(gate)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn poll_next(&self) -> Result<Poll<Option<Received>>> {
        loop {
            let polled = self.poll_gate(&mut self.queue.lock())?;
            match polled {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(None) => return Ok(Poll::Ready(None)),
                Poll::Ready(Some(gate)) => {
                    if let Some(received) = self.take(gate)? {
                        return Ok(Poll::Ready(Some(received)));
                    }
                }
            }
        }
    }

    fn is_available(&self) -> bool {
        self.has_something(&self.queue.lock())
    }

    fn has_priority_event(&self) -> bool {
        self.queue.lock().queue.priority_len() > 0
    }

    fn wait_available(&self, timeout: Option<Duration>, interrupt: Interrupt<'_>) -> Result<bool> {
        let UnionQueue { state, arrived } = &*self.queue;
        let is_wanted =
            |state: &mut State| std::mem::take(&mut state.woken) || self.has_something(state);
        wait_for(state, arrived, timeout, interrupt, is_wanted)?;
        Ok(self.is_available())
    }

    fn is_finished(&self) -> bool {
        self.gates.iter().all(|gate| gate.is_finished())
    }

    fn end_of_data_status(&self) -> EndOfDataStatus {
        let of_gate = |gate: &Arc<InputGate>| gate.end_of_data_status();
        let all = |one: EndOfDataStatus, other| match (one, other) {
            (EndOfDataStatus::NotEndOfData, _) | (_, EndOfDataStatus::NotEndOfData) => {
                EndOfDataStatus::NotEndOfData
            }
            (EndOfDataStatus::Drained, EndOfDataStatus::Drained) => EndOfDataStatus::Drained,
            _ => EndOfDataStatus::Stopped,
        };
        self.gates.iter().map(of_gate).fold(EndOfDataStatus::Drained, all)
    }

    fn add_listener(&self, listener: Weak<dyn AvailabilityListener>) {
        let mut state = self.queue.lock();
        let live = state.listeners.iter().filter(|listener| listener.strong_count() > 0).cloned();
        state.listeners = live.chain([Weak::clone(&listener)]).collect();
        let priority = state.queue.priority_len() > 0;
        drop(state);
        let (data, listeners) = (self.is_available(), Some(Arc::new([listener]) as Listeners));
        Wake { data, priority, listeners }.call();
    }

    fn channel_name(&self, channel: usize) -> String {
        let (gate, channel) = self.locate(channel);
        gate.channel_name(channel)
    }
}

impl CheckpointedInput for UnionInputGate {
    fn checkpointing(&self) -> &Checkpointing {
        &self.checkpointing
    }

    fn checkpointed_channels(&self) -> Result<CheckpointedChannels> {
        let mut ended = Vec::new();
        for (gate, first) in self.gates.iter().zip(&self.offsets) {
            let of_gate = gate.checkpointed_channels()?.ended;
            ended.extend(of_gate.into_iter().map(|channel| first + channel));
        }
        Ok(CheckpointedChannels { count: self.num_channels(), ended })
    }

    fn checkpointed_channel(&self, channel: usize) -> Result<Option<CheckpointedChannel>> {
        let (gate, channel) = self.locate(channel);
        gate.checkpointed_channel(channel)
    }

    fn wake_up(&self) {
        let mut state = self.queue.lock();
        state.woken = true;
        let listeners = Some(Arc::clone(&state.listeners));
        drop(state);
        self.queue.arrived.notify_all();
        Wake { data: true, priority: false, listeners }.call();
    }
}
