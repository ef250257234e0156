//! Pipes in place of sockets: the schedule decides when bytes arrive and in which pieces.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use headgate_net::simulation::{Lease, Link, MOST_DESCRIPTORS, Stream};

use crate::simulator::harm::{Armed, FrameKind, Frames};

/// Returns the address of a process.
pub(super) fn address_of(process: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(process + 1).expect("a handful")))
}

fn process_at(address: SocketAddr) -> usize {
    usize::from(address.port()) - 1
}

/// A change of readiness, reported once.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) token: usize,
    pub(super) readable: bool,
    /// True if no bytes follow those that arrived.
    pub(super) ended: bool,
    pub(super) writable: bool,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<u8>,
    arrived: VecDeque<u8>,
    /// True once the writer has closed its end; the reader learns of it after the last byte.
    finished: bool,
    /// True if the writer found no room and waits for an event.
    full: bool,
    /// Total number of bytes written, and of bytes read.
    written: usize,
    read: usize,
    /// Descriptors in order, each with the position of the byte it travels with.
    descriptors: VecDeque<(usize, OwnedFd)>,
    /// Descriptors that came with bytes that were read, and were not taken.
    taken: VecDeque<OwnedFd>,
    /// Does harm to frames; None if that is not asked for.
    frames: Option<Box<Frames>>,
    /// True while no byte arrives.
    delayed: bool,
}

impl Pipe {
    fn room(&self, capacity: usize) -> usize {
        // A doubled frame takes more than its writer was allowed.
        capacity.saturating_sub(self.under_way.len() + self.arrived.len())
    }

    /// Returns true if nothing more will arrive.
    fn has_ended(&self) -> bool {
        let is_cut = self.frames.as_ref().is_some_and(|frames| frames.is_cut);
        (self.finished || is_cut) && self.under_way.is_empty()
    }

    /// Reads arrived bytes; ends ahead of a byte that carries a descriptor, unless it is the first.
    fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.descriptors.front().is_some_and(|(at, _)| *at == self.read) {
            let (_, descriptor) = self.descriptors.pop_front().expect("checked above");
            if self.taken.len() == MOST_DESCRIPTORS {
                return Err(io::Error::other("descriptors came that nothing announced"));
            }
            self.taken.push_back(descriptor);
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
    /// The token, once the process has registered the stream.
    token: Option<usize>,
    /// True once the process has dropped its stream.
    gone: bool,
}

struct Wire {
    /// The process that dialed, then the one that accepts.
    ends: [End; 2],
    /// The pipe that each end reads.
    pipes: [Pipe; 2],
    broken: Option<ErrorKind>,
    /// True if it carries descriptors.
    same_host: bool,
}

/// All connections of a schedule, including ended ones.
pub(super) struct Net {
    /// Bytes that a pipe holds before its writer must wait.
    capacity: usize,
    /// True if connections carry descriptors, unless TCP is asked for.
    pub(super) same_host: bool,
    /// Per process, the tokens of ended connections with buffers still on loan.
    watched: Vec<Vec<usize>>,
    wires: Vec<Wire>,
    /// Per process, the connections to accept.
    waiting: Vec<VecDeque<usize>>,
    /// Per process, the events to handle.
    events: Vec<Vec<Event>>,
    /// Per process, true once it accepts no more connections.
    closed: Vec<bool>,
    /// True if harm can be done to frames.
    pub(super) harms: bool,
    /// The harm that waits for a frame.
    pub(super) armed: Option<Armed>,
    /// The kind of the frame that was harmed.
    pub(super) struck: Option<FrameKind>,
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
            harms: false,
            armed: None,
            struck: None,
        }
    }

    /// Returns the pipes with bytes that have not arrived.
    pub(super) fn under_way(&self) -> Vec<(usize, usize)> {
        let sides = (0..self.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]);
        let moves = |pipe: &Pipe| !pipe.under_way.is_empty() && !pipe.delayed;
        sides.filter(|(wire, side)| moves(&self.wires[*wire].pipes[*side])).collect()
    }

    /// Returns the connections that can still break.
    pub(super) fn alive(&self) -> Vec<usize> {
        (0..self.wires.len()).filter(|wire| self.wires[*wire].broken.is_none()).collect()
    }

    /// Delivers up to `count` bytes.
    pub(super) fn deliver(&mut self, wire: usize, side: usize, count: usize) {
        let pipe = &mut self.wires[wire].pipes[side];
        let count = count.min(pipe.under_way.len());
        pipe.arrived.extend(pipe.under_way.drain(..count));
        self.tell(wire, side, true, false);
    }

    /// Breaks a connection; both ends learn of it at once.
    pub(super) fn cut(&mut self, wire: usize) {
        self.wires[wire].broken = Some(ErrorKind::ConnectionReset);
        self.tell(wire, 0, true, true);
        self.tell(wire, 1, true, true);
    }

    /// Breaks all connections of a process that ends.
    pub(super) fn kill(&mut self, process: usize) {
        for wire in self.alive() {
            if self.wires[wire].ends.iter().any(|end| end.process == process) {
                self.cut(wire);
            }
        }
    }

    /// Returns true if a process has ended.
    pub(super) fn is_closed(&self, process: usize) -> bool {
        self.closed[process]
    }

    /// Returns the connections that both ends use.
    pub(super) fn in_use(&self) -> Vec<usize> {
        let used = |wire: &usize| self.wires[*wire].ends.iter().all(|end| !end.gone);
        self.alive().into_iter().filter(used).collect()
    }

    /// Keeps all further bytes of a pipe under way until [`release`](Self::release).
    pub(super) fn delay(&mut self, wire: usize, side: usize) {
        self.wires[wire].pipes[side].delayed = true;
    }

    /// Lets the bytes of delayed pipes and overtaken frames move again; returns true if there are any.
    pub(super) fn release(&mut self) -> bool {
        let mut released = false;
        for pipe in self.wires.iter_mut().flat_map(|wire| &mut wire.pipes) {
            released |= std::mem::take(&mut pipe.delayed);
            if let Some(frames) = &mut pipe.frames {
                released |= frames.release(&mut pipe.under_way);
            }
        }
        released
    }

    /// Closes a process to new connections, and breaks those it has not accepted.
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

