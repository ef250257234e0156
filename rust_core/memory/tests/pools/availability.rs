//! Availability of a pool, and the wake-up of its waiters (spec 1.5, 1.6).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headgate_memory::{Buffer, GlobalPool, LocalPool, LocalPoolOptions, RequestError};

use crate::{Count, PATIENCE, assert_all_returned, take, wait_until};

fn with_overdraft(global: &GlobalPool, max: usize, max_overdraft: usize) -> LocalPool {
    let options = LocalPoolOptions { max_overdraft, ..LocalPoolOptions::new(1, max) };
    global.create_local_pool_with(&options).unwrap()
}

fn resize(pool: &LocalPool, size: usize) {
    pool.set_minimum(1, size, 0).unwrap();
    assert_eq!(pool.usage().0, size);
}

#[test]
fn spec_1_07_available_until_the_last_segment() {
    let global = GlobalPool::new(20, 64);
    let pool = global.create_local_pool(1, 5).unwrap();
    let mut taken = Vec::new();
    for held in 0..5 {
        assert!(pool.is_available(), "{held} of 5");
        assert_eq!(global.stats().held, held, "segments are taken only on request");
        taken.append(&mut take(&pool, 1));
    }
    assert!(!pool.is_available());
    assert!(pool.try_request().unwrap().is_none());
    taken.pop();
    assert!(pool.is_available());
    drop(taken);
    assert_all_returned(&global);
}

#[test]
fn spec_1_08_overdraft_becomes_ordinary_as_the_pool_grows() {
    let global = GlobalPool::new(20, 64);
    let pool = with_overdraft(&global, 5, 2);
    let mut taken = take(&pool, 5);
    assert!(!pool.is_available());
    taken.append(&mut take(&pool, 2));
    assert!(pool.try_request().unwrap().is_none());
    resize(&pool, 6);
    assert!(!pool.is_available());
    taken.append(&mut take(&pool, 1));
    assert_eq!(pool.usage(), (6, 8), "the pool grew by one segment and took one more");
    taken.pop();
    resize(&pool, 7);
    assert!(!pool.is_available());
    resize(&pool, 8);
    assert!(pool.is_available());
    taken.append(&mut take(&pool, 3));
    assert!(pool.try_request().unwrap().is_none());
    // After a shrink the overdraft can exceed its limit.
    resize(&pool, 4);
    taken.truncate(6);
    assert!(pool.try_request().unwrap().is_none());
    taken.truncate(5);
    assert!(pool.try_request().unwrap().is_some());
    drop(taken);
    assert_all_returned(&global);
}

#[test]
fn overdraft_leaves_other_pools_their_segments() {
    for (min, max) in [(2, 2), (0, 2)] {
        let global = GlobalPool::new(8, 64);
        let other = global.create_local_pool(min, max).unwrap();
        let pool = with_overdraft(&global, 3, 5);
        let overdrawn = take(&pool, 6);
        assert!(pool.try_request().unwrap().is_none(), "two are left for the other pool");
        let theirs = take(&other, 2);
        drop((overdrawn, theirs));
        assert_all_returned(&global);
    }
}

#[test]
fn a_wait_for_a_segment_ends_after_the_overdraft_is_returned() {
    let global = GlobalPool::new(8, 64);
    let pool = with_overdraft(&global, 2, 2);
    let mut taken = take(&pool, 2);
    taken.push(pool.request(PATIENCE).unwrap().unwrap());
    taken.push(pool.request(PATIENCE).unwrap().unwrap());
    assert!(pool.request(Duration::from_millis(1)).unwrap().is_none());
    let listener = Arc::new(Count::default());
    assert!(pool.request_or_listen(|| listener.clone()).unwrap().is_none());
    for expected in [0, 0, 1] {
        taken.pop();
        assert_eq!(listener.calls(), expected, "{} are out", taken.len());
    }
    drop(taken);
    assert_all_returned(&global);
}

