//! Both ends of a connection as their drivers would hold them.

use std::collections::VecDeque;
use std::ops::AddAssign;

use headgate_protocol::{
    BufferKind, ChannelId, Frame, FrameDecoder, FrameMask, Limits, PrioritizedDeque, QueuedFor,
    ReceiveChannel, SegmentQueue, SendQueue, Side,
};

use crate::exhaust::Size;

const LIMITS: Limits = Limits::for_segment(64);
const MASK: FrameMask = FrameMask::new([0xA7; 4]);
pub(super) const CHANNELS: [usize; 2] = [0, 1];

/// Both ends of one connection, the two pipes between them, and the pool of the consumer's gate.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct World {
    /// Buffers of each script that the producer wrote.
    pub(super) written: [usize; 2],
    /// The content of each subpartition, as places in the script.
    pub(super) subpartitions: [PrioritizedDeque<usize>; 2],
    pub(super) sent: [Places; 2],
    pub(super) queue: SendQueue<()>,
    pub(super) to_consumer: VecDeque<Packet>,
    pub(super) to_producer: VecDeque<Packet>,
    pub(super) channels: [ReceiveChannel; 2],
    pub(super) stage: [Stage; 2],
    /// True if the channel's request announced no credit.
    pub(super) opened_without_credit: [bool; 2],
    pub(super) unread: [PrioritizedDeque<Unread>; 2],
    pub(super) arrived: [Places; 2],
    pub(super) read: [Places; 2],
    /// The channels that wait for segments, as the gate keeps them.
    pub(super) segments: SegmentQueue<usize>,
    pub(super) queued_for: [QueuedFor; 2],
    /// Free segments.
    pub(super) pool: u32,
    /// Segments of the gate that others still hold: each may come at any time.
    pub(super) absent: u32,
    /// True if the steps of the pool are apart, as [`Setup::threads`](super::Setup) says.
    pub(super) threads: bool,
    /// Segments taken for each channel and not offered to it yet.
    pub(super) in_hand: [u32; 2],
    /// True while the pool has a listener, which it calls once.
    pub(super) has_listener: bool,
    /// True while the pool's call to its listener is on its way.
    pub(super) calls_back: bool,
    /// Segments of closed channels that the gate must give up as they become free.
    pub(super) dismissed: u32,
    /// Segments that the gate gave up.
    pub(super) gone: u32,
    pub(super) cancelled: bool,
    /// True from a barrier that the subpartition gave until the producer handles the resume.
    pub(super) blocked: [bool; 2],
    /// True from a barrier that the consumer read until it resumes the channel.
    pub(super) to_resume: [bool; 2],
    /// True while the producer still counts credit that the consumer revoked at a barrier.
    pub(super) revoked: [bool; 2],
    /// True while the consumer announces no credit, from a barrier to the resume.
    pub(super) withholds: [bool; 2],
}

/// The steps in which a channel joins the gate.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stage {
    New,
    /// Its admission began: no floating segment may be handed out.
    Admitting,
    /// Its partition request is sent.
    Open,
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

/// A buffer that arrived and was not read: true if it fills a segment, and its payload.
pub(super) type Unread = (bool, Vec<u8>);

/// One frame on its way and the payload behind it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    pub(super) payload: Vec<u8>,
}

