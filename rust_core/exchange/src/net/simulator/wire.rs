//! Pipes instead of sockets: what was written arrives when and in such pieces as the schedule says.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::error::Result;
use crate::net::lease::Lease;
use crate::net::link::{Link, Stream};

/// The address of a process.
pub(super) fn address_of(process: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(process + 1).expect("a handful")))
}

fn process_at(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1
}

/// What a socket reports once, until something changes.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) token: usize,
    pub(super) readable: bool,
    /// What was read or arrived is the last.
    pub(super) ended: bool,
    pub(super) writable: bool,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<u8>,
    arrived: VecDeque<u8>,
    /// The writer said that nothing follows; that arrives behind the last byte.
    finished: bool,
    /// The writer found no room and wants to be told of some.
    full: bool,
    /// Bytes that were ever written, and read.
    written: usize,
    read: usize,
    /// Those that take a descriptor along, in order.
    descriptors: VecDeque<(usize, OwnedFd)>,
    /// The one of the bytes that were read last.
    descriptor: Option<OwnedFd>,
}

impl Pipe {
    fn room(&self, capacity: usize) -> usize {
        capacity - self.under_way.len() - self.arrived.len()
    }

    /// Nothing will arrive any more.
    fn has_ended(&self) -> bool {
        self.finished && self.under_way.is_empty()
    }

    /// What arrived, up to where a descriptor begins that is not the first of it.
    fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.descriptors.front().is_some_and(|(at, _)| *at == self.read) {
            let (_, descriptor) = self.descriptors.pop_front().expect("looked at above");
            assert!(self.descriptor.replace(descriptor).is_none(), "each is taken");
        }
        let mut left = self.descriptors.front().map_or(usize::MAX, |(at, _)| at - self.read);
        let mut total = 0;
        for slice in slices {
            let most = slice.len().min(left);
            let count = self.arrived.read(&mut slice[..most])?;
            (total, left) = (total + count, left - count);
        }
        self.read += total;
        Ok(total)
    }
}

#[derive(Clone, Copy)]
struct End {
    process: usize,
    /// Known once the process has taken the connection.
    token: Option<usize>,
    /// The process dropped its socket.
    gone: bool,
}

struct Wire {
    /// The dialing process and the other one.
    ends: [End; 2],
    /// What each of them reads.
    pipes: [Pipe; 2],
    broken: Option<ErrorKind>,
}

/// All connections there ever were.
pub(super) struct Net {
    /// Bytes that a pipe takes before its writer has to wait.
    capacity: usize,
    /// They take descriptors along.
    pub(super) same_host: bool,
    /// Per process: tokens of connections that are gone while something was on loan over them.
    watched: Vec<Vec<usize>>,
    wires: Vec<Wire>,
    /// Per process: connections to accept, and events to look at.
    waiting: Vec<VecDeque<usize>>,
    events: Vec<Vec<Event>>,
    /// Processes that nobody can dial any more.
    closed: Vec<bool>,
}

impl Net {
    pub(super) fn new(processes: usize, capacity: usize, same_host: bool) -> Self {
        Self {
            capacity,
            same_host,
            watched: vec![Vec::new(); processes],
            wires: Vec::new(),
            waiting: vec![VecDeque::new(); processes],
            events: vec![Vec::new(); processes],
            closed: vec![false; processes],
        }
    }

    /// Pipes with bytes that have not arrived.
    pub(super) fn under_way(&self) -> Vec<(usize, usize)> {
        let sides = (0..self.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]);
        sides.filter(|(wire, side)| !self.wires[*wire].pipes[*side].under_way.is_empty()).collect()
    }

    /// Connections that can still break.
    pub(super) fn alive(&self) -> Vec<usize> {
        (0..self.wires.len()).filter(|wire| self.wires[*wire].broken.is_none()).collect()
    }

    /// Up to `count` bytes arrive.
    pub(super) fn deliver(&mut self, wire: usize, side: usize, count: usize) {
        let pipe = &mut self.wires[wire].pipes[side];
        let count = count.min(pipe.under_way.len());
        pipe.arrived.extend(pipe.under_way.drain(..count));
        self.tell(wire, side, true, false);
    }

    /// Both ends learn at once that the connection is no more.
    pub(super) fn cut(&mut self, wire: usize) {
        self.wires[wire].broken = Some(ErrorKind::ConnectionReset);
        self.tell(wire, 0, true, true);
        self.tell(wire, 1, true, true);
    }

    /// The process takes no further connection, and loses those it has not accepted.
    pub(super) fn close_process(&mut self, process: usize) {
        self.closed[process] = true;
        for wire in std::mem::take(&mut self.waiting[process]) {
            self.cut(wire);
        }
    }

    fn tell(&mut self, wire: usize, side: usize, readable: bool, writable: bool) {
        let End { process, token, gone } = self.wires[wire].ends[side];
        if let (Some(token), false) = (token, gone) {
            let ended =
                self.wires[wire].broken.is_some() || self.wires[wire].pipes[side].has_ended();
            self.events[process].push(Event { token, readable, ended, writable });
        }
    }
}

