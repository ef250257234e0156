//! The queue of buffers for one consumer (spec 4.2, 4.3).

mod state;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use headgate_memory::{Buffer, BufferConsumer, lock};
use headgate_net::Polled;
use headgate_protocol::{CheckpointId, DataType, Next, Sequence, Totals};

use crate::error::{ExchangeError, Result};
use crate::stats::SubpartitionStats;
use crate::view::{DataListener, ViewState};

use state::{Item, State};
pub(crate) use state::{Overtaken, end_of_partition};

fn not_found(detail: &str) -> ExchangeError {
    ExchangeError::PartitionNotFound { peer: "this process".to_owned(), detail: detail.to_owned() }
}

fn overtaking(barrier: Bytes) -> Item {
    Item::Complete(Buffer::from(barrier), DataType::PrioritizedEventBuffer)
}

/// A prioritized deque of buffers with one reader.
#[derive(Default)]
pub(crate) struct Subpartition {
    /// No listener is called under this lock.
    state: Mutex<State>,
    /// Equals `state.released`, for writers to read without the lock. Changes under it only.
    released: AtomicBool,
    /// Bytes that a new buffer should hold, 0 for as many as fit. Changes under the lock only.
    buffer_size: AtomicU32,
    /// Data buffers that a reader in another process has received and not read.
    unread: AtomicU32,
}

impl Subpartition {
    fn lock(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        tests::LOCKS.set(tests::LOCKS.get() + 1);
        lock(&self.state)
    }

    fn release_state(&self, state: &mut State) {
        state.release();
        self.released.store(true, Ordering::Relaxed);
        self.buffer_size.store(0, Ordering::Relaxed);
    }