/// How often the search saw the situations it is about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) size: Size,
    pub(super) events_without_credit: usize,
    pub(super) stops_without_credit: usize,
    /// The pool was empty when a channel wanted a segment.
    pub(super) waits: usize,
    /// A segment was offered to a channel that no longer wanted it.
    pub(super) refusals: usize,
    /// A channel waited for a floating segment that was kept for an admission.
    pub(super) deferrals: usize,
    pub(super) discarded: usize,
    pub(super) resumes: usize,
    pub(super) announcements: usize,
    /// A priority event left ahead of buffers that were written before it.
    pub(super) overtakes_at_producer: usize,
    /// A priority event was read ahead of buffers that had arrived before it.
    pub(super) overtakes_at_consumer: usize,
    /// A priority event was written behind a barrier that blocked its channel.
    pub(super) priority_behind_barriers: usize,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.size.states += other.size.states;
        self.size.ends += other.size.ends;
        self.events_without_credit += other.events_without_credit;
        self.stops_without_credit += other.stops_without_credit;
        self.waits += other.waits;
        self.refusals += other.refusals;
        self.deferrals += other.deferrals;
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
    /// Asks for segments if the channel wants one, as a gate's channel does after each frame.
    pub(super) fn ask(&mut self, channel: usize, seen: &mut Seen) {
        let wants = self.channels[channel].ledger().wants();
        if wants.is_some() {
            self.queue_for_segments(channel, wants);
            self.refill(seen);
        }
    }

    fn queue_for_segments(&mut self, channel: usize, wants: Option<BufferKind>) {
        self.segments.update(&channel, &mut self.queued_for[channel], wants);
    }

    /// Takes free segments for the channels that wait, as the gate's pool does.
    pub(super) fn refill(&mut self, seen: &mut Seen) {
        while let Some(channel) = self.segments.next().copied() {
            if self.pool == 0 {
                if !self.segments.is_listening() {
                    self.segments.on_empty();
                    self.has_listener = true;
                    seen.waits += 1;
                }
                return;
            }
            if self.stage.contains(&Stage::Admitting) {
                let wants = self.channels[channel].ledger().wants();
                assert_ne!(wants, Some(BufferKind::Floating), "kept for the new channel");
            }
            self.pool -= 1;
            self.queue_for_segments(channel, None);
            self.in_hand[channel] += 1;
            if !self.threads {
                self.hand_over(channel, seen);
            }
        }
        let waiting = |channel: &usize| {
            self.channels[*channel].ledger().wants() == Some(BufferKind::Floating)
        };
        seen.deferrals += usize::from(self.pool > 0 && CHANNELS.iter().any(waiting));
    }

    /// Offers a segment that was taken for the channel, and goes on with the next ones.
    pub(super) fn offer(&mut self, channel: usize, seen: &mut Seen) {
        self.hand_over(channel, seen);
        self.refill(seen);
    }

    fn hand_over(&mut self, channel: usize, seen: &mut Seen) {
        self.in_hand[channel] -= 1;
        if !self.channels[channel].ledger_mut().on_offered() {
            seen.refusals += 1;
            self.free(1, seen);
        }
        let wants = self.channels[channel].ledger().wants();
        self.queue_for_segments(channel, wants);
    }

    /// The pool calls its listener.
    pub(super) fn call_back(&mut self, seen: &mut Seen) {
        self.calls_back = false;
        self.segments.on_available();
        self.refill(seen);
    }

    /// Segments return to the pool.
    pub(super) fn free(&mut self, count: u32, seen: &mut Seen) {
        let gone = count.min(self.dismissed);
        self.dismissed -= gone;
        self.gone += gone;
        self.pool += count - gone;
        if self.pool > 0 && std::mem::take(&mut self.has_listener) {
            self.calls_back = true;
            if !self.threads {
                self.call_back(seen);
            }
        }
    }

    /// Closes a channel: its free segments return, and the gate holds `exclusive` fewer.
    pub(super) fn close(&mut self, channel: usize, exclusive: u32, seen: &mut Seen) {
        let free = self.channels[channel].ledger_mut().close();
        self.free(free, seen);
        self.queue_for_segments(channel, None);
        self.dismissed += exclusive;
        for segments in [&mut self.absent, &mut self.pool] {
            let gone = self.dismissed.min(*segments);
            *segments -= gone;
            self.dismissed -= gone;
            self.gone += gone;
        }
    }

    /// Counts the credit of a channel at the producer, in grants and in data on its way.
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

/// Encodes a frame and decodes it again.
pub(super) fn transfer(frame: &Frame, payload: &[u8], side: Side) -> Packet {
    let mut bytes = Vec::new();
    frame.encode(MASK, &mut bytes);
    bytes.extend_from_slice(payload);
    let mut input = bytes.as_slice();
    let frame = FrameDecoder::new(LIMITS, side, MASK).decode(&mut input).unwrap().unwrap();
    Packet { frame, payload: input.to_vec() }
}
