//! The reported error of a connection that ends while this process writes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use headgate_protocol::{
    ChannelId, ClientHandshake, ErrorFrame, FrameMask, Generation, PartitionId, PartitionRequest,
    ServerHandshake, Step,
};
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use super::*;
use crate::mailbox::Mailbox;
use crate::same_host::SameHost;
use crate::sockets::Socket;
use crate::testing::{Consumer, context};

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
const CHANNEL: ChannelId = ChannelId(5);
/// Bytes of the messages of a handshake.
const HELLO: usize = 86;
const CHALLENGE: usize = 91;
const PROOF: usize = 37;
const ACCEPT: usize = 5;
/// The REJECT of a peer that speaks other versions.
const VERSIONS: &[u8] = b"HDGT\x05\x01\x00\x07\x00\x09";

/// The peer's end of a socket, which blocks.
trait Theirs: Read + Write + AsFd {}

impl<T: Read + Write + AsFd> Theirs for T {}

/// A connection of this process, whose readiness the test reports.
struct Scene {
    context: Context,
    consumer: Arc<Consumer>,
    poll: Poll,
    ours: Option<Socket>,
    theirs: Option<Box<dyn Theirs>>,
    mask: FrameMask,
}

impl Scene {
    /// One scene for each kind of socket.
    fn all() -> [Self; 2] {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let far = std::net::TcpStream::connect(address).expect("listens");
        far.set_nodelay(true).expect("is open");
        let (near, _) = listener.accept().expect("dialed");
        near.set_nonblocking(true).expect("is open");
        let tcp = Self::new(Socket::Tcp(TcpStream::from_std(near)), Box::new(far));
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("descriptors");
        near.set_nonblocking(true).expect("is open");
        let near = SameHost::accepted(UnixStream::from_std(near)).expect("of our user");
        [tcp, Self::new(Socket::SameHost(near), Box::new(far))]
    }

    fn new(mut ours: Socket, theirs: Box<dyn Theirs>) -> Self {
        let poll = Poll::new().expect("a descriptor");
        let registry = || poll.registry().try_clone().expect("a descriptor");
        let mailbox = Arc::new(Mailbox::new(&registry()).expect("a descriptor"));
        let consumer = Arc::default();
        let context = context(mailbox, &consumer);
        match &mut ours {
            Socket::SameHost(near) => {
                near.register(&Arc::new(registry()), Token(1)).expect("is open")
            }
            Socket::Tcp(socket) => {
                registry().register(socket, Token(1), Interest::READABLE).expect("is open")
            }
            Socket::Tls(_) => unreachable!("not made above"),
        }
        let (ours, theirs) = (Some(ours), Some(theirs));
        Self { context, consumer, poll, ours, theirs, mask: FrameMask::default() }
    }

    fn theirs(&mut self) -> &mut dyn Theirs {
        &mut **self.theirs.as_mut().expect("is open")
    }

    fn say(&mut self, bytes: &[u8]) {
        self.theirs().write_all(bytes).expect("there is room");
    }

    fn say_frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(self.mask, &mut bytes);
        self.say(&bytes);
    }

    fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.theirs().read_exact(&mut bytes).expect("was written");
        bytes
    }

    /// The peer closes its socket with an RST. What it wrote has arrived by then.
    fn reset(&mut self) {
        let theirs = self.theirs.take().expect("is open");
        if matches!(SockRef::from(&theirs.as_fd()).local_addr(), Ok(address) if address.is_ipv4()) {
            SockRef::from(&theirs.as_fd()).set_linger(Some(Duration::ZERO)).expect("is open");
        }
        drop(theirs);
        let mut events = Events::with_capacity(4);
        while !events.iter().any(|event| event.token() == Token(1) && event.is_read_closed()) {
            self.poll.poll(&mut events, None).expect("epoll answers");
        }
    }

    fn dial(&mut self) -> Connection<Socket> {
        let dial = Dial::new(PEER, [9; 16], Instant::now());
        let ours = self.ours.take().expect("once");
        let mut client = PartitionRequestClient::default();
        Connection::dial(1, ours, dial, &mut client, &self.context).expect("random numbers")
    }

    /// A connection that this process reads from.
    fn fetching(&mut self) -> Connection<Socket> {
        let mut connection = self.dial();
        self.turn(&mut connection, false).expect("writes the HELLO");
        let context = &self.context;
        let config = headgate_protocol::HandshakeConfig { process: [9; 16], ..context.handshake };
        let mut server = ServerHandshake::new(context.key.clone(), config, [3; 32]);
        for len in [HELLO, PROOF] {
            let heard = self.hear(len);
            match server.handle(&mut &heard[..]).expect("it knows the secret") {
                Step::Send(bytes) => self.say(&bytes),
                Step::Done { peer, send } => {
                    self.mask = peer.mask;
                    self.say(&send);
                }
                Step::NeedMore => unreachable!("the message is complete"),
            }
            self.turn(&mut connection, true).expect("the peer is honest");
        }
        connection
    }

    /// A connection on which the peer reads a partition, which it has no credit for.
    fn serving(&mut self) -> Connection<Socket> {
        let ours = self.ours.take().expect("once");
        let context = &self.context;
        let accepted = Connection::accept(1, ours, PEER, context, Instant::now());
        let mut connection = accepted.expect("random numbers");
        let config = headgate_protocol::HandshakeConfig { process: [9; 16], ..context.handshake };
        let (mut client, hello) = ClientHandshake::start(context.key.clone(), config, [3; 32]);
        self.say(&hello);
        for len in [CHALLENGE, ACCEPT] {
            self.turn(&mut connection, true).expect("the peer is honest");
            let heard = self.hear(len);
            match client.handle(&mut &heard[..]).expect("it knows the secret") {
                Step::Send(bytes) => self.say(&bytes),
                Step::Done { peer, .. } => self.mask = peer.mask,
                Step::NeedMore => unreachable!("the message is complete"),
            }
        }
        self.say_frame(&Frame::PartitionRequest(PartitionRequest {
            partition: PartitionId([4; 16]),
            subpartition: 0,
            channel: CHANNEL,
            generation: Generation(0),
            initial_credit: 0,
            schema_hash: [0; 32],
        }));
        self.turn(&mut connection, true).expect("the peer is honest");
        assert!(self.consumer.end().is_none(), "it reads");
        connection
    }

    /// Lets the connection read, if bytes are reported to it, and write.
    fn turn(&self, connection: &mut Connection<Socket>, reported: bool) -> Result<()> {
        if reported {
            connection.transport.can_read(false);
        }
        connection.transport.can_write();
        connection.turn(&self.context, Instant::now())
    }
}

