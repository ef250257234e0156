//! The state of a subpartition, under its lock (spec 4.2).

use std::sync::Arc;

use bytes::Bytes;
use headgate_memory::{Buffer, BufferConsumer};
use headgate_protocol::{CheckpointId, DataType, Next, PrioritizedDeque, Sequence, Totals};
use headgate_record::Event;

use crate::error::ExchangeError;
use crate::metrics::Passed;
use crate::stats::Queued;
use crate::view::DataListener;

pub(super) enum Item {
    /// A buffer or event that was complete when it was queued.
    Complete(Buffer, DataType),
    /// A buffer whose builder may still append. Only the last item may be unfinished.
    Growing(BufferConsumer),
    /// The last event. Its payload, the totals, is made when it is polled.
    EndOfPartition,
}

impl Item {
    fn is_data(&self) -> bool {
        match self {
            Self::Complete(_, data_type) => data_type.is_buffer(),
            Self::Growing(_) => true,
            Self::EndOfPartition => false,
        }
    }

    fn blocks_upstream(&self) -> bool {
        matches!(self, Self::Complete(_, data_type) if data_type.blocks_upstream())
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) items: PrioritizedDeque<Item>,
    /// Number of data items in `items`, events not counted.
    pub(super) data_items: u32,
    /// Number of events in `items` that block their channel.
    pub(super) barriers: u32,
    /// Bytes and buffers that were polled, and rows that were added.
    pub(super) totals: Totals,
    /// Data buffers that the writer finished, dropped ones included.
    pub(super) finished_data: Passed,
    pub(super) next_sequence: Sequence,
    pub(super) listener: Option<Arc<dyn DataListener>>,
    /// True while the reader waits for a notification: it found nothing to take.
    pub(super) reader_waits: bool,
    pub(super) flush_requested: bool,
    /// True from the poll of a barrier until the consumer resumes. Polls return nothing meanwhile.
    pub(super) blocked: bool,
    /// True if polls return empty buffers too: their reader spends a floating segment on each
    /// buffer of the backlog, and gets it back only with a buffer.
    pub(super) gives_empty: bool,
    pub(super) finished: bool,
    pub(super) consumed: bool,
    pub(super) released: bool,
    pub(super) failure: Option<ExchangeError>,
}

/// Data buffers that a barrier overtook, in their order.
pub(crate) type Overtaken = Vec<(Buffer, DataType)>;

impl Item {
    pub(super) fn is_timeoutable_barrier_of(&self, checkpoint: CheckpointId) -> bool {
        let Self::Complete(event, DataType::TimeoutableAlignedCheckpointBarrier) = self else {
            return false;
        };
        let event = Event::decode(event.as_slice());
        matches!(event, Ok(Event::CheckpointBarrier(barrier)) if barrier.id == checkpoint)
    }
}

/// Encodes EndOfPartition: its code, then the totals. Flink's readers ignore bytes behind the code.
pub(crate) fn end_of_partition(totals: &Totals) -> Bytes {
    const CODE: [u8; 4] = [0; 4];
    [&CODE[..], &totals.encode()[..]].concat().into()
}

impl State {
    /// The number of the last priority event that waits.
    pub(super) fn last_priority(&self) -> Option<Sequence> {
        let ahead = u32::try_from(self.items.priority_len()).unwrap_or(u32::MAX).checked_sub(1)?;
        Some(Sequence(self.next_sequence.0.wrapping_add(ahead)))
    }

    pub(super) fn next(&self) -> Next {
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

    /// Data buffers that a reader could take before it must resume. An unfinished last one counts only
    /// if it was flushed.
    pub(super) fn backlog(&self) -> u32 {
        if self.blocked {
            return 0;
        }
        if self.barriers > 0 {
            // Credit for data behind the barrier would lie idle, also while another channel needs it.
            let reachable = self.items.iter().take_while(|item| !item.blocks_upstream());
            return u32::try_from(reachable.filter(|item| item.is_data()).count())
                .unwrap_or(u32::MAX);
        }
        match self.items.peek_last() {
            Some(Item::Growing(last)) if !self.flush_requested && !last.is_complete() => {
                self.data_items.saturating_sub(1)
            }
            _ => self.data_items,
        }
    }

    /// Shows the last buffer to the reader although it is unfinished, unless it has no bytes to
    /// show.
    pub(super) fn flush(&mut self) {
        if let Some(Item::Growing(last)) = self.items.peek_last() {
            self.flush_requested = self.items.len() > 1 || last.is_data_available();
        }
    }

    /// Returns the listener to notify, if the reader waits and can take something now.
    pub(super) fn wake(&mut self) -> Option<Arc<dyn DataListener>> {
        let worth_it = self.next() != Next::None || self.failure.is_some() || self.released;
        if worth_it && std::mem::take(&mut self.reader_waits) {
            self.listener.clone()
        } else {
            None
        }
    }

    pub(super) fn release(&mut self) {
        self.released = true;
        // A reader without credit does not wait for data, but must be notified of the end.
        self.reader_waits = true;
        self.items.clear();
        (self.data_items, self.barriers) = (0, 0);
    }

    /// Returns the data buffers among the first `items`.
    pub(super) fn data_among(&self, items: usize) -> Overtaken {
        let data = self.items.iter().take(items).filter_map(|item| match item {
            Item::Complete(buffer, data_type) if data_type.is_buffer() => {
                Some((buffer.clone(), *data_type))
            }
            Item::Growing(consumer) => Some((consumer.copy().build(), DataType::DataBuffer)),
            Item::Complete(..) | Item::EndOfPartition => None,
        });
        data.collect()
    }

    /// Returns the place of the barrier of a checkpoint that may overtake and has not.
    pub(super) fn timeoutable_barrier(&self, checkpoint: CheckpointId) -> Option<usize> {
        self.items.iter().position(|item| item.is_timeoutable_barrier_of(checkpoint))
    }

    /// Bytes of data that the writer has committed, in finished buffers and in the open one.
    pub(super) fn written_bytes(&self) -> u64 {
        let open = match self.items.peek_last() {
            Some(Item::Growing(last)) if !last.is_complete() => last.written_bytes(),
            _ => 0,
        };
        self.finished_data.bytes + open as u64
    }

    /// The buffers that are queued; none once the subpartition is released.
    pub(super) fn queue(&self) -> Queued {
        if self.released {
            return Queued::default();
        }
        let bytes = self.written_bytes().saturating_sub(self.totals.bytes);
        Queued { buffers: self.items.len(), bytes }
    }
}
