//! Channels that are added beyond what the pool can give at once, against a naive model.

mod model;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bytes::Bytes;
use headgate_memory::{Buffer, GlobalPool, LocalPool, PooledSegment};
use headgate_net::{Channel, CreditSink, Target, UpstreamMessage};
use headgate_protocol::{
    BufferHeader, ChannelId, DataType, Generation, ReceiveChannel, ReceiveLedger, Sequence, Totals,
};
use proptest::prelude::*;

use super::*;
use crate::gate::channel::InputChannel;
use crate::gate::checkpointing::CheckpointedInput;
use crate::gate::{DataInput, InputGate, Place, RemoteChannel};
use crate::subpartition::end_of_partition;
use model::Model;

const TOTAL: usize = 9;
const SEGMENT: usize = 64;
/// Payload bytes of each data buffer.
const BYTES: u32 = 4;
const GENERATION: Generation = Generation(0);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds a channel, with as many segments as are free.
    Add,
    /// A data buffer arrives, if the producer has credit for it, and says how many follow.
    Data { channel: usize, backlog: u32 },
    /// An event arrives, which needs no credit.
    Event { channel: usize, backlog: u32 },
    /// The producer announces its backlog without a buffer.
    Backlog { channel: usize, backlog: u32 },
    /// A barrier arrives: nothing follows until the channel is resumed.
    Barrier { channel: usize },
    /// The consumer resumes a channel whose barrier it read.
    Resume { channel: usize },
    /// The end of the partition arrives.
    End { channel: usize },
    /// The consumer takes one buffer from the gate.
    Read,
    /// The consumer recycles a buffer that it took.
    Recycle(usize),
    /// Another pool takes or returns a segment.
    Other { takes: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let channel = || 0_usize..8;
    prop_oneof![
        3 => Just(Step::Add),
        9 => (channel(), 0_u32..9).prop_map(|(channel, backlog)| Step::Data { channel, backlog }),
        1 => (channel(), 0_u32..9).prop_map(|(channel, backlog)| Step::Event { channel, backlog }),
        2 => (channel(), 1_u32..9).prop_map(|(channel, backlog)| Step::Backlog { channel, backlog }),
        1 => channel().prop_map(|channel| Step::Barrier { channel }),
        1 => channel().prop_map(|channel| Step::Resume { channel }),
        1 => channel().prop_map(|channel| Step::End { channel }),
        6 => Just(Step::Read),
        6 => any::<usize>().prop_map(Step::Recycle),
        3 => any::<bool>().prop_map(|takes| Step::Other { takes }),
    ]
}

/// Keeps the channels that have credit to announce, as the I/O thread's mailbox does.
#[derive(Default)]
struct Mailbox(Mutex<Vec<Arc<dyn Channel>>>);

impl CreditSink for Mailbox {
    fn credit_available(&self, channel: Arc<dyn Channel>) {
        lock(&self.0).push(channel);
    }

    fn cancel(&self, _channel: Arc<dyn Channel>) {}

    fn resume(&self, channel: Arc<dyn Channel>) {
        channel.resumed();
        lock(&self.0).push(channel);
    }

    fn tell(&self, _channel: Arc<dyn Channel>, _message: UpstreamMessage) {}
}

/// One channel, and what its producer knows.
struct Producer {
    channel: Arc<RemoteChannel>,
    credit: usize,
    sequence: Sequence,
    sent: u64,
    /// True from a barrier to the resume.
    blocked: bool,
    /// True from the read of a barrier to the resume.
    to_resume: bool,
    ended: bool,
    /// Data buffers that arrived and were not read.
    unread: usize,
}

struct World {
    global: GlobalPool,
    gate: InputGate,
    other: LocalPool,
    mailbox: Arc<Mailbox>,
    producers: Vec<Producer>,
    /// Buffers that the consumer has taken and not recycled.
    taken: Vec<Buffer>,
    of_other: Vec<PooledSegment>,
    model: Model,
}

impl World {
    fn new(exclusive: usize, floating: usize) -> Self {
        let global = GlobalPool::new(TOTAL, SEGMENT);
        let buffers = BufferOptions {
            buffers_per_channel: exclusive,
            floating_buffers_per_gate: floating,
            ..BufferOptions::default()
        };
        let pool = GatePool::new(&global, &buffers).unwrap();
        Self {
            gate: InputGate::new(pool, Arc::default()),
            other: global.create_local_pool(0, TOTAL).unwrap(),
            global,
            mailbox: Arc::default(),
            producers: Vec::new(),
            taken: Vec::new(),
            of_other: Vec::new(),
            model: Model::new(TOTAL, exclusive, floating),
        }
    }

