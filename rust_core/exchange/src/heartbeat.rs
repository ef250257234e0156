//! A thread that sends and receives heartbeats, independent of the Python interpreter.
//!
//! A user's function may hold the GIL for minutes, so a Python thread can neither send heartbeats in
//! time nor receive them. A beat is one byte of any value. The peer has been authenticated before its
//! socket comes here. Where its connection has TLS, so have the beats: bytes of others are none.
//!
//! Decision: ADR 0007.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headgate_memory::{Process, lock};
use headgate_protocol::{HEARTBEAT_INTERVAL, HeartbeatMonitor};
use headgate_tls::{TlsSession, TlsStream};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::descriptors;
use crate::error::Result;
use crate::threads;

const BEAT: [u8; 1] = [0];
/// Most reads of one socket in a round, so that a peer that floods does not hold up the others.
const MAX_READS: usize = 16;

#[derive(Default)]
struct Targets {
    monitor: HeartbeatMonitor,
    sockets: BTreeMap<u64, Socket>,
    number: u64,
}

enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

#[derive(Default)]
struct Shared {
    targets: Mutex<Targets>,
    silent: AtomicUsize,
    closing: AtomicBool,
}

/// Sends heartbeats to any number of peers and watches theirs, in one thread that never blocks on one.
///
/// Sockets arrive through a Unix socket, the door: a descriptor passed by `SCM_RIGHTS` becomes an
/// `OwnedFd` without `unsafe`, wherever it came from.
pub struct HeartbeatManager {
    shared: Arc<Shared>,
    owner: Process,
    running: Mutex<Option<Running>>,
}

/// The thread and the two ends of the door, until the manager is closed.
struct Running {
    inside: UnixStream,
    outside: UnixStream,
    thread: JoinHandle<()>,
}

impl HeartbeatManager {
    /// Starts the thread, which sleeps while there is no target.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub fn new() -> Result<Self> {
        let pair = UnixStream::pair();
        let (inside, outside) =
            pair.map_err(|error| descriptors::refused("cannot start the heartbeats", error))?;
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("headgate-beat".to_owned()).stack_size(128 * 1024);
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        let thread =
            thread.map_err(|error| threads::refused("heartbeat thread headgate-beat", error))?;
        let running = Mutex::new(Some(Running { inside, outside, thread }));
        Ok(Self { shared, owner: Process::current(), running })
    }

    /// Returns a new descriptor of the door. The caller owns it and sends sockets through it.
    ///
    /// # Errors
    /// When the process has no descriptors left; in a forked child, after [`close`](Self::close).
    pub fn door(&self) -> io::Result<OwnedFd> {
        self.running(|running| running.outside.try_clone().map(OwnedFd::from))?
    }

    /// Takes the connected socket that was sent through the door and watches its peer. Returns the number
    /// of the new target.
    ///
    /// # Errors
    /// When no socket was sent; in a forked child, after [`close`](Self::close).
    pub fn monitor(&self, timeout: Duration, tls: Option<TlsSession>) -> io::Result<u64> {
        self.running(|running| {
            let socket = TcpStream::from(receive(&running.inside)?);
            socket.set_nonblocking(true)?;
            let socket = match tls {
                Some(session) => Socket::Tls(Box::new(session.over(socket))),
                None => Socket::Tcp(socket),
            };
            let number = lock(&self.shared.targets).add(socket, timeout);
            running.thread.thread().unpark();
            Ok(number)
        })?
    }

    /// Stops watching a target and closes its socket.
    ///
    /// # Errors
    /// In a forked child, after [`close`](Self::close).
    pub fn unmonitor(&self, target: u64) -> io::Result<()> {
        self.running(|_| {
            let mut targets = lock(&self.shared.targets);
            targets.monitor.unmonitor(target);
            targets.sockets.remove(&target);
            self.shared.silent.store(targets.monitor.num_silent(), Ordering::Release);
        })
    }

    /// Returns the number of silent targets; takes no lock.
    #[must_use]
    pub fn num_silent(&self) -> usize {
        self.shared.silent.load(Ordering::Acquire)
    }

    /// Returns the time for which a target has been silent, if it counts as lost.
    ///
    /// # Errors
    /// In a forked child, after [`close`](Self::close).
    pub fn silence(&self, target: u64) -> io::Result<Option<Duration>> {
        self.running(|_| lock(&self.shared.targets).monitor.silence(target))
    }

    /// Ends the thread and closes all sockets; in a forked child it does nothing.
    pub fn close(&self) {
        if self.owner != Process::current() {
            return;
        }
        self.shared.closing.store(true, Ordering::Release);
        let running = lock(&self.running).take();
        if let Some(Running { thread, .. }) = running {
            thread.thread().unpark();
            // The thread does not panic; had it done so, it would have ended all the same.
            let _ = thread.join();
        }
        *lock(&self.shared.targets) = Targets::default();
    }

    /// Calls a function unless the manager is closed. A forked child must not even take its locks.
    fn running<T>(&self, call: impl FnOnce(&Running) -> T) -> io::Result<T> {
        let (owner, child) = (self.owner, Process::current());
        if owner != child {
            let (owner, child) = (owner.id(), child.id());
            let text =
                format!("the heartbeats belong to process {owner}, this is its child {child}");
            return Err(io::Error::other(text));
        }
        let running = lock(&self.running);
        let running =
            running.as_ref().ok_or_else(|| io::Error::other("the heartbeats are closed"))?;
        Ok(call(running))
    }
}