#[test]
fn spec_1_10_one_saturated_subpartition_makes_the_pool_unavailable() {
    let global = GlobalPool::new(20, 64);
    let options = LocalPoolOptions {
        num_subpartitions: 3,
        max_buffers_per_channel: 2,
        ..LocalPoolOptions::new(1, 10)
    };
    let pool = global.create_local_pool_with(&options).unwrap();
    let for_channel = |channel| pool.try_request_for(Some(channel)).unwrap().unwrap();
    let mut first = vec![for_channel(0)];
    assert!(pool.is_available());
    first.push(for_channel(0));
    assert!(!pool.is_available());
    let listener = Arc::new(Count::default());
    assert!(!pool.available_or_listen(|| listener.clone()));
    let mut third = vec![for_channel(2), for_channel(2), for_channel(2)];
    first.push(for_channel(0));
    let of_none = take(&pool, 1);
    first.truncate(1);
    assert!(!pool.is_available(), "subpartition 2 still has three");
    third.truncate(2);
    assert!(!pool.is_available());
    assert!(!pool.wait_available(Duration::from_millis(1)).unwrap());
    assert_eq!(listener.calls(), 0);
    third.pop();
    assert!(pool.is_available());
    assert_eq!(listener.calls(), 1);
    assert!(pool.wait_available(Duration::ZERO).unwrap());
    drop((first, third, of_none));
    assert_eq!(listener.calls(), 1, "one call per registration");
    assert_all_returned(&global);
}

#[test]
fn a_pinned_segment_does_not_count_for_its_subpartition() {
    let global = GlobalPool::new(8, 64);
    let options = LocalPoolOptions {
        num_subpartitions: 1,
        max_buffers_per_channel: 1,
        ..LocalPoolOptions::new(1, 4)
    };
    let pool = global.create_local_pool_with(&options).unwrap();
    let buffer = Buffer::freeze(pool.try_request_for(Some(0)).unwrap().unwrap(), 8);
    assert!(!pool.is_available());
    assert!(buffer.pin());
    assert!(pool.is_available());
    drop(buffer);
    assert!(pool.is_available());
    assert_all_returned(&global);
}

#[test]
fn a_pool_that_lost_its_segment_is_unavailable_until_it_returns() {
    let global = GlobalPool::new(1, 64);
    let [one, other] = [0, 1].map(|_| global.create_local_pool(0, 1).unwrap());
    let lucky = if one.usage().0 == 1 { &one } else { &other };
    assert!(lucky.is_available());
    let listener = Arc::new(Count::default());
    let taken = take(lucky, 1);
    assert!(!lucky.available_or_listen(|| listener.clone()));
    drop(taken);
    assert_eq!(listener.calls(), 1);
    assert_all_returned(&global);
}

#[test]
fn spec_1_14_closing_wakes_every_waiter_and_held_segments_return() {
    let global = GlobalPool::new(4, 64);
    let pool = global.create_local_pool(3, 3).unwrap();
    let out = take(&pool, 3);
    let (for_segment, for_availability) = (Arc::new(Count::default()), Arc::new(Count::default()));
    assert!(pool.request_or_listen(|| for_segment.clone()).unwrap().is_none());
    assert!(!pool.available_or_listen(|| for_availability.clone()));
    thread::scope(|scope| {
        let waits = [
            scope.spawn(|| pool.wait_available(PATIENCE).map(|_| ())),
            scope.spawn(|| pool.request(PATIENCE).map(|_| ())),
        ];
        pool.close();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(RequestError::Closed));
        }
    });
    pool.close();
    assert_eq!((for_segment.calls(), for_availability.calls()), (1, 1));
    assert!(pool.is_available(), "a closed pool needs no wait");
    assert!(pool.available_or_listen(|| unreachable!("nothing to listen for")));
    assert_eq!(pool.try_request().unwrap_err(), RequestError::Closed);
    assert_eq!(global.stats().held, 3);
    drop(out);
    assert_all_returned(&global);
    assert_eq!(global.stats().idle, 3);
    global.close();
    assert_eq!(global.stats().idle, 0);
    assert!(global.create_local_pool(1, 1).is_err());
}

#[test]
fn every_way_to_become_available_wakes_a_waiter() {
    let change: [fn(&LocalPool, &mut Vec<Buffer>, &GlobalPool); 4] = [
        |_, out, _| drop(out.pop()),
        |_, out, _| assert!(out[0].pin()),
        |pool, _, _| pool.set_minimum(1, 4, 0).unwrap(),
        |pool, _, _| pool.close(),
    ];
    for change in change {
        let global = GlobalPool::new(8, 64);
        let pool = global.create_local_pool(1, 2).unwrap();
        let freeze = |segment| Buffer::freeze(segment, 8);
        let mut out: Vec<_> = take(&pool, 2).into_iter().map(freeze).collect();
        let listener = Arc::new(Count::default());
        assert!(!pool.available_or_listen(|| listener.clone()));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.wait_available(PATIENCE));
            change(&pool, &mut out, &global);
            assert!(matches!(waiting.join().unwrap(), Ok(true) | Err(RequestError::Closed)));
        });
        wait_until(|| listener.calls() == 1);
        drop(out);
        assert_all_returned(&global);
    }
}
