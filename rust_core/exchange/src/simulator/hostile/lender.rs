//! A producer that lies about what it lends.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::Poll;

use headgate_memory::Buffer;
use headgate_net::simulation::Checksum;
use headgate_protocol::{
    BufferHeader, ChannelId, DataType, Frame, Generation, LentBuffer, PartitionRequest, Sequence,
    ServerHandshake, Side,
};
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;

use crate::error::ExchangeError;
use crate::gate::DataInput;
use crate::simulator::hostile::peer::Hostile;
use crate::simulator::hostile::scene::{
    Beside, HONEST, SEGMENT, Scene, Tally, VICTIM, share_of_lies,
};

const SEALS: [SealFlags; 4] =
    [SealFlags::SEAL, SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE];

/// A consumer reads from a producer that lies about what it lends.
pub(super) fn lies_to_a_consumer(rng: &mut TestRng, tally: &mut Tally) {
    let mut scene = Scene::new();
    let partition = scene.partition(HONEST);
    let gate = scene.gate(VICTIM, &scene.address(HONEST, &partition));
    let mut beside = Beside::new(partition, gate);
    let gate = scene.gate(VICTIM, &Hostile::address());
    scene.settle(rng);
    let (stream, _) = scene.link.accept().expect("the victim dialed");
    let mut peer = Hostile::new(stream);
    let (key, config) = Hostile::config();
    let mut server = ServerHandshake::new(key, config, rng.random());
    peer.shake_hands(&mut scene, rng, |input: &mut &[u8]| server.handle(input));
    let Some(Frame::PartitionRequest(request)) = peer.next(Side::Producer) else {
        panic!("a consumer begins with its request");
    };
    let mut lender = Lender {
        peer,
        credit: request.initial_credit,
        request,
        sequence: Sequence(0),
        lease: None,
        regions: HashMap::new(),
        honest: HashMap::new(),
        loans: 0,
        lied: false,
    };
    // Most begin as honest producers do, so that their lies are believed for a while.
    if rng.random_bool(0.9) {
        lender.begin(true, tally);
        lender.region(false, rng, tally);
    }
    let lies = share_of_lies(rng);
    let (mut held, mut outcome): (Vec<(Buffer, Vec<u8>)>, _) = (Vec::new(), None);
    for _ in 0..rng.random_range(1..60) {
        if lender.peer.gone {
            break;
        }
        lender.tell(lies, rng, tally);
        if rng.random_bool(0.7) {
            scene.settle(rng);
        }
        beside.turn();
        while outcome.is_none() {
            match gate.poll_next() {
                Ok(Poll::Ready(Some(next))) => {
                    let bytes = lender.honest.remove(&next.sequence.0).expect("a lie was believed");
                    assert_eq!(next.buffer.as_slice(), bytes);
                    tally.add(match next.buffer.is_borrowed() {
                        true => "a borrowed buffer was read",
                        false => "a sent buffer was read",
                    });
                    held.push((next.buffer, bytes));
                }
                Ok(Poll::Ready(None)) => panic!("no partition has ended"),
                Ok(Poll::Pending) => break,
                Err(error) => outcome = Some(error),
            }
        }
        if rng.random_bool(0.3) && !held.is_empty() {
            held.swap_remove(rng.random_range(0..held.len()));
        }
    }
    scene.settle(rng);
    lender.peer.listen();
    let Lender { peer, lease, lied, .. } = lender;
    assert!(peer.gone || !lied, "a lie was passed over");
    drop(peer);
    scene.settle(rng);
    while outcome.is_none() {
        match gate.poll_next() {
            Ok(Poll::Ready(Some(next))) => drop(next),
            other => outcome = Some(other.expect_err("the connection has ended")),
        }
    }
    tally.add(match outcome {
        Some(ExchangeError::PeerLost { .. }) => "the consumer lost its producer",
        _ => "the consumer refused its producer",
    });
    // Bytes that a reader holds outlive their connection and their gate.
    gate.close();
    for (buffer, bytes) in &held {
        assert_eq!(buffer.as_slice(), bytes);
    }
    drop(held);
    scene.settle(rng);
    beside.finish(&mut scene, rng);
    if let Some(mut lease) = lease {
        lease.set_nonblocking(true).expect("a socket can be");
        assert_eq!(lease.read(&mut [0]).ok(), Some(0), "the lease ends with the last loan");
        tally.add("a lease ended");
    }
    scene.end(rng);
}

/// A producer that lies about what it lends.
struct Lender {
    peer: Hostile,
    request: PartitionRequest,
    sequence: Sequence,
    lease: Option<UnixStream>,
    /// Sizes of the regions that the victim should have taken.
    regions: HashMap<u32, u64>,
    /// The bytes that may arrive, by number of the buffer.
    honest: HashMap<u32, Vec<u8>>,
    loans: u64,
    credit: u32,
    /// True once it said something for which its connection must end.
    lied: bool,
}

impl Lender {
    fn header(&self, size: u32) -> BufferHeader {
        BufferHeader {
            channel: self.request.channel,
            generation: self.request.generation,
            sequence: self.sequence,
            backlog: 1,
            data_type: DataType::DataBufferWithClearEnd,
            compressed: false,
            size,
            crc: 0,
        }
    }