impl Drop for HeartbeatManager {
    fn drop(&mut self) {
        if self.owner == Process::current() {
            self.close();
        } else if let Ok(running) = self.running.get_mut() {
            // The thread does not exist in a forked child, so it cannot be detached.
            std::mem::forget(running.take());
        }
    }
}

impl Targets {
    fn add(&mut self, socket: Socket, timeout: Duration) -> u64 {
        self.number += 1;
        self.monitor.monitor(self.number, timeout);
        self.sockets.insert(self.number, socket);
        self.number
    }
}

impl Shared {
    fn run(&self) {
        while !self.closing.load(Ordering::Acquire) {
            if !self.round() {
                thread::park();
                continue;
            }
            let due = Instant::now() + HEARTBEAT_INTERVAL;
            while !self.closing.load(Ordering::Acquire) {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                thread::park_timeout(left);
            }
        }
    }

    /// Reads from all targets and sends them a beat; returns false if there are none.
    fn round(&self) -> bool {
        let mut targets = lock(&self.targets);
        let Targets { monitor, sockets, .. } = &mut *targets;
        for (target, socket) in sockets.iter_mut() {
            let heard = match socket {
                Socket::Tcp(socket) => exchange_beats(socket),
                Socket::Tls(stream) => exchange_beats(stream),
            };
            if heard {
                monitor.heard(*target);
            }
        }
        monitor.end_round();
        self.silent.store(monitor.num_silent(), Ordering::Release);
        !monitor.is_idle()
    }
}

/// Returns true if the peer sent a beat, and sends it one.
fn exchange_beats(socket: &mut (impl Read + Write)) -> bool {
    let heard = has_spoken(socket);
    // A full buffer or a broken connection only loses this beat.
    let _ = socket.write(&BEAT).and_then(|_| socket.flush());
    heard
}

/// Returns true if any byte came; a connection that has ended yields none.
fn has_spoken(socket: &mut impl Read) -> bool {
    let mut scratch = [0; 512];
    let mut heard = false;
    for _ in 0..MAX_READS {
        match socket.read(&mut scratch) {
            Ok(0) => break,
            Ok(_) => heard = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    heard
}

fn receive(door: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        door,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    passed.ok_or_else(|| io::Error::other("no socket came through the door"))
}
