//! Both ends of a connection as their drivers would hold them.

use std::collections::VecDeque;
use std::ops::AddAssign;

use headgate_protocol::{
    BufferKind, ChannelId, Frame, FrameDecoder, FrameMask, Limits, PrioritizedDeque,
    ReceiveChannel, Recycled, SendQueue, Side,
};

const LIMITS: Limits = Limits::for_segment(64);
const MASK: FrameMask = FrameMask::new([0xA7; 4]);
pub(super) const CHANNELS: [usize; 2] = [0, 1];

/// Both ends of one connection and the two pipes between them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    pub(super) written: [usize; 2],
    /// What each subpartition holds, by its place in the script.
    pub(super) subpartitions: [PrioritizedDeque<usize>; 2],
    pub(super) sent: [Places; 2],
    pub(super) queue: SendQueue<()>,
    pub(super) to_consumer: VecDeque<Packet>,
    pub(super) to_producer: VecDeque<Packet>,
    pub(super) channels: [ReceiveChannel; 2],
    pub(super) unread: [PrioritizedDeque<Unread>; 2],
    pub(super) arrived: [Places; 2],
    pub(super) read: [Places; 2],
    pub(super) waiters: VecDeque<usize>,
    pub(super) pool: u32,
    /// Exclusive buffers that are owed to each channel.
    pub(super) unpaid: [u32; 2],
    pub(super) cancelled: bool,
    /// The producer's subpartition gave a barrier and waits for the consumer.
    pub(super) blocked: [bool; 2],
    /// The consumer read a barrier and has not resumed the channel.
    pub(super) to_resume: [bool; 2],
    /// The consumer took its credit back at a barrier; the producer does not know yet.
    pub(super) revoked: [bool; 2],
    /// It grants none before it has resumed the channel.
    pub(super) withholds: [bool; 2],
}

/// Places in a script, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Places(u8);

impl Places {
    pub(super) const fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    pub(super) const fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    pub(super) const fn has(self, place: usize) -> bool {
        self.0 & 1 << place != 0
    }

    pub(super) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |place| self.has(*place))
    }
}

/// What arrived and was not read: the memory it is in, and its payload.
pub(super) type Unread = (Option<BufferKind>, Vec<u8>);

/// What travels: one frame and the payload behind it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    pub(super) payload: Vec<u8>,
}

/// How often the search saw what it is about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) states: usize,
    pub(super) ends: usize,
    pub(super) events_without_credit: usize,
    pub(super) stops_without_credit: usize,
    pub(super) waits: usize,
    pub(super) swaps: usize,
    pub(super) discarded: usize,
    pub(super) resumes: usize,
    pub(super) announcements: usize,
    /// A priority event left ahead of what had been written before it.
    pub(super) overtakes_at_producer: usize,
    /// One was read ahead of what had arrived before it.
    pub(super) overtakes_at_consumer: usize,
    /// One was written behind a barrier that blocked its channel.
    pub(super) priority_behind_barriers: usize,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.states += other.states;
        self.ends += other.ends;
        self.events_without_credit += other.events_without_credit;
        self.stops_without_credit += other.stops_without_credit;
        self.waits += other.waits;
        self.swaps += other.swaps;
        self.discarded += other.discarded;
        self.resumes += other.resumes;
        self.announcements += other.announcements;
        self.overtakes_at_producer += other.overtakes_at_producer;
        self.overtakes_at_consumer += other.overtakes_at_consumer;
        self.priority_behind_barriers += other.priority_behind_barriers;
    }
}

pub(super) fn id(channel: usize) -> ChannelId {
    ChannelId(channel as u32)
}

impl World {
    pub(super) fn take_floating(&mut self, channel: usize, wanted: u32, seen: &mut Seen) {
        let taken = wanted.min(self.pool);
        self.pool -= taken;
        let ledger = self.channels[channel].ledger_mut();
        ledger.on_floating(taken);
        if ledger.on_pool_empty() {
            self.waiters.push_back(channel);
            seen.waits += 1;
        }
    }

    /// A barrier arrived.
    pub(super) fn give_up(&mut self, channel: usize) {
        self.pool += self.channels[channel].ledger_mut().on_blocked();
        self.offer(&mut Seen::default());
    }

    pub(super) fn recycle(&mut self, channel: usize, kind: BufferKind, seen: &mut Seen) {
        match self.channels[channel].ledger_mut().on_recycled(kind).unwrap() {
            Recycled::Credited => return,
            Recycled::ReturnFloating => seen.swaps += 1,
            Recycled::ToPool => {}
        }
        self.pool += 1;
        self.offer(seen);
    }

    /// Offers the buffers of the pool to who waits for them, once each.
    fn offer(&mut self, seen: &mut Seen) {
        for _ in 0..self.waiters.len() {
            if self.pool > 0 {
                let channel = self.waiters.pop_front().unwrap();
                let wanted = self.channels[channel].ledger_mut().on_offered().unwrap();
                self.take_floating(channel, wanted, seen);
            }
        }
    }

    pub(super) fn close(&mut self, channel: usize) {
        self.pool += self.channels[channel].ledger_mut().close();
        self.waiters.retain(|waiter| *waiter != channel);
        self.offer(&mut Seen::default());
    }

    /// Credit of a channel wherever it is: at the producer, in a grant, in data that travels.
    pub(super) fn credit_under_way(&self, channel: usize) -> u32 {
        let of_channel = |packet: &Packet| match &packet.frame {
            Frame::PartitionRequest(open) if open.channel == id(channel) => open.initial_credit,
            Frame::AddCredit { credit, channel: of } if *of == id(channel) => credit.get(),
            Frame::Buffer(header) if header.channel == id(channel) => {
                u32::from(header.data_type.is_buffer())
            }
            _ => 0,
        };
        let pipes = self.to_consumer.iter().chain(&self.to_producer);
        let travelling: u32 = pipes.map(of_channel).sum();
        self.queue.credit(id(channel)).unwrap_or(0) + travelling
    }
}

/// What a frame and its payload become on the way through a decoder.
pub(super) fn transfer(frame: &Frame, payload: &[u8], side: Side) -> Packet {
    let mut bytes = Vec::new();
    frame.encode(MASK, &mut bytes);
    bytes.extend_from_slice(payload);
    let mut input = bytes.as_slice();
    let frame = FrameDecoder::new(LIMITS, side, MASK).decode(&mut input).unwrap().unwrap();
    Packet { frame, payload: input.to_vec() }
}
