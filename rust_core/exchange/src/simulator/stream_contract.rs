//! The contract of [`Stream`] and [`Link`]: each test checks one promise for TCP, for Unix sockets within a
//! host, and for the simulator's pipes of both sorts, so that connections cannot tell them apart.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use headgate_net::simulation::{Link, SameHost, Socket, Sockets, Stream, listen};
use mio::Poll;

use super::wire::{Net, SimLink, address_of};

/// Time after which an operation that keeps blocking counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that a simulated pipe holds.
const CAPACITY: usize = 5000;

/// Both ends of a connection. Fields drop in order, so streams go before what they report to.
struct Pair<L: Link> {
    dialed: L::Stream,
    accepted: L::Stream,
    /// Lets the bytes written so far arrive.
    arrive: Box<dyn Fn()>,
    /// True if bytes have arrived once `write` and `arrive` return, as they may not have over TCP.
    is_immediate: bool,
    _links: Vec<L>,
    _polls: Vec<Poll>,
}

fn sockets(same_host: bool) -> Pair<Sockets> {
    let poll = Poll::new().expect("descriptors");
    let mut link =
        Sockets::new(poll.registry().try_clone().expect("a descriptor"), same_host, None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let near = same_host.then(|| listen(address).expect("the name is free"));
    let dialed = link.dial(address, 1, true).expect("somebody listens");
    let mut accepted = match near {
        Some(near) => {
            near.set_nonblocking(false).expect("a socket can block");
            let (socket, _) = near.accept().expect("a connection waits");
            socket.set_nonblocking(true).expect("a socket can be non-blocking");
            let socket = SameHost::accepted(mio::net::UnixStream::from_std(socket));
            Socket::SameHost(socket.expect("this user dialed"))
        }
        None => {
            let (socket, _) = listener.accept().expect("a connection waits");
            socket.set_nonblocking(true).expect("a socket can be non-blocking");
            Socket::Tcp(mio::net::TcpStream::from_std(socket))
        }
    };
    link.register(&mut accepted, 2).expect("not registered before");
    Pair {
        dialed,
        accepted,
        arrive: Box::new(|| ()),
        is_immediate: same_host,
        _links: vec![link],
        _polls: vec![poll],
    }
}

fn pipes(same_host: bool) -> Pair<SimLink> {
    let net = Rc::new(RefCell::new(Net::new(2, CAPACITY, same_host)));
    let link = |process| SimLink { net: Rc::clone(&net), process };
    let (mut near, mut far) = (link(0), link(1));
    let dialed = near.dial(address_of(1), 1, true).expect("process 1 accepts");
    let (mut accepted, _) = far.accept().expect("process 0 dialed");
    far.register(&mut accepted, 2).expect("not registered before");
    let arrive = move || {
        let mut net = net.borrow_mut();
        for (wire, side) in net.under_way() {
            net.deliver(wire, side, usize::MAX);
        }
    };
    Pair {
        dialed,
        accepted,
        arrive: Box::new(arrive),
        is_immediate: true,
        _links: vec![near, far],
        _polls: Vec::new(),
    }
}

/// Calls the same function for every implementation.
macro_rules! for_each_link {
    ($check:ident) => {
        $check(sockets(false));
        $check(sockets(true));
        $check(pipes(false));
        $check(pipes(true));
    };
}

/// Repeats an operation while it would block.
fn finish<T>(arrive: &dyn Fn(), mut operation: impl FnMut() -> io::Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match operation() {
            Ok(value) => return value,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "the operation keeps blocking");
        arrive();
        thread::yield_now();
    }
}

/// Reads exactly `count` bytes in pieces of up to `piece`.
fn read_exactly(
    stream: &mut impl Stream,
    arrive: &dyn Fn(),
    count: usize,
    piece: usize,
) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < count {
        let mut buffer = vec![0; piece.min(count - got.len())];
        let read = finish(arrive, || stream.read(&mut buffer));
        assert!(read > 0, "the stream ended after {} of {count} bytes", got.len());
        got.extend_from_slice(&buffer[..read]);
    }
    got
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index % 251) as u8).collect()
}

#[test]
fn an_empty_stream_would_block() {
    fn check<L: Link>(mut it: Pair<L>) {
        (it.arrive)();
        for stream in [&mut it.dialed, &mut it.accepted] {
            let error = stream.read(&mut [0; 8]).expect_err("nothing was written");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
    }
    for_each_link!(check);
}

#[test]
fn a_full_stream_would_block_until_its_peer_reads() {
    fn check<L: Link>(mut it: Pair<L>) {
        let bytes = pattern(1 << 16);
        let mut sent = Vec::new();
        loop {
            let at = sent.len() % bytes.len();
            match it.dialed.write(&bytes[at..]) {
                Ok(count) => sent.extend_from_slice(&bytes[at..at + count]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
            assert!(sent.len() < 1 << 28, "a stream holds a limited number of bytes");
        }
        let Pair { dialed, accepted, arrive, .. } = &mut it;
        assert!(read_exactly(accepted, arrive, sent.len(), 100_000) == sent);
        assert_eq!(finish(arrive, || dialed.write(b"more")), 4);
        assert_eq!(read_exactly(accepted, arrive, 4, 4), b"more");
    }
    for_each_link!(check);
}

#[test]
fn bytes_of_vectored_writes_arrive_in_order_in_vectored_reads() {
    fn check<L: Link>(mut it: Pair<L>) {
        let bytes = pattern(3000);
        let Pair { dialed, accepted, arrive, .. } = &mut it;
        exchange(dialed, accepted, arrive, &bytes);
        exchange(accepted, dialed, arrive, &bytes);
    }
    fn exchange(from: &mut impl Stream, to: &mut impl Stream, arrive: &dyn Fn(), bytes: &[u8]) {
        let (first, rest) = bytes.split_at(35);
        let (second, third) = rest.split_at(1500);
        let slices = [IoSlice::new(first), IoSlice::new(second), IoSlice::new(third)];
        let mut sent = finish(arrive, || from.write_vectored(&slices));
        while sent < bytes.len() {
            sent += finish(arrive, || from.write(&bytes[sent..]));
        }
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let (mut head, mut tail) = ([0; 7], [0; 64]);
            let read = finish(arrive, || {
                to.read_vectored(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)])
            });
            got.extend([&head[..], &tail[..]].concat().drain(..read));
        }
        assert_eq!(got, bytes);
    }
    for_each_link!(check);
}

