//! One edge between two tasks: the producer's subpartition, the way, and the consumer's channel.

use std::collections::VecDeque;

use headgate_protocol::{
    Alignment, ChannelStatePersister, CheckpointBarrier, CheckpointId, InFlight, PrioritizedDeque,
    Sequence,
};

use super::state::Record;

/// A buffer or an event.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Data(Record),
    Barrier(CheckpointBarrier<()>),
    /// Made by the receiving channel, with the number of the barrier.
    Announcement(Sequence, CheckpointBarrier<()>),
    Cancel(CheckpointId),
    EndOfPartition,
}

impl Item {
    /// Returns true if the subpartition gives nothing behind it until it is resumed.
    fn blocks_upstream(&self) -> bool {
        matches!(self, Self::Barrier(barrier) if barrier.options.alignment.blocks_channel())
    }

    fn data(&self) -> Option<Record> {
        if let Self::Data(record) = self { Some(*record) } else { None }
    }

    fn is_barrier_of(&self, checkpoint: CheckpointId) -> bool {
        matches!(self, Self::Barrier(barrier) if barrier.id == checkpoint)
    }
}

/// An item with its number in the channel.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub(super) sequence: Sequence,
    pub(super) item: Item,
}

#[derive(Debug)]
pub(super) struct Edge {
    /// Producing task, and the index of the subpartition among its outputs.
    pub(super) from: (usize, usize),
    /// Consuming task, and the index of the channel among its inputs.
    pub(super) to: (usize, usize),
    /// True if the consumer reads from the subpartition itself.
    pub(super) is_local: bool,
    /// Data buffers that the channel has room for.
    credits: usize,
    /// The subpartition.
    queue: PrioritizedDeque<Item>,
    /// True from an item that blocks the subpartition until it is resumed.
    blocked: bool,
    next: Sequence,
    way: VecDeque<Numbered>,
    /// Resumes on their way to the producer.
    resumes: usize,
    received: PrioritizedDeque<Numbered>,
    pub(super) persister: ChannelStatePersister,
    /// True from an item that blocks the subpartition, and that the task has read, until the task
    /// resumes the channel.
    pub(super) stopped: bool,
    /// The last data that the task read.
    last_read: Option<Sequence>,
}

impl Edge {
    pub(super) fn new(
        from: (usize, usize),
        to: (usize, usize),
        is_local: bool,
        credits: usize,
    ) -> Self {
        Self {
            from,
            to,
            is_local,
            credits,
            queue: PrioritizedDeque::new(),
            blocked: false,
            next: Sequence(0),
            way: VecDeque::new(),
            resumes: 0,
            received: PrioritizedDeque::new(),
            persister: ChannelStatePersister::default(),
            stopped: false,
            last_read: None,
        }
    }

    /// Appends an item to the subpartition.
    pub(super) fn send(&mut self, item: Item) {
        self.queue.add(item);
    }

    /// Puts an unaligned barrier ahead of all queued data. Returns the data.
    pub(super) fn overtake(&mut self, barrier: CheckpointBarrier<()>) -> Vec<Record> {
        let data = self.queue.iter().filter_map(Item::data).collect();
        self.queue.add_priority(Item::Barrier(barrier));
        data
    }

    /// Lets a timed barrier that was not sent yet overtake. Returns the data before it.
    pub(super) fn time_out(&mut self, checkpoint: CheckpointId) -> Vec<Record> {
        let before = self.queue.iter().take_while(|item| !item.is_barrier_of(checkpoint));
        let data = before.filter_map(Item::data).collect();
        let found = self.queue.remove_first(|item| item.is_barrier_of(checkpoint));
        let Ok(Item::Barrier(barrier)) = found else {
            panic!("the barrier of {checkpoint} was sent")
        };
        self.queue.add_priority(Item::Barrier(barrier.into_unaligned()));
        data
    }

