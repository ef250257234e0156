//! A configuration to search, and the steps that each part may take.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use headgate_protocol::DataType::EndOfPartition as END;
use headgate_protocol::{
    BufferHeader, BufferKind, DataType, Frame, Generation, Next, PartitionId, PartitionRequest,
    PrioritizedDeque, QueuedFor, ReceiveChannel, ReceiveLedger, SegmentQueue, SendQueue, Sequence,
    Side, Totals,
};

use super::world::{CHANNELS, Packet, Places, Seen, Stage, World, id, transfer};

/// A configuration to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    /// The buffers that each producer writes, in this order.
    pub(super) scripts: [&'a [DataType]; 2],
    /// Exclusive segments of a channel.
    pub(super) exclusive: u32,
    /// Floating segments that both channels share.
    pub(super) pool: u32,
    /// Segments of either kind that are not free at the start and come at any time.
    pub(super) absent: u32,
    /// True if other parts may act between the steps in which the pool hands out a segment: its call
    /// to the listener, the taking, the offer. False if these are one step.
    pub(super) threads: bool,
    /// True if the channels join at any time, false if both are open at the start.
    pub(super) joins: bool,
    /// True if the consumer reads.
    pub(super) reads: bool,
    /// True if the consumer may cancel channel 0 at any time.
    pub(super) cancels: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Admit(usize),
    Announce(usize),
    CallBack,
    Cancel,
    Free,
    Offer(usize),
    Open(usize),
    Read(usize),
    ReceiveAtConsumer,
    Resume(usize),
    ReceiveAtProducer,
    Send,
    Write(usize),
}