#[test]
fn after_a_close_the_peer_reads_everything_and_then_the_end() {
    fn check<L: Link>(mut it: Pair<L>) {
        let bytes = pattern(2000);
        let Pair { dialed, accepted, arrive, .. } = &mut it;
        assert_eq!(finish(arrive, || dialed.write(&bytes)), bytes.len());
        // Unread bytes at a close must not discard those under way.
        assert_eq!(finish(arrive, || accepted.write(b"unread")), 6);
        L::close(dialed);
        assert_eq!(read_exactly(accepted, arrive, bytes.len(), 300), bytes);
        for _ in 0..2 {
            assert_eq!(finish(arrive, || accepted.read(&mut [0; 8])), 0);
        }
    }
    for_each_link!(check);
}

#[test]
fn a_descriptor_comes_with_the_first_byte_it_was_written_with_if_the_host_is_the_same() {
    fn check<L: Link>(mut it: Pair<L>) {
        let Pair { dialed, accepted, arrive, .. } = &mut it;
        let (ours, mut theirs) =
            io::pipe().map(|(read, write)| (write, read)).expect("descriptors");
        assert_eq!(dialed.is_same_host(), accepted.is_same_host());
        assert_eq!(finish(arrive, || accepted.write(b"plain")), 5);
        assert_eq!(finish(arrive, || accepted.write_with(b"with", ours.as_fd())), 4);
        assert_eq!(finish(arrive, || accepted.write(b"after")), 5);
        drop(ours);
        for count in 1..=14 {
            read_exactly(dialed, arrive, 1, 1);
            let descriptor = dialed.take_descriptor();
            let expected = dialed.is_same_host() && count == b"plain".len() + 1;
            assert_eq!(descriptor.is_some(), expected, "after {count} bytes");
            if let Some(descriptor) = descriptor {
                io::PipeWriter::from(descriptor).write_all(b"it").expect("the pipe is open");
            }
        }
        // The end of the pipe: no copy of the descriptor is left open.
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).expect("the pipe is open");
        assert_eq!(got, if dialed.is_same_host() { &b"it"[..] } else { b"" });
    }
    for_each_link!(check);
}

#[test]
fn descriptors_of_frames_that_were_read_together_or_in_parts_are_taken_in_order() {
    fn check<L: Link>(mut it: Pair<L>) {
        let Pair { dialed, accepted, arrive, .. } = &mut it;
        let pipes = [(); 2].map(|()| io::pipe().expect("descriptors"));
        for ((_, write), bytes) in pipes.iter().zip([b"with", b"more"]) {
            assert_eq!(finish(arrive, || accepted.write_with(bytes, write.as_fd())), 4);
        }
        // The first read ends within the bytes of the first descriptor.
        let mut got = 0;
        while got < 8 {
            let most = if got == 0 { 2 } else { 64 };
            got += finish(arrive, || dialed.read(&mut [0; 64][..most]));
        }
        for (mut read, write) in pipes {
            drop(write);
            if let Some(descriptor) = dialed.take_descriptor() {
                io::PipeWriter::from(descriptor).write_all(b"it").expect("the pipe is open");
                let mut text = [0; 2];
                read.read_exact(&mut text).expect("its own descriptor wrote");
            } else {
                assert!(!dialed.is_same_host());
            }
        }
        assert!(dialed.take_descriptor().is_none());
    }
    for_each_link!(check);
}

#[test]
fn a_short_read_leaves_nothing_behind_unless_the_stream_says_so() {
    fn check<L: Link>(mut it: Pair<L>) {
        let Pair { dialed, accepted, arrive, is_immediate, .. } = &mut it;
        let (_read, write) = io::pipe().expect("descriptors");
        assert_eq!(finish(arrive, || accepted.write(b"plain")), 5);
        assert_eq!(finish(arrive, || accepted.write_with(b"with", write.as_fd())), 4);
        assert_eq!(finish(arrive, || accepted.write(b"after")), 5);
        arrive();
        let mut got = Vec::new();
        while got.len() < 14 {
            let mut buffer = [0; 64];
            let read = finish(arrive, || dialed.read(&mut buffer));
            got.extend_from_slice(&buffer[..read]);
            let may_stop_short = dialed.may_stop_short();
            dialed.take_descriptor();
            let is_all = got.len() == 14;
            assert!(is_all || may_stop_short || !*is_immediate, "after {} bytes", got.len());
        }
        assert_eq!(got, b"plainwithafter");
    }
    for_each_link!(check);
}