    /// Changes the state. Notifies the reader afterwards, without the lock, if it waits for the
    /// change.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let listener = state.wake();
        drop(state);
        if let Some(listener) = listener {
            listener.data_available();
        }
    }

    /// Queues a complete data buffer in which `rows` records start. Drops it after a release.
    pub(crate) fn add_data(&self, buffer: Buffer, data_type: DataType, rows: u64) {
        fail_point!("subpartition.added");
        self.change(|state| {
            state.finished_data.add(buffer.plain_len());
            if !state.released && !state.finished {
                state.totals.rows += rows;
                state.data_items += 1;
                state.items.add(Item::Complete(buffer, data_type));
            }
        });
    }

    /// Queues a buffer that its builder is still filling.
    pub(crate) fn add_growing(&self, consumer: BufferConsumer) {
        self.change(|state| {
            if !state.released && !state.finished {
                state.data_items += 1;
                state.items.add(Item::Growing(consumer));
            }
        });
    }

    /// Takes the last buffer back, to be queued in another form. None if it is complete, or if its
    /// reader has begun to read it.
    pub(crate) fn take_back(&self) -> Option<BufferConsumer> {
        let mut state = self.lock();
        match state.items.peek_last() {
            Some(Item::Growing(consumer)) if consumer.is_unread() => {}
            _ => return None,
        }
        let Some(Item::Growing(consumer)) = state.items.poll_last() else {
            return None;
        };
        state.data_items -= 1;
        Some(consumer)
    }

    /// Queues a buffer that was taken back and is complete now.
    pub(crate) fn put_back(&self, buffer: Buffer) {
        self.change(|state| {
            if !state.released && !state.finished {
                state.data_items += 1;
                state.items.add(Item::Complete(buffer, DataType::DataBuffer));
            }
        });
    }

    /// Counts a growing buffer that is complete now, and shows its end to the reader.
    pub(crate) fn completed(&self, bytes: usize) {
        self.change(|state| state.finished_data.add(bytes));
    }

    /// Counts records that were appended to a growing buffer, and shows them to the reader if
    /// `flush`.
    pub(crate) fn appended(&self, rows: u64, flush: bool) {
        self.change(|state| {
            state.totals.rows += rows;
            if flush {
                state.flush();
            }
        });
    }

    /// Queues an event, ahead of all data if it has priority.
    pub(crate) fn add_event(&self, event: Bytes, data_type: DataType) {
        let item = Item::Complete(Buffer::from(event), data_type);
        if data_type.has_priority() {
            self.prioritize(|state| (!state.finished).then_some(item));
        } else {
            self.change(|state| {
                if !state.released && !state.finished {
                    state.barriers += u32::from(data_type.blocks_upstream());
                    state.items.add(item);
                }
            });
        }
    }

    /// Queues a barrier ahead of all data. Returns that data.
    pub(crate) fn add_overtaking(&self, barrier: Bytes) -> Overtaken {
        let mut overtaken = Vec::new();
        self.prioritize(|state| {
            overtaken = state.data_among(usize::MAX);
            (!state.finished).then(|| overtaking(barrier))
        });
        overtaken
    }

    /// Replaces the queued barrier of a checkpoint by one that overtakes the data before it. Returns
    /// that data; `None` if no such barrier waits.
    pub(crate) fn time_out(&self, checkpoint: CheckpointId, barrier: Bytes) -> Option<Overtaken> {
        let mut overtaken = None;
        self.prioritize(|state| {
            let place = state.timeoutable_barrier(checkpoint)?;
            overtaken = Some(state.data_among(place));
            let removed =
                state.items.remove_first(|item| item.is_timeoutable_barrier_of(checkpoint));
            state.barriers -= u32::from(removed.is_ok());
            removed.is_ok().then(|| overtaking(barrier))
        });
        overtaken
    }

    /// Returns true while the barrier of a checkpoint waits that may overtake.
    pub(crate) fn has_timeoutable_barrier(&self, checkpoint: CheckpointId) -> bool {
        self.lock().timeoutable_barrier(checkpoint).is_some()
    }

    /// Queues what `make` returns ahead of all data, and tells the reader. Does nothing after a
    /// release.
    fn prioritize(&self, make: impl FnOnce(&mut State) -> Option<Item>) {
        let mut overtakes = None;
        self.change(|state| {
            if state.released {
                return;
            }
            let Some(item) = make(state) else { return };
            state.items.add_priority(item);
            // The reader may be busy with other buffers, or have no credit for them. A reader that a
            // barrier blocks looks again when it resumes.
            if !state.blocked {
                state.reader_waits = false;
                overtakes = state.listener.clone().zip(state.last_priority());
            }
        });
        if let Some((listener, sequence)) = overtakes {
            listener.priority_event(sequence);
        }
    }

    /// Shows an unfinished last buffer to the reader.
    pub(crate) fn flush(&self) {
        self.change(State::flush);
    }

    /// Queues EndOfPartition. Later additions are dropped.
    pub(crate) fn finish(&self) {
        fail_point!("subpartition.finished");
        self.change(|state| {
            if !state.finished && !state.released {
                state.finished = true;
                state.items.add(Item::EndOfPartition);
            }
        });
    }

    /// Drops all queued buffers and all later additions: nobody will read them.
    pub(crate) fn release(&self) {
        fail_point!("subpartition.released");
        self.change(|state| self.release_state(state));
    }

    /// Like [`release`](Self::release), but polls return the cause. Does nothing if the reader has
    /// everything already.
    pub(crate) fn fail(&self, cause: &ExchangeError) {
        self.change(|state| {
            if !state.consumed {
                state.failure.get_or_insert_with(|| cause.clone());
                self.release_state(state);
            }
        });
    }

    /// Attaches the one reader. Returns the kind of buffer that a poll would return.
    ///
    /// # Errors
    /// When there was a reader before, or the partition failed.
    pub(crate) fn attach(&self, listener: Arc<dyn DataListener>) -> Result<Next> {
        fail_point!("subpartition.attached", text => return Err(ExchangeError::Aborted(text)));
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.listener.is_some() {
            return Err(not_found("the subpartition has a reader already"));
        }
        if state.released {
            return Err(not_found("the subpartition is not built, or was released"));
        }
        state.listener = Some(listener);
        let next = state.next();
        state.reader_waits = next == Next::None;
        Ok(next)
    }

    /// Takes the next buffer. If nothing follows it, the listener is called once something does.
    ///
    /// # Errors
    /// Why the producer failed.
    pub(crate) fn poll(&self) -> Result<Option<Polled>> {
        let mut state = self.lock();
        let state = &mut *state;
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.blocked {
            return Ok(None);
        }
        let (buffer, data_type) = loop {
            match state.items.peek() {
                None => {
                    state.flush_requested = false;
                    state.reader_waits = true;
                    return Ok(None);
                }
                Some(Item::Growing(_)) => {}
                Some(Item::Complete(..) | Item::EndOfPartition) => match state.items.poll() {
                    Some(Item::Complete(buffer, data_type)) => {
                        if data_type.is_buffer() {
                            state.data_items -= 1;
                        }
                        break (buffer, data_type);
                    }
                    _ => {
                        let event = end_of_partition(&state.totals);
                        break (Buffer::from(event), DataType::EndOfPartition);
                    }
                },
            }
            let last = state.items.len() == 1;
            let Some(Item::Growing(consumer)) = state.items.peek_mut() else {
                continue;
            };
            let built = consumer.build();
            let finished = consumer.is_finished();
            if last {
                state.flush_requested = false;
            }
            if finished {
                state.items.poll();
                state.data_items -= 1;
            }
            if !built.is_empty() || (finished && state.gives_empty) {
                break (built, DataType::DataBuffer);
            }
            if !finished {
                state.reader_waits = true;
                return Ok(None);
            }
        };
        if data_type.is_buffer() {
            state.totals.bytes += buffer.plain_len() as u64;
            state.totals.buffers += 1;
        }
        state.blocked = data_type.blocks_upstream();
        state.barriers -= u32::from(state.blocked);
        let sequence = state.next_sequence;
        state.next_sequence = sequence.next();
        let next = state.next();
        state.reader_waits = next == Next::None;
        Ok(Some(Polled { buffer, data_type, backlog: state.backlog(), sequence, next }))
    }

    /// Resumes behind the barrier that was polled. Calls no listener: the caller looks again.
    ///
    /// # Errors
    /// When no barrier blocks it.
    pub(crate) fn resume(&self) -> Result<()> {
        if std::mem::take(&mut self.lock().blocked) {
            Ok(())
        } else {
            Err(ExchangeError::State("the subpartition is not blocked by a barrier"))
        }
    }

    /// Returns the number of the last priority event that waits, and can be polled.
    pub(crate) fn priority_event(&self) -> Option<Sequence> {
        let state = self.lock();
        state.last_priority().filter(|_| !state.blocked)
    }

    /// Makes polls return finished buffers without bytes too.
    pub(crate) fn give_empty_buffers(&self) {
        self.lock().gives_empty = true;
    }

    /// Asks for buffers of at most this many bytes from now on. Ignored after a release.
    pub(crate) fn set_buffer_size(&self, size: u32) {
        let state = self.lock();
        if !state.released {
            self.buffer_size.store(size, Ordering::Relaxed);
        }
    }

    /// Bytes that a new buffer should hold. Takes no lock.
    pub(crate) fn buffer_size(&self) -> usize {
        match self.buffer_size.load(Ordering::Relaxed) {
            0 => usize::MAX,
            size => size as usize,
        }
    }

    /// Sets the number of data buffers that a reader in another process has and has not read.
    pub(crate) fn set_unread(&self, buffers: u32) {
        self.unread.store(buffers, Ordering::Relaxed);
    }

    /// Data buffers that a reader in another process has and has not read. Takes no lock.
    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed) as usize
    }

    /// Returns all that its reader needs to know. If `waits`, and nothing can be taken, the
    /// listener is called once something can.
    pub(crate) fn look(&self, waits: bool) -> ViewState {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return ViewState::Failed(failure.clone());
        }
        if state.released {
            return ViewState::Released;
        }
        let next = state.next();
        state.reader_waits |= waits && next == Next::None;
        ViewState::Open { next, backlog: state.backlog() }
    }

    /// Releases the subpartition after its reader took everything, EndOfPartition included.
    pub(crate) fn consumed(&self) {
        fail_point!("subpartition.consumed");
        let mut state = self.lock();
        state.consumed = true;
        self.release_state(&mut state);
        state.listener = None;
    }

    /// Drops everything, the listener too: it would keep the I/O thread's mailbox alive.
    pub(crate) fn close(&self) {
        self.release();
        self.lock().listener = None;
    }

    /// True once nobody will take anything any more. Takes no lock: a writer that sees it late
    /// writes buffers that are dropped.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// True while a reader in another process reads it, or may still come.
    pub(crate) fn is_remote(&self) -> bool {
        let state = self.lock();
        !state.released && !state.listener.as_ref().is_some_and(|listener| listener.is_local())
    }

    /// True if its reader takes buffers in pieces. None if nobody will read it any more.
    pub(crate) fn takes_pieces(&self) -> Option<bool> {
        let state = self.lock();
        let takes = state.listener.as_ref().is_some_and(|listener| listener.takes_pieces());
        (!state.released).then_some(takes)
    }

    /// True once a reader is attached.
    pub(crate) fn has_reader(&self) -> bool {
        self.lock().listener.is_some()
    }

    /// Data buffers that a reader could take before it must resume.
    pub(crate) fn backlog(&self) -> u32 {
        self.lock().backlog()
    }

    /// Data buffers that are queued, the unfinished one included.
    pub(crate) fn queued(&self) -> u32 {
        self.lock().data_items
    }

    /// Buffers that are queued, and the bytes of data that were ever written; zeros once it is
    /// released.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let state = self.lock();
        if state.released { (0, 0) } else { (state.items.len(), state.written_bytes()) }
    }

    pub(crate) fn stats(&self) -> SubpartitionStats {
        let state = self.lock();
        let Totals { rows, bytes, buffers } = state.totals;
        SubpartitionStats {
            queued: state.data_items,
            rows,
            bytes,
            buffers,
            queue: state.queue(),
            finished: state.finished_data,
        }
    }
}

#[cfg(test)]
mod tests;