    /// The segments that the gate may hold now: memory's own tests are about this number.
    fn size(&self) -> usize {
        self.gate.pool().usage().0
    }

    /// Adds a channel as an environment does.
    fn add(&mut self) {
        let pool = self.gate.pool();
        let promise = self.model.promise();
        let (exclusive, free) = match pool.admit() {
            Ok(admitted) => admitted,
            Err(error) => {
                assert_eq!(promise, None, "{error}");
                return;
            }
        };
        assert_eq!(promise, Some(exclusive));
        let given = self.model.admit(exclusive, self.size());
        assert_eq!(free.len(), given, "segments of the new channel");
        let count = |count| u32::try_from(count).unwrap();
        let ledger = ReceiveLedger::opened(count(exclusive), count(given));
        let id = ChannelId(count(self.producers.len()));
        let receive = ReceiveChannel::new(id, GENERATION, ledger);
        let sink = Arc::<Mailbox>::clone(&self.mailbox);
        let make = |index| {
            let (queue, name) = (self.gate.queue(), format!("channel {index}"));
            Ok(RemoteChannel::new(receive, index, name, free, queue, pool, sink))
        };
        let (_, channel) = self.gate.place_channel(Place::New, make).unwrap().unwrap();
        channel.ask_for_segments();
        self.model.open(exclusive, given, self.size());
        self.producers.push(Producer {
            channel,
            credit: given,
            sequence: Sequence(0),
            sent: 0,
            blocked: false,
            to_resume: false,
            ended: false,
            unread: 0,
        });
    }

    /// The producer of the channel, if it may send.
    fn sender(&mut self, channel: usize) -> Option<&mut Producer> {
        self.producers.get_mut(channel).filter(|producer| !producer.blocked && !producer.ended)
    }

    /// Sends one buffer, which arrives at once.
    fn send(&mut self, channel: usize, data_type: DataType, backlog: u32, payload: &[u8]) {
        let producer = &mut self.producers[channel];
        let header = BufferHeader {
            channel: producer.channel.id(),
            generation: GENERATION,
            sequence: producer.sequence,
            backlog,
            data_type,
            compressed: false,
            size: u32::try_from(payload.len()).unwrap(),
            crc: 0,
        };
        producer.sequence = header.sequence.next();
        let buffer = match producer.channel.begin(&header).unwrap() {
            Target::Segment(segment) => Buffer::freeze(segment, payload.len()),
            Target::Event(_) => Buffer::from(Bytes::copy_from_slice(payload)),
            Target::Discard => unreachable!("the channel is open"),
        };
        producer.channel.deliver(buffer, data_type, header.sequence).unwrap();
    }

    fn data(&mut self, channel: usize, backlog: u32) {
        let Some(producer) = self.sender(channel).filter(|producer| producer.credit > 0) else {
            return;
        };
        producer.credit -= 1;
        producer.sent += 1;
        producer.unread += 1;
        self.send(channel, DataType::DataBuffer, backlog, &[7; BYTES as usize]);
        self.model.data(channel, backlog as usize, self.size());
    }

    fn event(&mut self, channel: usize, backlog: u32) {
        if self.sender(channel).is_some() {
            self.send(channel, DataType::EventBuffer, backlog, b"event");
            self.model.backlog(channel, backlog as usize, self.size());
        }
    }

    fn backlog(&mut self, channel: usize, backlog: u32) {
        if let Some(producer) = self.sender(channel) {
            producer.channel.on_backlog(NonZeroU32::new(backlog).unwrap());
            self.model.backlog(channel, backlog as usize, self.size());
        }
    }

    fn barrier(&mut self, channel: usize) {
        let Some(producer) = self.sender(channel) else { return };
        producer.blocked = true;
        self.send(channel, DataType::AlignedCheckpointBarrier, 0, b"barrier");
        self.model.barrier(channel, self.size());
    }

    fn resume(&mut self, channel: usize) {
        let Some(producer) = self.producers.get_mut(channel).filter(|it| it.to_resume) else {
            return;
        };
        (producer.blocked, producer.to_resume) = (false, false);
        if self.model.resume(channel) {
            producer.credit = 0;
        }
        self.gate.resume_consumption(channel).unwrap();
    }

    fn end(&mut self, channel: usize) {
        let Some(producer) = self.sender(channel) else { return };
        producer.ended = true;
        let buffers = producer.sent;
        let totals = Totals { rows: 0, bytes: buffers * u64::from(BYTES), buffers };
        self.send(channel, DataType::EndOfPartition, 0, &end_of_partition(&totals));
        self.model.end(channel);
    }

