//! Unpooled segments and reservations: guarantee, wait and return (spec 1.3, 1.5).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headgate_memory::{
    Buffer, GlobalPool, LocalPool, PoolTooSmall, PooledSegment, RequestError, UnpooledError,
};

use crate::{PATIENCE, assert_all_returned, take, wait_until};

fn unpooled(global: &GlobalPool, count: usize) -> Vec<PooledSegment> {
    global.request_unpooled(count, PATIENCE, || false).unwrap()
}

fn sizes(pools: &[&LocalPool]) -> Vec<usize> {
    pools.iter().map(|pool| pool.usage().0).collect()
}

fn free(global: &GlobalPool) -> usize {
    let stats = global.stats();
    stats.total - stats.held - stats.pinned - stats.reserved
}

#[test]
fn spec_1_04_unpooled_segments_shrink_the_pools_until_they_are_returned() {
    let global = GlobalPool::new(10, 64);
    let first = global.create_local_pool(1, 10).unwrap();
    assert_eq!(sizes(&[&first]), [10]);
    let two = unpooled(&global, 2);
    assert_eq!(sizes(&[&first]), [8]);
    let second = global.create_local_pool(1, 10).unwrap();
    assert_eq!(sizes(&[&first, &second]), [4, 4]);
    let four = unpooled(&global, 2);
    assert_eq!(sizes(&[&first, &second]), [3, 3]);
    let six = unpooled(&global, 2);
    assert_eq!((sizes(&[&first, &second]), free(&global)), (vec![2, 2], 4));
    assert_eq!(global.stats().local_pools, 2, "unpooled segments do not count as a pool");
    drop(six);
    assert_eq!((sizes(&[&first, &second]), free(&global)), (vec![3, 3], 6));
    drop(four);
    assert_eq!((sizes(&[&first, &second]), free(&global)), (vec![4, 4], 8));
    drop(two);
    assert_eq!((sizes(&[&first, &second]), free(&global)), (vec![5, 5], 10));
    drop(first);
    assert_eq!(sizes(&[&second]), [10]);
    assert_all_returned(&global);
}

#[test]
fn spec_1_11_a_refused_request_changes_nothing() {
    let global = GlobalPool::new(10, 64);
    global.create_local_pool(11, 20).unwrap_err();
    let pool = global.create_local_pool(8, 8).unwrap();
    let refused = global.request_unpooled(3, PATIENCE, || false).unwrap_err();
    let numbers = PoolTooSmall { requested: 3, available: 2, total: 10, pinned: 0 };
    assert_eq!(refused, UnpooledError::TooSmall(numbers));
    assert!(refused.to_string().contains("3 segments requested, 2 of 10"));
    drop(unpooled(&global, 2));
    assert!(unpooled(&global, 0).is_empty());
    drop(pool);
    assert_all_returned(&global);
}

#[test]
fn an_unpooled_request_waits_for_borrowed_segments() {
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(1, 4).unwrap();
    let mut borrowed = take(&pool, 4);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| unpooled(&global, 3));
        wait_until(|| pool.usage().0 == 1);
        for _ in 0..3 {
            assert!(
                pool.try_request().unwrap().is_none(),
                "the segment is guaranteed to the request"
            );
            borrowed.pop();
        }
        assert_eq!(waiting.join().unwrap().len(), 3);
    });
    drop(borrowed);
    assert_eq!(pool.usage(), (4, 0));
    assert_all_returned(&global);
}

#[test]
fn a_partial_unpooled_request_is_undone_on_timeout_interrupt_and_close() {
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(1, 4).unwrap();
    let borrowed = take(&pool, 3);
    let timeout = Duration::from_millis(60);
    let late = global.request_unpooled(2, timeout, || false).unwrap_err();
    assert_eq!(late, UnpooledError::TimedOut { requested: 2, collected: 1, timeout });
    assert!(late.to_string().contains("0.06 s"));
    assert_eq!((pool.usage(), global.stats().held), ((4, 3), 3));

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| global.request_unpooled(2, Duration::MAX, || stop.load(Ordering::Acquire)));
        // The request now waits and holds one segment.
        wait_until(|| global.stats().held == 4);
        stop.store(true, Ordering::Release);
        assert_eq!(waiting.join().unwrap().unwrap_err(), UnpooledError::Interrupted);
        assert_eq!((pool.usage(), global.stats().held), ((4, 3), 3));

        let waiting = scope.spawn(|| global.request_unpooled(2, Duration::MAX, || false));
        wait_until(|| global.stats().held == 4);
        global.close();
        let closed = UnpooledError::Request(RequestError::Closed);
        assert_eq!(waiting.join().unwrap().unwrap_err(), closed);
    });
    drop(borrowed);
    assert_all_returned(&global);
    assert_eq!(global.stats().idle, 0);
}