    /// Says one thing; `lies` is the share of lies.
    fn tell(&mut self, lies: f64, rng: &mut TestRng, tally: &mut Tally) {
        while let Some(frame) = self.peer.next(Side::Producer) {
            if let Frame::AddCredit { credit, .. } = frame {
                self.credit += credit.get();
            }
        }
        if !rng.random_bool(lies) {
            match rng.random_range(0..10) {
                0 if self.regions.len() < 4 => self.region(false, rng, tally),
                1..3 if self.credit > 0 => self.send(),
                3.. if self.credit > 0 => self.lend(false, rng, tally),
                _ => self.peer.say_frame(&Frame::Heartbeat, None),
            }
            return;
        }
        match rng.random_range(0..14) {
            0..2 => self.begin(rng.random(), tally),
            2..5 => self.region(true, rng, tally),
            5..11 => self.lend(true, rng, tally),
            11 => {
                let loan = rng.random_range(0..9);
                self.lied = true;
                self.peer.say_frame(&Frame::Return { loan }, None);
                tally.add("return from a producer");
            }
            12 => {
                let file = memory(4096, SealFlags::empty());
                self.peer.say_frame(&Frame::Heartbeat, Some(&file));
                tally.add("descriptor that nothing announced");
            }
            _ => {
                self.lied = true;
                self.peer.say(&[rng.random(); 20], None);
            }
        }
    }

    fn begin(&mut self, has_descriptor: bool, tally: &mut Tally) {
        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        let theirs: OwnedFd = theirs.into();
        self.peer.say_frame(&Frame::Lease, has_descriptor.then_some(&theirs));
        let first = self.lease.is_none();
        self.lied |= !has_descriptor || !first;
        tally.add(match (has_descriptor, first) {
            (true, true) => "lease",
            (true, false) => "second lease",
            (false, _) => "lease without descriptor",
        });
        if has_descriptor && first {
            self.lease = Some(ours);
        }
    }

    fn region(&mut self, lies: bool, rng: &mut TestRng, tally: &mut Tally) {
        let ids = (0..4).filter(|id| lies || !self.regions.contains_key(id)).collect::<Vec<_>>();
        let region = ids[rng.random_range(0..ids.len())];
        let size = [1, 100, 1024, 4096, 9000][rng.random_range(0..5)];
        let all = SEALS.into_iter().fold(SealFlags::empty(), |all, one| all | one);
        let lie = if lies { rng.random_range(0..5) } else { 5 };
        let (file, announced) = match lie {
            0 => (Some(memory(size, all.difference(SEALS[rng.random_range(0..4)]))), size),
            1 => {
                let wrong = [0, size - 1, size + 1, u64::MAX][rng.random_range(0..4)];
                (Some(memory(size, all)), wrong)
            }
            2 => (Some(UnixStream::pair().expect("descriptors").0.into()), size),
            3 => (None, size),
            // The fourth lie is a region that came before.
            _ => (Some(memory(size, all)), size),
        };
        self.peer.say_frame(&Frame::Region { region, size: announced }, file.as_ref());
        if lie > 3 {
            tally.add("region");
            self.lied |= self.regions.insert(region, size).is_some();
        } else {
            tally.add("region that is none");
            self.lied = true;
        }
    }

    fn lend(&mut self, lies: bool, rng: &mut TestRng, tally: &mut Tally) {
        let known: Vec<_> = self.regions.keys().copied().collect();
        let region = match known.is_empty() || (lies && rng.random_bool(0.2)) {
            true => rng.random_range(0..9),
            false => known[rng.random_range(0..known.len())],
        };
        let of = self.regions.get(&region).copied();
        let size = of.unwrap_or(4096);
        let mut offset = rng.random_range(0..size);
        let mut header =
            self.header(rng.random_range(1..=(size - offset).min(SEGMENT as u64)) as u32);
        let mut loan = self.loans;
        self.loans += 1;
        if lies {
            match rng.random_range(0..7) {
                0 => offset = rng.random(),
                1 => offset = size,
                2 => header.size = rng.random_range(1..=2 * SEGMENT as u32),
                3 => header.channel = ChannelId(rng.random()),
                4 => header.generation = Generation(rng.random()),
                5 => header.sequence = Sequence(rng.random_range(0..5)),
                _ => loan = rng.random(),
            }
        }
        let BufferHeader { channel, generation, sequence, backlog, data_type, size: len, .. } =
            header;
        let lent = LentBuffer {
            channel,
            generation,
            sequence,
            backlog,
            data_type,
            size: len,
            loan,
            region,
            offset,
        };
        self.peer.say_frame(&Frame::LentBuffer(lent), None);
        let inside = offset.checked_add(u64::from(len)).is_some_and(|end| end <= size);
        let fits = of.is_some() && inside && len as usize <= SEGMENT && self.lease.is_some();
        if fits && header == self.header(len) {
            tally.add("lent buffer");
            let bytes = (offset..offset + u64::from(len)).map(byte_at).collect();
            self.honest.insert(sequence.0, bytes);
            self.sequence = self.sequence.next();
            self.credit = self.credit.saturating_sub(1);
        } else {
            tally.add("lent buffer that is none");
            // A buffer of a channel that is not open is given back.
            self.lied |= header == self.header(len) && self.credit > 0;
        }
    }

    /// Sends a buffer, as a producer may also do.
    fn send(&mut self) {
        let payload = vec![9; 33];
        let mut header = self.header(33);
        let mut checksum = Checksum::start(&header);
        checksum.update(&payload);
        header.crc = self.peer.mask.apply(checksum.value());
        self.peer.say_frame(&Frame::Buffer(header), None);
        self.peer.say(&payload, None);
        self.honest.insert(self.sequence.0, payload);
        self.sequence = self.sequence.next();
        self.credit -= 1;
    }
}

/// Makes memory in which each byte tells its position.
fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("hostile", MemfdFlags::ALLOW_SEALING).expect("a descriptor");
    ftruncate(&file, size).expect("a few pages");
    let bytes: Vec<u8> = (0..size).map(byte_at).collect();
    assert_eq!(pwrite(file.as_fd(), &bytes, 0).expect("fits"), bytes.len());
    fcntl_add_seals(&file, seals).expect("not sealed before");
    file
}

fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}