/// A process's way to its streams.
pub(super) struct SimLink {
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) process: usize,
}

impl SimLink {
    /// The next connection that another process dialed.
    pub(super) fn accept(&self) -> Option<(SimStream, SocketAddr)> {
        let mut net = self.net.borrow_mut();
        let wire = net.waiting[self.process].pop_front()?;
        let peer = address_of(net.wires[wire].ends[0].process);
        Some((SimStream { net: Rc::clone(&self.net), wire, side: 1 }, peer))
    }

    /// What [`Link::watch`] was asked for.
    pub(super) fn watched(&self) -> Vec<usize> {
        self.net.borrow().watched[self.process].clone()
    }

    /// What its sockets reported since the last call.
    pub(super) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.net.borrow_mut().events[self.process])
    }
}

impl Link for SimLink {
    type Stream = SimStream;

    fn dial(&mut self, peer: SocketAddr, token: usize) -> Result<SimStream> {
        let mut net = self.net.borrow_mut();
        let to = process_at(peer);
        let refused = net.closed[to].then_some(ErrorKind::ConnectionRefused);
        let wire = net.wires.len();
        net.wires.push(Wire {
            ends: [
                End { process: self.process, token: Some(token), gone: false },
                End { process: to, token: None, gone: false },
            ],
            pipes: Default::default(),
            broken: refused,
        });
        if refused.is_none() {
            net.waiting[to].push_back(wire);
        }
        net.tell(wire, 0, refused.is_some(), true);
        Ok(SimStream { net: Rc::clone(&self.net), wire, side: 0 })
    }

    fn register(&mut self, stream: &mut SimStream, token: usize) -> io::Result<()> {
        let mut net = self.net.borrow_mut();
        net.wires[stream.wire].ends[stream.side].token = Some(token);
        net.tell(stream.wire, stream.side, true, true);
        Ok(())
    }

    fn watch(&mut self, _lease: &mut Lease, token: usize) -> io::Result<()> {
        self.net.borrow_mut().watched[self.process].push(token);
        Ok(())
    }

    fn close(stream: &mut SimStream) {
        stream.finish();
    }
}

/// One end of a connection.
pub(super) struct SimStream {
    net: Rc<RefCell<Net>>,
    wire: usize,
    side: usize,
}

impl SimStream {
    fn finish(&self) {
        let mut net = self.net.borrow_mut();
        let other = 1 - self.side;
        net.wires[self.wire].pipes[other].finished = true;
        net.tell(self.wire, other, true, false);
    }

    fn check(&self) -> io::Result<()> {
        self.net.borrow().wires[self.wire].broken.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Stream for SimStream {
    fn is_same_host(&self) -> bool {
        self.net.borrow().same_host
    }

    /// A read ends ahead of a descriptor.
    fn may_stop_short(&self) -> bool {
        let net = self.net.borrow();
        let pipe = &net.wires[self.wire].pipes[self.side];
        pipe.descriptors.front().is_some_and(|(at, _)| *at == pipe.read)
    }

    fn write_with(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        let at = self.net.borrow().wires[self.wire].pipes[1 - self.side].written;
        let count = self.write(bytes)?;
        let descriptor = descriptor.try_clone_to_owned()?;
        self.net.borrow_mut().wires[self.wire].pipes[1 - self.side]
            .descriptors
            .push_back((at, descriptor));
        Ok(count)
    }

    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.net.borrow_mut().wires[self.wire].pipes[self.side].descriptor.take()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.finish();
        let mut net = self.net.borrow_mut();
        net.wires[self.wire].ends[self.side].gone = true;
        // The other end may wait for room that nobody makes any more.
        net.tell(self.wire, 1 - self.side, true, true);
    }
}

impl Read for SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.check()?;
        let mut net = self.net.borrow_mut();
        let pipe = &mut net.wires[self.wire].pipes[self.side];
        if pipe.arrived.is_empty() {
            return if pipe.has_ended() { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let total = pipe.read(slices)?;
        if std::mem::take(&mut pipe.full) {
            net.tell(self.wire, 1 - self.side, false, true);
        }
        Ok(total)
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        let other = 1 - self.side;
        let mut net = self.net.borrow_mut();
        let capacity = net.capacity;
        let wire = &mut net.wires[self.wire];
        if wire.ends[other].gone {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let pipe = &mut wire.pipes[other];
        let mut total = 0;
        for slice in slices {
            let count = slice.len().min(pipe.room(capacity));
            pipe.under_way.extend(&slice[..count]);
            total += count;
        }
        pipe.written += total;
        if total == 0 {
            pipe.full = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(total)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
