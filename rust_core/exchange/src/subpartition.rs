//! The queue of buffers for one consumer (spec 4.2, 4.3).

mod usage;

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use headgate_memory::{Buffer, BufferConsumer};
use headgate_protocol::{DataType, Next, PrioritizedDeque, Sequence, Totals};

use crate::error::{ExchangeError, Result};
use crate::lock::lock;
use crate::metrics::Passed;
use crate::view::{DataListener, Polled};

enum Item {
    /// Complete from the start.
    Complete(Buffer, DataType),
    /// A stream of bytes whose builder may still append; only the last item may be unfinished.
    Growing(BufferConsumer),
    /// Its payload, the totals, is known once everything before it was polled.
    EndOfPartition,
}

#[derive(Default)]
struct State {
    items: PrioritizedDeque<Item>,
    /// Data items in `items`, never events.
    data_items: u32,
    /// What was taken, and the rows that were added.
    totals: Totals,
    /// Data buffers that the writer finished, dropped ones included.
    finished_data: Passed,
    next_sequence: Sequence,
    listener: Option<Arc<dyn DataListener>>,
    /// The reader found nothing and wants to be told.
    reader_waits: bool,
    flush_requested: bool,
    /// A barrier was polled: nothing is given before the consumer resumes.
    blocked: bool,
    /// The reader spends floating segments on what the backlog counts, so that even an empty buffer
    /// is given: else its credit would never come back.
    gives_empty: bool,
    /// What a buffer should hold, in bytes; `None`: as much as it can.
    buffer_size: Option<u32>,
    finished: bool,
    consumed: bool,
    released: bool,
    failure: Option<ExchangeError>,
}

/// The event's code and, where its readers ignore trailing bytes, what was sent before it.
fn end_of_partition(totals: &Totals) -> Bytes {
    const CODE: [u8; 4] = [0; 4];
    [&CODE[..], &totals.encode()[..]].concat().into()
}

fn not_found(detail: &str) -> ExchangeError {
    ExchangeError::PartitionNotFound { peer: "this process".to_owned(), detail: detail.to_owned() }
}

/// A prioritized deque of buffers with one reader.
#[derive(Default)]
pub(crate) struct Subpartition(Mutex<State>);

impl State {
    fn next(&self) -> Next {
        if self.released || self.blocked {
            return Next::None;
        }
        match self.items.peek() {
            None => Next::None,
            Some(Item::Complete(_, data_type)) if data_type.is_event() => Next::Event,
            Some(Item::Complete(..)) => Next::Data,
            Some(Item::EndOfPartition) => Next::Event,
            Some(Item::Growing(consumer)) => {
                let shown = self.items.len() > 1 || self.flush_requested || consumer.is_complete();
                if shown { Next::Data } else { Next::None }
            }
        }
    }

    /// Data buffers promised behind the head; an unfinished last one only if it was flushed.
    fn backlog(&self) -> u32 {
        if self.blocked {
            return 0;
        }
        match self.items.peek_last() {
            Some(Item::Growing(last)) if !self.flush_requested && !last.is_complete() => {
                self.data_items.saturating_sub(1)
            }
            _ => self.data_items,
        }
    }

    /// Whom to tell, if what changed can be taken and the reader waits for it.
    fn wake(&mut self) -> Option<Arc<dyn DataListener>> {
        let worth_it = self.next() != Next::None || self.failure.is_some() || self.released;
        if worth_it && std::mem::take(&mut self.reader_waits) {
            self.listener.clone()
        } else {
            None
        }
    }

    fn release(&mut self) {
        self.released = true;
        // A reader without credit does not wait for data, but must learn of the end.
        self.reader_waits = true;
        self.items.clear();
        self.data_items = 0;
    }
}