#[test]
fn pinning_an_unpooled_segment_ends_its_guarantee() {
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(1, 4).unwrap();
    let segment = unpooled(&global, 1).pop().unwrap();
    let buffer = Buffer::freeze(segment, 8);
    assert!(buffer.pin());
    assert_eq!((global.stats().held, global.stats().pinned, pool.usage().0), (0, 1, 3));
    drop(buffer);
    assert_eq!(pool.usage().0, 4);
    assert_all_returned(&global);
}

#[test]
fn reserved_segments_are_free_whatever_other_pools_do() {
    let global = GlobalPool::new(6, 64);
    let greedy = global.create_local_pool(1, 6).unwrap();
    let pool = global.create_local_pool(3, 3).unwrap();
    assert!(pool.reserve(2, Duration::ZERO).unwrap());
    assert_eq!(global.stats().reserved, 2);
    drop(pool.try_request().unwrap().unwrap());
    assert_eq!(global.stats().reserved, 2, "a returned segment is reserved again");
    let lent = take(&greedy, 3);
    let ours = take(&pool, 3);
    assert_eq!((global.stats().reserved, free(&global)), (0, 0));
    drop((lent, ours));
    pool.close();
    assert_eq!(global.stats().reserved, 0);
    assert_all_returned(&global);
}

#[test]
fn reserve_waits_for_borrowed_segments_and_is_undone_on_timeout() {
    let global = GlobalPool::new(4, 64);
    let greedy = global.create_local_pool(0, 4).unwrap();
    let mut lent = take(&greedy, 3);
    let pool = global.create_local_pool(2, 2).unwrap();
    assert!(!pool.reserve(2, Duration::from_millis(20)).unwrap());
    assert_eq!(global.stats().reserved, 0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.reserve(2, PATIENCE));
        wait_until(|| global.stats().reserved == 1);
        lent.pop();
        assert!(waiting.join().unwrap().unwrap());
        assert_eq!(global.stats().reserved, 2);
    });
    drop(pool);
    assert_eq!(global.stats().reserved, 0);
    drop(lent);
    assert_all_returned(&global);
}

#[test]
fn closing_cancels_a_reserve() {
    let global = GlobalPool::new(2, 64);
    let greedy = global.create_local_pool(0, 2).unwrap();
    let lent = take(&greedy, 1);
    let pool = global.create_local_pool(2, 2).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.reserve(2, PATIENCE));
        wait_until(|| global.stats().reserved == 1);
        pool.close();
        assert_eq!(waiting.join().unwrap().unwrap_err(), RequestError::Closed);
    });
    drop(lent);
    assert_all_returned(&global);
}

#[test]
#[should_panic(expected = "reservation of 3 segments exceeds the minimum of 2")]
fn a_reservation_above_the_minimum_panics() {
    let global = GlobalPool::new(8, 64);
    let _ = global.create_local_pool(2, 8).unwrap().reserve(3, Duration::ZERO);
}

#[test]
fn the_usage_of_the_budget_is_a_number() {
    let global = GlobalPool::new(10, 64);
    assert_eq!(global.stats().requested_percent, 0);
    let bounded = global.create_local_pool(1, 8).unwrap();
    assert_eq!(global.stats().requested_percent, 80);
    let unbounded = global.create_local_pool(1, usize::MAX).unwrap();
    let segments = unpooled(&global, 2);
    assert_eq!(global.stats().requested_percent, 110);
    drop((bounded, unbounded));
    assert_eq!(global.stats().requested_percent, 20);
    drop(segments);
    assert_eq!(global.stats().requested_percent, 0);
}
