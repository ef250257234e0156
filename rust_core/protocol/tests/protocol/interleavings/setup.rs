//! What is searched, and what each part may do.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use headgate_protocol::DataType::EndOfPartition as END;
use headgate_protocol::{
    BufferHeader, BufferKind, DataType, Frame, Generation, Next, PartitionId, PartitionRequest,
    PrioritizedDeque, ReceiveChannel, ReceiveLedger, SendQueue, Sequence, Side, Totals,
};

use super::world::{CHANNELS, Packet, Places, Seen, World, id, transfer};

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    /// What each producer writes, in this order.
    pub(super) scripts: [&'a [DataType]; 2],
    /// Exclusive buffers of a channel.
    pub(super) exclusive: u32,
    /// How many of them come later, at any time; the others are its initial credit.
    pub(super) owed: u32,
    /// Floating buffers both channels share.
    pub(super) pool: u32,
    /// Whether the consumer reads at all.
    pub(super) reads: bool,
    /// Whether the consumer may cancel channel 0, at any time.
    pub(super) cancels: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Announce(usize),
    Cancel,
    Pay(usize),
    Read(usize),
    ReceiveAtConsumer,
    Resume(usize),
    ReceiveAtProducer,
    Send,
    Write(usize),
}

impl Setup<'_> {
    pub(super) fn start(&self) -> World {
        let request = |channel| {
            let request = Frame::PartitionRequest(PartitionRequest {
                partition: PartitionId([0; 16]),
                subpartition: channel as u32,
                channel: id(channel),
                generation: Generation(1),
                initial_credit: self.exclusive - self.owed,
                schema_hash: [0; 32],
            });
            transfer(&request, &[], Side::Producer)
        };
        World {
            written: [0; 2],
            subpartitions: [PrioritizedDeque::new(), PrioritizedDeque::new()],
            sent: [Places::default(); 2],
            queue: SendQueue::new(),
            to_consumer: VecDeque::new(),
            to_producer: CHANNELS.map(request).into(),
            channels: CHANNELS.map(|channel| {
                let ledger = ReceiveLedger::opened(self.exclusive, self.exclusive - self.owed);
                ReceiveChannel::new(id(channel), Generation(1), ledger)
            }),
            unread: [PrioritizedDeque::new(), PrioritizedDeque::new()],
            arrived: [Places::default(); 2],
            read: [Places::default(); 2],
            waiters: VecDeque::new(),
            pool: self.pool,
            unpaid: [self.owed; 2],
            cancelled: false,
            blocked: [false; 2],
            to_resume: [false; 2],
            revoked: [false; 2],
            withholds: [false; 2],
        }
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
            add(open && world.unpaid[channel] > 0, Action::Pay(channel));
        }
        add(world.queue.has_available(), Action::Send);
        add(!world.to_consumer.is_empty(), Action::ReceiveAtConsumer);
        add(!world.to_producer.is_empty(), Action::ReceiveAtProducer);
        add(self.cancels && !self.closed(world, 0), Action::Cancel);
        actions
    }

    pub(super) fn apply(&self, world: &mut World, action: Action, seen: &mut Seen) {
        match action {
            Action::Announce(channel) => {
                let credit = world.channels[channel].ledger_mut().take_unannounced().unwrap();
                let grant = Frame::AddCredit { credit, channel: id(channel) };
                world.to_producer.push_back(transfer(&grant, &[], Side::Producer));
            }
            Action::Cancel => {
                world.cancelled = true;
                let mut unread = std::mem::take(&mut world.unread[0]);
                world.close(0);
                while let Some((kind, _)) = unread.poll() {
                    if let Some(kind) = kind {
                        world.recycle(0, kind, seen);
                    }
                }
                let cancel = Frame::CancelPartitionRequest { channel: id(0) };
                world.to_producer.push_back(transfer(&cancel, &[], Side::Producer));
            }
            Action::Pay(channel) => {
                world.unpaid[channel] -= 1;
                world.recycle(channel, BufferKind::Exclusive, seen);
            }
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

    /// As the producer's end does whenever a channel has something new.
    fn announce_backlog(&self, world: &mut World, channel: usize, seen: &mut Seen) {
        if !world.queue.announces_backlog(id(channel), self.next(world, channel)) {
            return;
        }
        let backlog = NonZeroU32::new(self.backlog(world, channel)).unwrap();
        let announcement = Frame::BacklogAnnouncement { backlog, channel: id(channel) };
        world.to_consumer.push_back(transfer(&announcement, &[], Side::Consumer));
        seen.announcements += 1;
    }

    /// Data that waits in a subpartition.
    fn backlog(&self, world: &World, channel: usize) -> u32 {
        let waiting = world.subpartitions[channel].iter();
        waiting.filter(|place| self.scripts[channel][**place].is_buffer()).count() as u32
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
                    let wanted = world.channels[channel].ledger_mut().on_backlog(backlog.get());
                    world.take_floating(channel, wanted, seen);
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
        let arrival = world.channels[channel].on_buffer(&header).unwrap();
        let unread = &mut world.unread[channel];
        if header.data_type.has_priority() {
            seen.overtakes_at_consumer += usize::from(unread.len() > unread.priority_len());
            unread.add_priority((arrival.buffer, payload));
        } else {
            unread.add((arrival.buffer, payload));
        }
        if header.data_type.blocks_upstream() {
            world.revoked[channel] = self.exclusive == self.owed;
            world.withholds[channel] = world.revoked[channel];
            world.give_up(channel);
        }
        world.take_floating(channel, arrival.floating_wanted, seen);
    }

    fn read(&self, world: &mut World, channel: usize, seen: &mut Seen) {
        let due = self.due(channel, world.arrived[channel].without(world.read[channel]));
        let at = due.expect("what arrived and was not read");
        let (kind, bytes) = world.unread[channel].poll().unwrap();
        world.read[channel].add(at);
        if self.scripts[channel][at] == END {
            let totals = Totals::decode(&bytes[4..]).unwrap();
            world.channels[channel].on_end(totals).unwrap();
            world.channels[channel].check_rows(7).unwrap();
            world.close(channel);
        } else {
            assert_eq!(bytes, payload(channel, at), "priority first, all else in order");
        }
        world.to_resume[channel] |= self.scripts[channel][at].blocks_upstream();
        assert_eq!(kind.is_some(), self.scripts[channel][at].is_buffer());
        if let Some(kind) = kind {
            world.recycle(channel, kind, seen);
        }
    }

    fn closed(&self, world: &World, channel: usize) -> bool {
        let cancelled = world.cancelled && channel == 0;
        cancelled || world.read[channel].len() == self.scripts[channel].len()
    }

    /// What comes first of these places: a priority event if there is one.
    fn due(&self, channel: usize, places: Places) -> Option<usize> {
        let priority = |place: &usize| self.scripts[channel][*place].has_priority();
        places.iter().find(priority).or_else(|| places.iter().next())
    }

    /// What holds at all times.
    pub(super) fn check(&self, world: &World) {
        for channel in CHANNELS {
            // A closed channel has given its credit back; the producer may not know yet.
            if !self.closed(world, channel) && !world.revoked[channel] {
                let announced = world.channels[channel].ledger().announced();
                assert_eq!(world.credit_under_way(channel), announced, "credit is conserved");
            }
        }
        let free: u32 = world.channels.iter().map(|channel| channel.ledger().available()).sum();
        let held = world.unread.iter().flat_map(PrioritizedDeque::iter);
        let held = held.filter(|(kind, _)| kind.is_some()).count() as u32;
        let unpaid: u32 = world.unpaid.iter().sum();
        let all = self.pool + 2 * self.exclusive;
        assert_eq!(world.pool + free + held + unpaid, all, "no buffer is lost");
        let mut queue = world.queue.clone();
        let turns: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
        for channel in CHANNELS {
            let has_turn = turns.contains(&id(channel));
            assert_eq!(has_turn, self.can_send(world, channel), "who can send has a turn");
        }
    }

    fn can_send(&self, world: &World, channel: usize) -> bool {
        match (world.queue.credit(id(channel)), self.next(world, channel)) {
            (None, _) | (_, Next::None) => false,
            (Some(credit), Next::Data) => credit > 0,
            (Some(_), Next::Event) => true,
        }
    }

    /// Nobody can act any more: everything must have arrived.
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
            let unpaid: u32 = world.unpaid.iter().sum();
            let all = self.pool + 2 * self.exclusive;
            assert_eq!(world.pool + unpaid, all, "all buffers are home");
        }
    }
}

fn payload(channel: usize, at: usize) -> Vec<u8> {
    vec![channel as u8, at as u8]
}
