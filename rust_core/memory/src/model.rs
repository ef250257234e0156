//! Loom models of the pools: in every order of two or three threads, no wake-up is lost and every
//! segment is returned.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p headgate-memory --lib model::`. A timed wait
//! never times out under loom, so a lost wake-up is a deadlock, which loom reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::thread;

use crate::buffer::Buffer;
use crate::error::RequestError;
use crate::listener::SegmentListener;
use crate::local_pool::LocalPool;
use crate::options::LocalPoolOptions;
use crate::pool::GlobalPool;

#[derive(Default)]
struct Count(AtomicUsize);

impl SegmentListener for Count {
    fn segment_available(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn pool_of(total: usize) -> (GlobalPool, Arc<LocalPool>) {
    let global = GlobalPool::new(total, 64);
    let pool = global.create_local_pool(1, total).expect("fits");
    (global, Arc::new(pool))
}

fn assert_all_returned(global: &GlobalPool) {
    let stats = global.stats();
    assert_eq!((stats.held, stats.pinned, stats.reserved), (0, 0, 0));
}

#[test]
fn a_blocked_request_gets_what_is_recycled() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let waiting = Arc::clone(&pool);
        let waiter = thread::spawn(move || drop(waiting.request(Duration::MAX)));
        drop(held);
        // This thread may take the segment first; returning it must wake the other thread.
        drop(pool.request(Duration::MAX).expect("open"));
        waiter.join().expect("no panic");
        assert_all_returned(&global);
    });
}

#[test]
fn a_blocked_request_gets_what_another_pool_gives_back() {
    loom::model(|| {
        let global = GlobalPool::new(1, 64);
        let lender = global.create_local_pool(0, 1).expect("fits");
        let lent = lender.try_request().expect("open").expect("free");
        let pool = global.create_local_pool(1, 1).expect("fits");
        let waiter = thread::spawn(move || {
            assert!(pool.request(Duration::MAX).expect("open").is_some());
        });
        drop(lent);
        waiter.join().expect("no panic");
        assert_all_returned(&global);
    });
}

#[test]
fn a_listener_is_called_or_the_request_gets_the_segment() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let recycler = thread::spawn(move || drop(held));
        let calls = Arc::new(Count::default());
        let taken = pool.request_or_listen(|| calls.clone()).expect("open");
        recycler.join().expect("no panic");
        assert_eq!(calls.0.load(Ordering::SeqCst), usize::from(taken.is_none()));
        drop(taken);
        assert!(pool.try_request().expect("open").is_some());
        assert_all_returned(&global);
    });
}

#[test]
fn a_pool_is_available_once_no_subpartition_is_saturated() {
    loom::model(|| {
        let global = GlobalPool::new(4, 64);
        let options = LocalPoolOptions {
            num_subpartitions: 2,
            max_buffers_per_channel: 1,
            ..LocalPoolOptions::new(1, 4)
        };
        let pool = global.create_local_pool_with(&options).expect("fits");
        let [first, second] =
            [0, 1].map(|index| pool.try_request_for(Some(index)).expect("open").expect("free"));
        let recyclers = [
            thread::spawn(move || drop(first)),
            // A pinned segment no longer counts for its subpartition.
            thread::spawn(move || {
                let buffer = Buffer::freeze(second, 1);
                assert!(buffer.pin());
            }),
        ];
        let calls = Arc::new(Count::default());
        let available = pool.available_or_listen(|| calls.clone());
        assert!(pool.wait_available(Duration::MAX).expect("open"));
        for recycler in recyclers {
            recycler.join().expect("no panic");
        }
        assert_eq!(calls.0.load(Ordering::SeqCst), usize::from(!available));
        drop(pool);
        assert_all_returned(&global);
    });
}

#[test]
fn a_wake_up_ends_a_wait_for_availability_or_the_next_one() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let woken = Arc::clone(&pool);
        let waker = thread::spawn(move || woken.wake_up());
        assert_eq!(pool.wait_available_or_woken(Duration::MAX).expect("open"), Some(false));
        waker.join().expect("no panic");
        let recycler = thread::spawn(move || drop(held));
        assert_eq!(pool.wait_available_or_woken(Duration::MAX).expect("open"), Some(true));
        recycler.join().expect("no panic");
        assert_all_returned(&global);
    });
}

#[test]
fn closing_ends_every_wait_and_held_segments_return() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let waiting = Arc::clone(&pool);
        let waiter = thread::spawn(move || match waiting.request(Duration::MAX) {
            Ok(segment) => assert!(segment.is_some()),
            Err(error) => assert_eq!(error, RequestError::Closed),
        });
        let recycler = thread::spawn(move || drop(held));
        let calls = Arc::new(Count::default());
        let available = pool.available_or_listen(|| calls.clone());
        pool.close();
        waiter.join().expect("no panic");
        recycler.join().expect("no panic");
        assert_eq!(calls.0.load(Ordering::SeqCst), usize::from(!available));
        assert_all_returned(&global);
    });
}

#[test]
fn a_reservation_after_the_close_is_undone() {
    loom::model(|| {
        let global = GlobalPool::new(2, 64);
        let lender = global.create_local_pool(0, 2).expect("fits");
        let lent = lender.try_request().expect("open").expect("free");
        let pool = Arc::new(global.create_local_pool(2, 2).expect("fits"));
        let reserving = Arc::clone(&pool);
        let reserver = thread::spawn(move || match reserving.reserve(2, Duration::MAX) {
            Ok(reserved) => assert!(reserved),
            Err(error) => assert_eq!(error, RequestError::Closed),
        });
        let recycler = thread::spawn(move || drop(lent));
        pool.close();
        reserver.join().expect("no panic");
        recycler.join().expect("no panic");
        assert_all_returned(&global);
        assert_eq!(lender.usage(), (2, 0));
    });
}