impl Subpartition {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Changes the state and tells the reader afterwards if there is something for it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let listener = state.wake();
        drop(state);
        if let Some(listener) = listener {
            listener.data_available();
        }
    }

    /// Queues a complete data buffer; `rows` records start in it. Dropped after a release.
    pub(crate) fn add_data(&self, buffer: Buffer, data_type: DataType, rows: u64) {
        fail_point!("subpartition.added");
        self.change(|state| {
            state.finished_data.add(buffer.len());
            if !state.released && !state.finished {
                state.totals.rows += rows;
                state.data_items += 1;
                state.items.add(Item::Complete(buffer, data_type));
            }
        });
    }

    /// Queues a buffer that its builder still fills.
    pub(crate) fn add_growing(&self, consumer: BufferConsumer) {
        self.change(|state| {
            if !state.released && !state.finished {
                state.data_items += 1;
                state.items.add(Item::Growing(consumer));
            }
        });
    }

    /// Counts a growing buffer of so many bytes that is complete now, and shows its end.
    pub(crate) fn completed(&self, bytes: usize) {
        self.change(|state| state.finished_data.add(bytes));
    }

    /// Counts records that were appended to a growing buffer.
    pub(crate) fn appended(&self, rows: u64) {
        self.change(|state| state.totals.rows += rows);
    }

    /// Queues an event, ahead of all data if it has priority.
    pub(crate) fn add_event(&self, event: Bytes, data_type: DataType) {
        let mut overtakes = None;
        self.change(|state| {
            if state.released || state.finished {
                return;
            }
            let item = Item::Complete(Buffer::from(event), data_type);
            if data_type.has_priority() {
                let ahead = u32::try_from(state.items.priority_len()).unwrap_or(u32::MAX);
                let sequence = Sequence(state.next_sequence.0.wrapping_add(ahead));
                state.items.add_priority(item);
                // The reader may be busy with what waits, or have no credit for it; one that a
                // barrier blocks looks when it goes on.
                if !state.blocked {
                    state.reader_waits = false;
                    overtakes = state.listener.clone().map(|listener| (listener, sequence));
                }
            } else {
                state.items.add(item);
            }
        });
        if let Some((listener, sequence)) = overtakes {
            listener.priority_event(sequence);
        }
    }

    /// Shows an unfinished last buffer to the reader.
    pub(crate) fn flush(&self) {
        self.change(|state| {
            if let Some(Item::Growing(last)) = state.items.peek_last() {
                state.flush_requested = state.items.len() > 1 || last.is_data_available();
            }
        });
    }

    /// Queues EndOfPartition; nothing can be added any more.
    pub(crate) fn finish(&self) {
        fail_point!("subpartition.finished");
        self.change(|state| {
            if !state.finished && !state.released {
                state.finished = true;
                state.items.add(Item::EndOfPartition);
            }
        });
    }

    /// Drops what is queued and everything that is still added: nobody will read it.
    pub(crate) fn release(&self) {
        fail_point!("subpartition.released");
        self.change(State::release);
    }

    /// Like release, but the reader learns why.
    pub(crate) fn fail(&self, cause: &ExchangeError) {
        self.change(|state| {
            if !state.consumed {
                state.failure.get_or_insert_with(|| cause.clone());
                state.release();
            }
        });
    }

    /// Attaches the one reader; it is told at once if there is something to take.
    ///
    /// # Errors
    /// When there was a reader before, or the partition failed.
    pub(crate) fn attach(&self, listener: Arc<dyn DataListener>) -> Result<Next> {
        fail_point!("subpartition.attached", error => return Err(error));
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

    /// Takes the next buffer. Where nothing follows, the listener is told once something does.
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
            state.totals.bytes += buffer.len() as u64;
            state.totals.buffers += 1;
        }
        state.blocked = data_type.blocks_upstream();
        let sequence = state.next_sequence;
        state.next_sequence = sequence.next();
        let next = state.next();
        state.reader_waits = next == Next::None;
        Ok(Some(Polled { buffer, data_type, backlog: state.backlog(), sequence, next }))
    }

    /// Goes on behind the barrier that was polled. It tells nobody: whoever resumes looks again.
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

    /// Gives finished buffers without bytes as well.
    pub(crate) fn give_empty_buffers(&self) {
        self.lock().gives_empty = true;
    }

    /// Buffers that are begun from now on should hold no more than this many bytes.
    pub(crate) fn set_buffer_size(&self, size: u32) {
        self.lock().buffer_size = Some(size);
    }

    /// What a new buffer should hold, in bytes.
    pub(crate) fn buffer_size(&self) -> usize {
        self.lock().buffer_size.map_or(usize::MAX, |size| size as usize)
    }

    /// What a poll would give; if nothing, the listener is told when that changes.
    pub(crate) fn availability(&self) -> Next {
        let mut state = self.lock();
        let next = state.next();
        if next == Next::None {
            state.reader_waits = true;
        }
        next
    }

    /// The reader has everything, EndOfPartition included.
    pub(crate) fn consumed(&self) {
        fail_point!("subpartition.consumed");
        let mut state = self.lock();
        state.consumed = true;
        state.release();
        state.listener = None;
    }

    /// Drops everything, the reader's listener included: it would keep the I/O thread's mailbox.
    pub(crate) fn close(&self) {
        self.release();
        self.lock().listener = None;
    }

    /// Whether nobody will take anything any more.
    pub(crate) fn is_released(&self) -> bool {
        self.lock().released
    }

    /// Why it failed, once it has.
    pub(crate) fn failure(&self) -> Option<ExchangeError> {
        self.lock().failure.clone()
    }

    /// Whether a reader is attached.
    pub(crate) fn has_reader(&self) -> bool {
        self.lock().listener.is_some()
    }

    /// Data buffers that a reader could take.
    pub(crate) fn backlog(&self) -> u32 {
        self.lock().backlog()
    }
}

#[cfg(test)]
mod tests;
