//! The heartbeat thread, against a peer that the test plays.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use headgate_exchange::HeartbeatManager;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const TIMEOUT: Duration = Duration::from_secs(2);

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Sends a socket through the door and drops it.
fn hand_over(door: &OwnedFd, socket: TcpStream) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(door, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
}

fn watch(manager: &HeartbeatManager) -> (TcpStream, u64) {
    let (peer, socket) = connected();
    peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    hand_over(&manager.door().unwrap(), socket);
    (peer, manager.monitor(TIMEOUT, None).unwrap())
}

/// Answers each beat with one of its own, so that both ends keep step.
fn keep_step(peer: &mut TcpStream, beats: usize) {
    for _ in 0..beats {
        peer.read_exact(&mut [0]).unwrap();
        peer.write_all(&[0]).unwrap();
    }
}

fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "the condition did not come true within 30 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_peer_that_stops_answering_is_silent() {
    let manager = HeartbeatManager::new().unwrap();
    let (mut peer, target) = watch(&manager);
    let (mut other, silent) = watch(&manager);
    keep_step(&mut peer, 8);
    // The other peer did not answer for eight beats; its limit is four.
    assert!(manager.silence(silent).unwrap().unwrap() >= TIMEOUT);
    assert_eq!(manager.silence(target).unwrap(), None);
    assert_eq!(manager.num_silent(), 1);
    // A silent peer stays silent, although it answers again.
    keep_step(&mut other, 4);
    assert!(manager.silence(silent).unwrap().is_some());
    manager.unmonitor(silent).unwrap();
    until(|| manager.silence(target).unwrap().is_some());
    assert_eq!(manager.num_silent(), 1);
}

#[test]
fn a_peer_that_hangs_up_is_silent_at_its_limit() {
    let manager = HeartbeatManager::new().unwrap();
    let (peer, target) = watch(&manager);
    drop(peer);
    until(|| manager.silence(target).unwrap().is_some());
}

#[test]
fn a_peer_that_never_reads_delays_no_other() {
    let manager = HeartbeatManager::new().unwrap();
    let (deaf, mut socket) = connected();
    socket.set_nonblocking(true).unwrap();
    // Fills the buffers of this connection, so that no beat fits.
    while socket.write(&[0; 65_536]).is_ok() {}
    hand_over(&manager.door().unwrap(), socket);
    manager.monitor(TIMEOUT, None).unwrap();
    let (mut peer, target) = watch(&manager);
    keep_step(&mut peer, 6);
    assert_eq!(manager.silence(target).unwrap(), None);
    drop(deaf);
}

#[test]
fn closing_ends_the_thread_and_the_connections() {
    let manager = HeartbeatManager::new().unwrap();
    let (mut peer, target) = watch(&manager);
    keep_step(&mut peer, 1);
    manager.close();
    manager.close();
    // The stream ends, or is reset if the last beat was still unread.
    while peer.read(&mut [0]).is_ok_and(|count| count > 0) {}
    assert!(manager.silence(target).unwrap_err().to_string().contains("closed"));
    assert!(manager.monitor(TIMEOUT, None).unwrap_err().to_string().contains("closed"));
}

#[test]
fn a_target_needs_a_socket_through_the_door() {
    let manager = HeartbeatManager::new().unwrap();
    assert!(manager.monitor(TIMEOUT, None).is_err());
    // A byte without a socket is not enough.
    let door = std::os::unix::net::UnixStream::from(manager.door().unwrap());
    (&door).write_all(&[0]).unwrap();
    let error = manager.monitor(TIMEOUT, None).unwrap_err();
    assert!(error.to_string().contains("no socket came"), "{error}");
    let (mut peer, _) = watch(&manager);
    keep_step(&mut peer, 1);
}
