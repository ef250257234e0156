//! What two threads share in a pool, in all orders: no wake-up is lost, every segment comes home.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p headgate-memory --lib model::`. In a model a timed wait
//! never times out, so a lost wake-up is a deadlock, which loom reports.

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

fn assert_home(global: &GlobalPool) {
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
        // It may take it back before the other thread does, and must leave it to that one then.
        drop(pool.request(Duration::MAX).expect("open"));
        waiter.join().expect("no panic");
        assert_home(&global);
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
        assert_home(&global);
    });
}

#[test]
fn a_listener_is_told_or_the_segment_was_there() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let recycler = thread::spawn(move || drop(held));
        let told = Arc::new(Count::default());
        let taken = pool.request_or_listen(|| told.clone()).expect("open");
        recycler.join().expect("no panic");
        assert_eq!(told.0.load(Ordering::SeqCst), usize::from(taken.is_none()));
        drop(taken);
        assert!(pool.try_request().expect("open").is_some());
        assert_home(&global);
    });
}

#[test]
fn a_pool_becomes_available_when_the_last_saturated_subpartition_comes_down() {
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
            // A segment that the caller keeps counts for no subpartition either.
            thread::spawn(move || {
                let buffer = Buffer::freeze(second, 1);
                assert!(buffer.pin());
            }),
        ];
        let told = Arc::new(Count::default());
        let available = pool.available_or_listen(|| told.clone());
        assert!(pool.wait_available(Duration::MAX).expect("open"));
        for recycler in recyclers {
            recycler.join().expect("no panic");
        }
        assert_eq!(told.0.load(Ordering::SeqCst), usize::from(!available));
        drop(pool);
        assert_home(&global);
    });
}

#[test]
fn closing_ends_every_wait_and_what_is_out_comes_home() {
    loom::model(|| {
        let (global, pool) = pool_of(1);
        let held = pool.try_request().expect("open").expect("free");
        let waiting = Arc::clone(&pool);
        let waiter = thread::spawn(move || match waiting.request(Duration::MAX) {
            Ok(segment) => assert!(segment.is_some()),
            Err(error) => assert_eq!(error, RequestError::Closed),
        });
        let recycler = thread::spawn(move || drop(held));
        let told = Arc::new(Count::default());
        let available = pool.available_or_listen(|| told.clone());
        pool.close();
        waiter.join().expect("no panic");
        recycler.join().expect("no panic");
        assert_eq!(told.0.load(Ordering::SeqCst), usize::from(!available));
        assert_home(&global);
    });
}

#[test]
fn what_is_reserved_too_late_is_left_to_others() {
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
        assert_home(&global);
        assert_eq!(lender.usage(), (2, 0));
    });
}
