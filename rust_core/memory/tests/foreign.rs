#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]
//! Buffers of pieces of foreign memory: the charge, and the thread that frees the memory.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headgate_memory::{Buffer, ForeignMemory, GlobalPool, LocalPoolOptions, RequestError};

/// Sends a message when it is dropped.
struct Owner(Sender<()>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        b"theirs"
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_charge_ends_with_its_buffers_and_the_memory_waits_for_its_owner() {
    let (gone, released) = channel();
    let global = GlobalPool::new(8, 64);
    let pool = global.create_local_pool(1, 8).unwrap();
    let memory = Arc::<ForeignMemory>::default();
    let charge = Arc::new(pool.request_charge(None, 3, Duration::ZERO).unwrap().unwrap());
    let pieces = vec![Bytes::from_static(b"own "), Bytes::from_owner(Owner(gone))];
    let first = Buffer::of_pieces(pieces, Arc::clone(&charge), Arc::clone(&memory));
    let second = Buffer::of_pieces(vec![Bytes::from_static(b"x")], charge, Arc::clone(&memory));
    assert_eq!((first.len(), first.chunks().count(), second.len()), (10, 2, 1));
    let other = first.clone();
    drop((first, second));
    assert_eq!(global.stats().held, 3);
    thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!(global.stats().held, 0);
    assert!(released.try_recv().is_err(), "the memory waits for its owner's thread");
    memory.release();
    released.try_recv().unwrap();
}

#[test]
fn the_caller_frees_pieces_that_it_takes() {
    let (gone, released) = channel();
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(1, 4).unwrap();
    let memory = Arc::<ForeignMemory>::default();
    let charge = Arc::new(pool.request_charge(Some(0), 4, Duration::ZERO).unwrap().unwrap());
    let pieces = vec![Bytes::from_owner(Owner(gone))];
    let buffer = Buffer::of_pieces(pieces, charge, memory);
    let shared = buffer.clone();
    assert!(buffer.pin() && !buffer.is_pooled() && buffer.place().is_none());
    let first = buffer.into_pieces().unwrap();
    assert_eq!(global.stats().held, 4);
    let second = shared.into_pieces().unwrap();
    assert_eq!(global.stats().held, 0);
    drop(first);
    assert!(released.try_recv().is_err());
    drop(second);
    released.try_recv().unwrap();
}

#[test]
fn pieces_are_copied_together_once_and_counted() {
    let memory = Arc::<ForeignMemory>::default();
    let pool = GlobalPool::new(1, 64).create_local_pool(1, 1).unwrap();
    let charge = Arc::new(pool.request_charge(None, 1, Duration::ZERO).unwrap().unwrap());
    let pieces = ["in ", "", "pieces"].map(|text| Bytes::from_static(text.as_bytes()));
    let buffer = Buffer::of_pieces(pieces.to_vec(), charge, Arc::clone(&memory));
    assert_eq!(memory.joined(), 0);
    assert_eq!(buffer.as_slice(), b"in pieces");
    assert_eq!(buffer.slice(1, 5).as_slice(), b"n pi");
    assert_eq!(buffer.slice(0, 9).chunks().count(), 3);
    assert_eq!(&buffer.clone().into_bytes()[..], b"in pieces");
    assert_eq!(memory.joined(), 9);
    assert!(buffer.into_segment().is_err());
}

#[test]
fn a_charge_is_all_or_nothing() {
    let global = GlobalPool::new(6, 64);
    let options = LocalPoolOptions { max_overdraft: 3, ..LocalPoolOptions::new(1, 5) };
    let pool = global.create_local_pool_with(&options).unwrap();
    assert!(pool.request_charge(None, 6, Duration::ZERO).unwrap().is_none(), "never by overdraft");
    let segment = pool.try_request().unwrap().unwrap();
    assert!(pool.request_charge(None, 5, Duration::ZERO).unwrap().is_none());
    assert_eq!(global.stats().held, 1);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.request_charge(None, 5, Duration::from_secs(30)));
        drop(segment);
        assert!(waiting.join().unwrap().unwrap().is_some());
    });
    assert_eq!(global.stats().held, 0);
    // Segments reserved for another pool are not free.
    let other = global.create_local_pool(3, 3).unwrap();
    assert!(other.reserve(3, Duration::ZERO).unwrap());
    assert!(pool.request_charge(None, 4, Duration::ZERO).unwrap().is_none());
    assert!(pool.request_charge(None, 3, Duration::ZERO).unwrap().is_some());
    assert!(other.request_charge(None, 3, Duration::ZERO).unwrap().is_some());
    other.close();
    let closed = other.request_charge(None, 1, Duration::ZERO);
    assert!(matches!(closed, Err(RequestError::Closed)));
}