    /// Takes one buffer. Returns false if there is none.
    fn read(&mut self) -> bool {
        let before = self.size();
        let Poll::Ready(Some(received)) = self.gate.poll_next().unwrap() else {
            return false;
        };
        let producer = &mut self.producers[received.channel];
        match received.data_type {
            DataType::DataBuffer => {
                producer.unread -= 1;
                self.taken.push(received.buffer);
            }
            DataType::AlignedCheckpointBarrier => producer.to_resume = true,
            DataType::EndOfPartition => self.model.release(received.channel, before, self.size()),
            _ => {}
        }
        true
    }

    fn recycle(&mut self, at: usize) {
        if self.taken.is_empty() {
            return;
        }
        drop(self.taken.swap_remove(at % self.taken.len()));
        self.model.recycle(self.size());
    }

    fn other(&mut self, takes: bool) {
        let (size, _) = self.other.usage();
        if !takes {
            if self.of_other.pop().is_some() {
                self.model.other_returns(self.size());
            }
            return;
        }
        let taken = self.other.try_request().unwrap();
        assert_eq!(taken.is_some(), self.model.other_takes(size), "a segment of the other pool");
        self.of_other.extend(taken);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Add => self.add(),
            Step::Data { channel, backlog } => self.data(channel, backlog),
            Step::Event { channel, backlog } => self.event(channel, backlog),
            Step::Backlog { channel, backlog } => self.backlog(channel, backlog),
            Step::Barrier { channel } => self.barrier(channel),
            Step::Resume { channel } => self.resume(channel),
            Step::End { channel } => self.end(channel),
            Step::Read => drop(self.read()),
            Step::Recycle(at) => self.recycle(at),
            Step::Other { takes } => self.other(takes),
        }
        self.announce();
        self.check();
    }

    /// Announces all credit, which the producers get at once.
    fn announce(&mut self) {
        for channel in std::mem::take(&mut *lock(&self.mailbox.0)) {
            let credit = channel.take_credit().map_or(0, NonZeroU32::get) as usize;
            self.producers[channel.id().0 as usize].credit += credit;
        }
    }

    fn check(&self) {
        let mut held = self.taken.len();
        for (index, producer) in self.producers.iter().enumerate() {
            let stats = producer.channel.stats();
            assert_eq!(stats.free, self.model.free(index), "free segments of channel {index}");
            assert_eq!(stats.credit.unwrap() as usize, stats.free, "credit of channel {index}");
            assert!(
                producer.credit <= stats.free || producer.blocked || producer.ended,
                "credit without a segment"
            );
            held += stats.free + producer.unread;
        }
        let (size, counted) = self.gate.pool().usage();
        assert_eq!(counted, held, "each segment is counted once");
        let total = self.global.stats().held;
        assert_eq!(total, held + self.of_other.len(), "each segment is counted once");
        let missing = self.model.missing();
        assert!(missing == 0 || held >= size || total == TOTAL, "{missing} segments are withheld");
    }

    /// Returns all segments, those that are announced as credit by filling them. Then each open
    /// channel has what it was promised, and no segment is lost.
    fn finish(mut self) {
        while !self.of_other.is_empty() {
            self.apply(Step::Other { takes: false });
        }
        loop {
            let mut moved = false;
            while self.read() {
                self.announce();
                self.check();
            }
            while !self.taken.is_empty() {
                self.apply(Step::Recycle(0));
                moved = true;
            }
            for channel in 0..self.producers.len() {
                self.apply(Step::Resume { channel });
                // Only what is beyond the promise: a channel that does nothing keeps the promise.
                while self.model.surplus(channel) > 0 && self.producers[channel].credit > 0 {
                    let before = self.producers[channel].unread;
                    self.apply(Step::Data { channel, backlog: 0 });
                    if self.producers[channel].unread == before {
                        break;
                    }
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for (index, producer) in self.producers.iter().enumerate().filter(|(_, it)| !it.ended) {
            let exclusive = producer.channel.stats().exclusive;
            assert_eq!(exclusive.used, 0, "channel {index} lacks what it was promised");
        }
        self.gate.close();
        // A channel holds the mailbox, which may hold the channel.
        lock(&self.mailbox.0).clear();
        assert_eq!(self.global.stats().held, 0, "all segments are back");
    }
}

proptest! {
    #[test]
    fn channels_get_what_they_are_owed_in_turn_and_before_any_backlog(
        exclusive in 1_usize..4,
        floating in 1_usize..6,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new(exclusive, floating);
        for step in steps {
            world.apply(step);
        }
        world.finish();
    }
}