    /// Takes the next item of the subpartition, if it may be sent.
    pub(super) fn give(&mut self) -> Option<Numbered> {
        let next = self.queue.peek().filter(|_| !self.blocked)?;
        let waiting = self.way.iter().chain(self.received.iter());
        let used = waiting.filter(|waiting| waiting.item.data().is_some()).count();
        if !self.is_local && next.data().is_some() && used >= self.credits {
            return None;
        }
        let item = self.queue.poll()?;
        self.blocked = item.blocks_upstream();
        let sequence = self.next;
        self.next = sequence.next();
        Some(Numbered { sequence, item })
    }

    /// Sends an item that [`give`](Self::give) returned.
    pub(super) fn put_on_way(&mut self, item: Numbered) {
        self.way.push_back(item);
    }

    pub(super) fn arrive(&mut self) -> Option<Numbered> {
        self.way.pop_front()
    }

    /// Queues an arrived item for the task. A timed barrier is announced ahead of the data before it.
    pub(super) fn receive(&mut self, arrived: Numbered) {
        let Numbered { sequence, item } = &arrived;
        match item {
            Item::Barrier(barrier) if barrier.options.alignment == Alignment::Unaligned => {
                self.received.add_priority(arrived);
            }
            Item::Barrier(barrier) => {
                if barrier.deadline().is_some() {
                    let item = Item::Announcement(*sequence, barrier.clone());
                    self.received.add_priority(Numbered { sequence: *sequence, item });
                }
                self.received.add(arrived);
            }
            _ => self.received.add(arrived),
        }
    }

    /// Lets a barrier that was announced overtake the data before it.
    pub(super) fn convert_to_priority(&mut self, sequence: Sequence) {
        let is_barrier = |numbered: &Numbered| {
            numbered.sequence == sequence && matches!(numbered.item, Item::Barrier(_))
        };
        let barrier = self.received.remove_first(is_barrier);
        self.received.add_priority(barrier.expect("an announced barrier was not read"));
    }

    /// The queued data that belongs to a checkpoint.
    pub(super) fn in_flight(&self, of: InFlight) -> Vec<Record> {
        let belongs = self.received.iter().filter(|numbered| of.contains(numbered.sequence));
        belongs.filter_map(|numbered| numbered.item.data()).collect()
    }

    /// Returns true if the task finds a priority event here.
    pub(super) fn has_priority(&self) -> bool {
        if self.is_local {
            !self.blocked && self.queue.priority_len() > 0
        } else {
            self.received.priority_len() > 0
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        if self.is_local {
            !self.blocked && !self.queue.is_empty()
        } else {
            !self.received.is_empty()
        }
    }

    /// Checks that data is read in the order in which it was sent.
    pub(super) fn check_order(&mut self, read: &Numbered) {
        if read.item.data().is_some() {
            let before = self.last_read.replace(read.sequence).map(|before| before.0);
            assert!(before < Some(read.sequence.0), "{read:?} came after {before:?}");
        }
    }

    /// Takes the next item that arrived.
    pub(super) fn take_received(&mut self) -> Option<Numbered> {
        self.received.poll()
    }

    /// Lets the producer go on; the message takes its time.
    pub(super) fn resume(&mut self) {
        assert!(std::mem::take(&mut self.stopped), "nothing blocks the channel");
        self.resumes += 1;
    }

    /// Delivers a resume to the producer. Returns false if none is on its way.
    pub(super) fn deliver_resume(&mut self) -> bool {
        let Some(left) = self.resumes.checked_sub(1) else { return false };
        assert!(std::mem::take(&mut self.blocked), "the subpartition is not blocked");
        self.resumes = left;
        true
    }

    /// Number of data buffers in the subpartition.
    pub(super) fn queued_data(&self) -> usize {
        self.queue.iter().filter(|item| item.data().is_some()).count()
    }

    /// Returns true if the task has read all that was sent.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.way.is_empty() && self.received.is_empty()
    }
}
