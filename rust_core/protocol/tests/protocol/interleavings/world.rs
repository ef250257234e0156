//! Both ends of a connection as their drivers would hold them.

use std::collections::VecDeque;

use headgate_protocol::{
    BufferKind, ChannelId, Frame, FrameDecoder, FrameMask, Limits, ReceiveChannel, Recycled,
    SendQueue, Side,
};

const LIMITS: Limits = Limits::for_segment(64);
const MASK: FrameMask = FrameMask::new([0xA7; 4]);
pub(super) const CHANNELS: [usize; 2] = [0, 1];

/// Both ends of one connection and the two pipes between them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    pub(super) written: [usize; 2],
    pub(super) queue: SendQueue<usize>,
    pub(super) to_consumer: VecDeque<Packet>,
    pub(super) to_producer: VecDeque<Packet>,
    pub(super) channels: [ReceiveChannel; 2],
    pub(super) unread: [VecDeque<(Option<BufferKind>, Vec<u8>)>; 2],
    pub(super) read: [usize; 2],
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
