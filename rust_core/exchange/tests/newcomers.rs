//! Connections before their proof: a flood costs only the addresses that it comes from.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{Env, SECRET, config, wait_until};
use headgate_exchange::Config;
use headgate_protocol::{ClientHandshake, HandshakeConfig, Key, Step, VersionRange};
use socket2::{Domain, Socket, Type};

/// Connections that fill the room for those that have named nothing, and the one for all others.
const STRANGERS: usize = 2 * 64;
const NAMED: usize = 256 + 64;
/// Connections that one flooding address keeps open.
const HELD: usize = 200;

fn key() -> Key {
    let Config { exchange, run, epoch, .. } = config(4, 4096);
    Key::derive(&SECRET, &exchange, run, epoch)
}

/// Returns a handshake that names the exchange, and its HELLO.
fn hello() -> (ClientHandshake, Vec<u8>) {
    let Config { exchange, run, epoch, segment_size, .. } = config(4, 4096);
    let max_segment = u32::try_from(segment_size).unwrap();
    let (process, versions) = ([9; 16], VersionRange::SUPPORTED);
    let config = HandshakeConfig { exchange, run, epoch, process, max_segment, versions };
    ClientHandshake::start(key(), config, [5; 32])
}

fn dial(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((IpAddr::from(from), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Connections from two addresses, one after the other, that go no further than `first`.
struct Flood {
    first: Vec<u8>,
    dialed: AtomicUsize,
    is_over: AtomicBool,
}

impl Flood {
    fn run(&self, from: [u8; 4], to: SocketAddr) {
        let mut held = VecDeque::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let mut stream = dial(from, to);
            // It may have been closed already.
            let _ = stream.write_all(&self.first);
            held.push_back(stream);
            self.dialed.fetch_add(1, Ordering::Relaxed);
            if held.len() > HELD {
                held.pop_front();
            }
        }
    }

    fn wait_for(&self, more: usize) {
        let enough = self.dialed.load(Ordering::Relaxed) + more;
        wait_until("the room is full", || self.dialed.load(Ordering::Relaxed) >= enough);
    }
}

/// Does a handshake during a flood that fills a room anew before each piece of PROOF, and that of strangers
/// before each piece of HELLO.
fn passes(first: Vec<u8>, room: usize) {
    let env = Env::new(4, 4096);
    let _partition = env.partition(1);
    let to = env.0.address().unwrap();
    let flood = Flood { first, dialed: AtomicUsize::new(0), is_over: AtomicBool::new(false) };
    thread::scope(|scope| {
        for from in [[127, 0, 0, 2], [127, 0, 0, 3]] {
            let flood = &flood;
            scope.spawn(move || flood.run(from, to));
        }
        let passed = thread::Builder::new()
            .spawn_scoped(scope, || {
                let mut stream = dial([127, 0, 0, 4], to);
                let (mut handshake, mut bytes) = hello();
                for (room, answer) in [(STRANGERS, 91), (room, 5)] {
                    for piece in bytes.chunks(bytes.len().div_ceil(2)) {
                        flood.wait_for(room);
                        stream.write_all(piece).unwrap();
                    }
                    let mut got = vec![0; answer];
                    stream.read_exact(&mut got).unwrap();
                    match handshake.handle(&mut &got[..]).unwrap() {
                        Step::Send(proof) => bytes = proof,
                        Step::Done { .. } => return,
                        Step::NeedMore => panic!("an answer was incomplete"),
                    }
                }
                panic!("there was no ACCEPT");
            })
            .unwrap()
            .join();
        flood.is_over.store(true, Ordering::Relaxed);
        passed.unwrap();
    });
}

#[test]
fn a_slow_handshake_passes_during_a_flood_of_silent_connections() {
    passes(Vec::new(), STRANGERS);
}

#[test]
fn a_slow_handshake_passes_during_a_flood_of_connections_cut_short() {
    passes(hello().1[..10].to_vec(), STRANGERS);
}

#[test]
fn a_slow_handshake_passes_during_a_flood_that_names_the_exchange() {
    passes(hello().1, NAMED);
}