/// Makes the connection write.
fn beat(connection: &mut Connection<Socket>) {
    connection.outbox.push_frame(&Frame::Heartbeat);
}

#[test]
fn a_producer_that_finds_damage_reports_it_although_it_cannot_tell_its_consumer() {
    for mut scene in Scene::all() {
        let mut connection = scene.serving();
        let mut bytes = Vec::new();
        Frame::CancelPartitionRequest { channel: CHANNEL }.encode(scene.mask, &mut bytes);
        *bytes.last_mut().expect("a checksum") ^= 1;
        scene.say(&bytes);
        scene.reset();
        let error = scene.turn(&mut connection, true).expect_err("a checksum is wrong");
        assert!(matches!(error, ConnectionError::Integrity { .. }), "{error:?}");
        connection.disconnected(&error);
        let lost = scene.consumer.end().expect("it has ended").expect_err("it is lost").to_string();
        assert!(lost.contains("ends with CRC"), "{lost}");
    }
}

#[test]
fn a_consumer_that_finds_damage_reports_it_although_it_cannot_write() {
    // The damage is read before the write fails, or because it failed.
    for reported in [true, false] {
        for mut scene in Scene::all() {
            let mut connection = scene.fetching();
            beat(&mut connection);
            let mut bytes = Vec::new();
            Frame::Heartbeat.encode(scene.mask, &mut bytes);
            *bytes.last_mut().expect("a checksum") ^= 1;
            scene.say(&bytes);
            scene.reset();
            let error = scene.turn(&mut connection, reported).expect_err("a checksum is wrong");
            assert!(matches!(error, ConnectionError::Integrity { .. }), "{error:?}");
        }
    }
}

#[test]
fn a_refusal_that_cannot_be_written_is_still_the_cause() {
    for mut scene in Scene::all() {
        let ours = scene.ours.take().expect("once");
        let context = &scene.context;
        let accepted = Connection::accept(1, ours, PEER, context, Instant::now());
        let mut connection = accepted.expect("random numbers");
        let versions = headgate_protocol::VersionRange { min: 7, max: 9 };
        let config = headgate_protocol::HandshakeConfig { versions, ..context.handshake };
        let (_, hello) = ClientHandshake::start(context.key.clone(), config, [3; 32]);
        scene.say(&hello);
        scene.reset();
        let error = scene.turn(&mut connection, true).expect_err("no common version");
        assert!(matches!(error, ConnectionError::Version { .. }), "{error:?}");
    }
}

#[test]
fn what_a_peer_said_before_it_closed_the_connection_is_reported_by_a_failed_write() {
    for mut scene in Scene::all() {
        let mut connection = scene.fetching();
        beat(&mut connection);
        scene.say_frame(&Frame::Error(ErrorFrame::new(None, 3004, "you broke a rule")));
        scene.reset();
        let error = scene.turn(&mut connection, false).expect_err("the peer is gone");
        assert!(matches!(error, ConnectionError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("you broke a rule"), "{error}");
    }
}

#[test]
fn a_refusal_that_was_not_read_is_reported_by_a_failed_write() {
    for mut scene in Scene::all() {
        let mut connection = scene.dial();
        scene.say(VERSIONS);
        scene.reset();
        let error = scene.turn(&mut connection, false).expect_err("the peer is gone");
        assert!(matches!(error, ConnectionError::Version { .. }), "{error:?}");
    }
}

#[test]
fn a_goodbye_that_was_not_read_counts_when_a_write_fails() {
    for mut scene in Scene::all() {
        let mut connection = scene.serving();
        beat(&mut connection);
        scene.say_frame(&Frame::CloseRequest);
        scene.reset();
        let error = scene.turn(&mut connection, false).expect_err("the peer is gone");
        connection.disconnected(&error);
        scene.consumer.end().expect("it has ended").expect("it wanted nothing more");
    }
}

#[test]
fn a_peer_that_said_nothing_is_lost_by_the_error_of_the_write() {
    for mut scene in Scene::all() {
        let mut connection = scene.fetching();
        beat(&mut connection);
        scene.reset();
        let error = scene.turn(&mut connection, false).expect_err("the peer is gone");
        let ConnectionError::PeerLost { detail, .. } = error else { panic!("{error:?}") };
        assert!(detail.contains("os error"), "{detail}");
    }
}