impl Setup<'_> {
    pub(super) fn start(&self) -> World {
        let mut world = World {
            written: [0; 2],
            subpartitions: [PrioritizedDeque::new(), PrioritizedDeque::new()],
            sent: [Places::default(); 2],
            queue: SendQueue::new(),
            to_consumer: VecDeque::new(),
            to_producer: VecDeque::new(),
            channels: CHANNELS.map(|channel| {
                ReceiveChannel::new(id(channel), Generation(1), ReceiveLedger::new(0))
            }),
            stage: [Stage::New; 2],
            opened_without_credit: [false; 2],
            unread: [PrioritizedDeque::new(), PrioritizedDeque::new()],
            arrived: [Places::default(); 2],
            read: [Places::default(); 2],
            segments: SegmentQueue::new(),
            queued_for: [QueuedFor::default(); 2],
            pool: self.all_segments() - self.absent,
            absent: self.absent,
            in_hand: [0; 2],
            threads: self.threads,
            has_listener: false,
            calls_back: false,
            dismissed: 0,
            gone: 0,
            cancelled: false,
            blocked: [false; 2],
            to_resume: [false; 2],
            revoked: [false; 2],
            withholds: [false; 2],
        };
        if !self.joins {
            let seen = &mut Seen::default();
            for channel in CHANNELS {
                self.admit(&mut world, channel);
                self.open(&mut world, channel, seen);
            }
        }
        world
    }

    fn all_segments(&self) -> u32 {
        self.pool + 2 * self.exclusive
    }

    fn admit(&self, world: &mut World, channel: usize) {
        world.stage[channel] = Stage::Admitting;
        world.segments.begin_admission();
    }

    /// Takes the exclusive segments that are free and requests the partition with as much credit.
    fn open(&self, world: &mut World, channel: usize, seen: &mut Seen) {
        let free = self.exclusive.min(world.pool);
        let initial_credit = if world.segments.misses_exclusive() { 0 } else { free };
        world.pool -= initial_credit;
        world.opened_without_credit[channel] = initial_credit == 0;
        world.stage[channel] = Stage::Open;
        world.segments.end_admission();
        world.refill(seen);
        let ledger = ReceiveLedger::opened(self.exclusive, initial_credit);
        world.channels[channel] = ReceiveChannel::new(id(channel), Generation(1), ledger);
        let request = Frame::PartitionRequest(PartitionRequest {
            partition: PartitionId([0; 16]),
            subpartition: channel as u32,
            channel: id(channel),
            generation: Generation(1),
            initial_credit,
            schema_hash: [0; 32],
        });
        world.to_producer.push_back(transfer(&request, &[], Side::Producer));
        world.ask(channel, seen);
    }

    fn totals(&self, channel: usize) -> Totals {
        let mut totals = Totals { rows: 7, ..Totals::default() };
        let data = self.scripts[channel].iter().filter(|data_type| data_type.is_buffer());
        data.for_each(|_| totals.add_buffer(2));
        totals
    }

    pub(super) fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut add = |enabled: bool, action| actions.extend(enabled.then_some(action));
        for channel in CHANNELS {
            let all = self.scripts[channel].len();
            add(world.written[channel] < all, Action::Write(channel));
            add(self.reads && !world.unread[channel].is_empty(), Action::Read(channel));
            let ledger = world.channels[channel].ledger();
            let announces = ledger.unannounced() > 0 && !world.withholds[channel];
            add(announces, Action::Announce(channel));
            let open = !self.closed(world, channel);
            add(open && world.to_resume[channel], Action::Resume(channel));
            add(world.in_hand[channel] > 0, Action::Offer(channel));
            add(world.stage[channel] == Stage::New, Action::Admit(channel));
            add(world.stage[channel] == Stage::Admitting, Action::Open(channel));
        }
        add(world.absent > 0, Action::Free);
        add(world.calls_back, Action::CallBack);
        add(world.queue.has_available(), Action::Send);
        add(!world.to_consumer.is_empty(), Action::ReceiveAtConsumer);
        add(!world.to_producer.is_empty(), Action::ReceiveAtProducer);
        let open = world.stage[0] == Stage::Open && !self.closed(world, 0);
        add(self.cancels && open, Action::Cancel);
        actions
    }

    pub(super) fn apply(&self, world: &mut World, action: Action, seen: &mut Seen) {
        match action {
            Action::Admit(channel) => self.admit(world, channel),
            Action::Announce(channel) => {
                let credit = world.channels[channel].ledger_mut().take_unannounced().unwrap();
                let grant = Frame::AddCredit { credit, channel: id(channel) };
                world.to_producer.push_back(transfer(&grant, &[], Side::Producer));
            }
            Action::CallBack => world.call_back(seen),
            Action::Cancel => {
                world.cancelled = true;
                let unread = std::mem::take(&mut world.unread[0]);
                let segments = unread.iter().filter(|(in_segment, _)| *in_segment).count();
                world.free(segments as u32, seen);
                world.close(0, self.exclusive, seen);
                let cancel = Frame::CancelPartitionRequest { channel: id(0) };
                world.to_producer.push_back(transfer(&cancel, &[], Side::Producer));
            }
            Action::Free => {
                world.absent -= 1;
                world.free(1, seen);
            }
            Action::Offer(channel) => world.offer(channel, seen),
            Action::Open(channel) => self.open(world, channel, seen),
            Action::Read(channel) => self.read(world, channel, seen),
            Action::ReceiveAtConsumer => self.receive(world, seen),
            Action::Resume(channel) => {
                world.to_resume[channel] = false;
                seen.resumes += 1;
                let resume = Frame::ResumeConsumption { channel: id(channel) };
                world.to_producer.push_back(transfer(&resume, &[], Side::Producer));
                world.channels[channel].ledger_mut().on_resumed();
                world.withholds[channel] = false;
            }
            Action::ReceiveAtProducer => self.serve(world, seen),
            Action::Send => self.send(world, seen),
            Action::Write(channel) => {
                let place = world.written[channel];
                world.written[channel] += 1;
                if self.scripts[channel][place].has_priority() {
                    world.subpartitions[channel].add_priority(place);
                    seen.priority_behind_barriers += usize::from(world.blocked[channel]);
                } else {
                    world.subpartitions[channel].add(place);
                }
                world.queue.notify(id(channel), self.next(world, channel));
                self.announce_backlog(world, channel, seen);
            }
        }
    }

    /// Announces the backlog if the protocol asks for it, as the producer does after each change.
    fn announce_backlog(&self, world: &mut World, channel: usize, seen: &mut Seen) {
        if !world.queue.announces_backlog(id(channel), self.next(world, channel)) {
            return;
        }
        let backlog = NonZeroU32::new(self.backlog(world, channel)).unwrap();
        let announcement = Frame::BacklogAnnouncement { backlog, channel: id(channel) };
        world.to_consumer.push_back(transfer(&announcement, &[], Side::Consumer));
        seen.announcements += 1;
    }

    /// Counts the data buffers that wait in a subpartition before its first barrier.
    fn backlog(&self, world: &World, channel: usize) -> u32 {
        let waiting =
            world.subpartitions[channel].iter().map(|place| self.scripts[channel][*place]);
        let reachable = waiting.take_while(|data_type| !data_type.blocks_upstream());
        reachable.filter(|data_type| data_type.is_buffer()).count() as u32
    }

    fn next(&self, world: &World, channel: usize) -> Next {
        if world.blocked[channel] {
            return Next::None;
        }
        let first = world.subpartitions[channel].peek();
        Next::from(first.map(|place| self.scripts[channel][*place]))
    }

    fn serve(&self, world: &mut World, seen: &mut Seen) {
        match world.to_producer.pop_front().unwrap().frame {
            Frame::PartitionRequest(request) => {
                let channel = request.subpartition as usize;
                world.queue.open(request.channel, request.initial_credit, ()).unwrap();
                world.queue.notify(request.channel, self.next(world, channel));
                self.announce_backlog(world, channel, seen);
            }
            Frame::AddCredit { credit, channel } => {
                let next = self.next(world, channel.0 as usize);
                world.queue.grant(channel, credit, next).unwrap();
            }
            Frame::ResumeConsumption { channel } => {
                let at = channel.0 as usize;
                if world.queue.view(channel).is_none() {
                    return;
                }
                assert!(std::mem::take(&mut world.blocked[at]), "only what is blocked is resumed");
                world.revoked[at] = false;
                let next = self.next(world, at);
                world.queue.resume(channel, next).unwrap();
                self.announce_backlog(world, at, seen);
            }
            Frame::CancelPartitionRequest { channel } => {
                world.queue.cancel(channel).expect("no channel is cancelled twice");
            }
            frame => panic!("{frame:?} is not sent here"),
        }
    }

    fn send(&self, world: &mut World, seen: &mut Seen) {
        let channel = world.queue.poll().unwrap();
        let at = channel.0 as usize;
        let credit = world.queue.credit(channel).unwrap();
        let due = self.due(at, Places::first(world.written[at]).without(world.sent[at]));
        let place = world.subpartitions[at].poll().unwrap();
        assert_eq!(Some(place), due, "priority first, all else in order");
        let data_type = self.scripts[at][place];
        let payload = match data_type {
            END => [[0; 4].as_slice(), &self.totals(at).encode()].concat(),
            _ => payload(at, place),
        };
        let sequence = Sequence(world.sent[at].len() as u32);
        seen.overtakes_at_producer += usize::from(place > world.sent[at].len());
        world.sent[at].add(place);
        world.blocked[at] = data_type.blocks_upstream();
        let backlog = if world.blocked[at] { 0 } else { self.backlog(world, at) };
        let header = BufferHeader {
            channel,
            generation: Generation(1),
            sequence,
            backlog,
            data_type,
            compressed: false,
            size: payload.len() as u32,
            crc: 0,
        };
        let frame = Frame::Buffer(header);
        world.to_consumer.push_back(transfer(&frame, &payload, Side::Consumer));
        let next = self.next(world, at);
        world.queue.sent(channel, data_type.is_event(), next).unwrap();
        seen.events_without_credit += usize::from(data_type.is_event() && credit == 0);
        let stopped = next == Next::Data && world.queue.credit(channel) == Some(0);
        seen.stops_without_credit += usize::from(stopped);
    }

    fn receive(&self, world: &mut World, seen: &mut Seen) {
        let Packet { frame, payload } = world.to_consumer.pop_front().unwrap();
        let header = match frame {
            Frame::Buffer(header) => header,
            Frame::BacklogAnnouncement { backlog, channel } => {
                let channel = channel.0 as usize;
                if !self.closed(world, channel) {
                    world.channels[channel].ledger_mut().on_backlog(backlog.get());
                    world.ask(channel, seen);
                }
                return;
            }
            frame => panic!("{frame:?} is not sent here"),
        };
        let channel = header.channel.0 as usize;
        if world.cancelled && channel == 0 {
            seen.discarded += 1;
            return;
        }
        let last = self.scripts[channel].len() - 1;
        let place = if header.data_type == END { last } else { usize::from(payload[1]) };
        world.arrived[channel].add(place);
        world.channels[channel].on_buffer(&header).unwrap();
        let unread = &mut world.unread[channel];
        let buffer = (header.data_type.is_buffer(), payload);
        if header.data_type.has_priority() {
            seen.overtakes_at_consumer += usize::from(unread.len() > unread.priority_len());
            unread.add_priority(buffer);
        } else {
            unread.add(buffer);
        }
        if header.data_type.blocks_upstream() {
            world.revoked[channel] = world.opened_without_credit[channel];
            world.withholds[channel] = world.revoked[channel];
            let given_up = world.channels[channel].ledger_mut().on_blocked();
            world.free(given_up, seen);
        }
        world.ask(channel, seen);
    }

    fn read(&self, world: &mut World, channel: usize, seen: &mut Seen) {
        let due = self.due(channel, world.arrived[channel].without(world.read[channel]));
        let at = due.expect("a buffer that arrived and was not read");
        let (in_segment, bytes) = world.unread[channel].poll().unwrap();
        world.read[channel].add(at);
        if self.scripts[channel][at] == END {
            let totals = Totals::decode(&bytes[4..]).unwrap();
            world.channels[channel].on_end(totals).unwrap();
            world.close(channel, self.exclusive, seen);
        } else {
            assert_eq!(bytes, payload(channel, at), "priority first, all else in order");
        }
        world.to_resume[channel] |= self.scripts[channel][at].blocks_upstream();
        assert_eq!(in_segment, self.scripts[channel][at].is_buffer());
        world.free(u32::from(in_segment), seen);
    }

    fn closed(&self, world: &World, channel: usize) -> bool {
        let cancelled = world.cancelled && channel == 0;
        cancelled || world.read[channel].len() == self.scripts[channel].len()
    }

    /// Returns the first of these places: a priority event if there is one.
    fn due(&self, channel: usize, places: Places) -> Option<usize> {
        let priority = |place: &usize| self.scripts[channel][*place].has_priority();
        places.iter().find(priority).or_else(|| places.iter().next())
    }

    /// Checks what holds at all times.
    pub(super) fn check(&self, world: &World) {
        for channel in CHANNELS {
            // A closed channel has given its credit back; the producer may not know yet.
            if !self.closed(world, channel) && !world.revoked[channel] {
                let announced = world.channels[channel].ledger().announced();
                assert_eq!(world.credit_under_way(channel), announced, "credit is conserved");
            }
        }
        let free: u32 = world.channels.iter().map(|channel| channel.ledger().available()).sum();
        let unread = world.unread.iter().flat_map(PrioritizedDeque::iter);
        let unread = unread.filter(|(in_segment, _)| *in_segment).count() as u32;
        let in_hand: u32 = world.in_hand.iter().sum();
        let all = world.pool + world.absent + world.gone + free + unread + in_hand;
        assert_eq!(all, self.all_segments(), "no segment is lost");
        for channel in CHANNELS {
            let wants = |channel: &usize| world.channels[*channel].ledger().wants();
            if wants(&channel) == Some(BufferKind::Exclusive) && world.in_hand[channel] == 0 {
                // The next channel may have ended meanwhile, and refuses then.
                let next = world.segments.next().expect("the channel is queued");
                assert_ne!(wants(next), Some(BufferKind::Floating), "promised segments come first");
            }
        }
        let mut queue = world.queue.clone();
        let turns: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
        for channel in CHANNELS {
            let has_turn = turns.contains(&id(channel));
            assert_eq!(
                has_turn,
                self.can_send(world, channel),
                "a channel that can send has a turn"
            );
        }
    }

    fn can_send(&self, world: &World, channel: usize) -> bool {
        match (world.queue.credit(id(channel)), self.next(world, channel)) {
            (None, _) | (_, Next::None) => false,
            (Some(credit), Next::Data) => credit > 0,
            (Some(_), Next::Event) => true,
        }
    }

    /// Checks a state in which no part can act any more: everything must have arrived.
    pub(super) fn check_end(&self, world: &World) {
        for channel in CHANNELS {
            if world.cancelled && channel == 0 {
                assert_eq!(world.queue.view(id(0)), None);
                continue;
            }
            let got = world.read[channel].len() + world.unread[channel].len();
            assert_eq!(got, self.scripts[channel].len(), "deadlock in {world:?}");
            assert!(world.channels[channel].ended());
            assert_eq!(world.channels[channel].declared().is_some(), self.reads);
        }
        if self.reads {
            let all = self.all_segments();
            assert_eq!(world.pool + world.gone, all, "all segments are free at the end");
        }
    }
}

fn payload(channel: usize, at: usize) -> Vec<u8> {
    vec![channel as u8, at as u8]
}