/// The link of one process.
pub(super) struct SimLink {
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) process: usize,
}

impl SimLink {
    /// Accepts the next connection that another process dialed.
    pub(super) fn accept(&self) -> Option<(SimStream, SocketAddr)> {
        let mut net = self.net.borrow_mut();
        let wire = net.waiting[self.process].pop_front()?;
        let peer = address_of(net.wires[wire].ends[0].process);
        Some((SimStream { net: Rc::clone(&self.net), wire, side: 1 }, peer))
    }

    /// Returns the tokens given to [`Link::watch`].
    pub(super) fn watched(&self) -> Vec<usize> {
        self.net.borrow().watched[self.process].clone()
    }

    /// Takes the events since the last call.
    pub(super) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.net.borrow_mut().events[self.process])
    }
}

impl Link for SimLink {
    type Stream = SimStream;

    fn dial(
        &mut self,
        peer: SocketAddr,
        token: usize,
        tries_same_host: bool,
    ) -> io::Result<SimStream> {
        let mut net = self.net.borrow_mut();
        let same_host = net.same_host && tries_same_host;
        let to = process_at(peer);
        let refused = net.closed[to].then_some(ErrorKind::ConnectionRefused);
        let wire = net.wires.len();
        let pipes =
            [(); 2].map(|()| Pipe { frames: net.harms.then(Box::default), ..Pipe::default() });
        net.wires.push(Wire {
            ends: [
                End { process: self.process, token: Some(token), gone: false },
                End { process: to, token: None, gone: false },
            ],
            pipes,
            broken: refused,
            same_host,
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
        self.net.borrow().wires[self.wire].same_host
    }

    /// Reads end ahead of a descriptor.
    fn may_stop_short(&self) -> bool {
        let net = self.net.borrow();
        let pipe = &net.wires[self.wire].pipes[self.side];
        pipe.descriptors.front().is_some_and(|(at, _)| *at == pipe.read)
    }

    fn write_with(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        if !self.is_same_host() {
            return self.write(bytes);
        }
        let at = self.net.borrow().wires[self.wire].pipes[1 - self.side].written;
        let count = self.write(bytes)?;
        let descriptor = descriptor.try_clone_to_owned()?;
        self.net.borrow_mut().wires[self.wire].pipes[1 - self.side]
            .descriptors
            .push_back((at, descriptor));
        Ok(count)
    }

    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.net.borrow_mut().wires[self.wire].pipes[self.side].taken.pop_front()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.finish();
        let mut net = self.net.borrow_mut();
        net.wires[self.wire].ends[self.side].gone = true;
        // The kernel closes descriptors that nobody can take any more.
        let pipe = &mut net.wires[self.wire].pipes[self.side];
        pipe.descriptors.clear();
        pipe.taken.clear();
        // The other end may wait for room, and no read will make any.
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
        let Net { capacity, wires, armed, struck, .. } = &mut *net;
        let wire = &mut wires[self.wire];
        if wire.ends[other].gone {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let pipe = &mut wire.pipes[other];
        let mut total = 0;
        for slice in slices {
            let count = slice.len().min(pipe.room(*capacity));
            match &mut pipe.frames {
                None => pipe.under_way.extend(&slice[..count]),
                Some(frames) => {
                    let done = frames.pass(&slice[..count], armed, &mut pipe.under_way);
                    *struck = done.or(*struck);
                }
            }
            total += count;
        }
        pipe.written += total;
        if pipe.has_ended() {
            net.tell(self.wire, other, true, false);
            return Ok(total);
        }
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
