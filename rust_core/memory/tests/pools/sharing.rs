//! Borrowing, waiting and pinning; at the end every segment is returned.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headgate_memory::{Buffer, GlobalPool, RequestError, Unmapped};

use crate::Count;

#[test]
fn spec_1_05_a_pool_returns_its_excess() {
    let global = GlobalPool::new(1024, 64);
    let first = global.create_local_pool(511, 1024).unwrap();
    let taken: Vec<_> = (0..513).map(|_| first.try_request().unwrap().unwrap()).collect();
    let second = global.create_local_pool(513, 1024).unwrap();
    assert_eq!((first.usage().0, second.usage().0), (511, 513));
    assert!(first.try_request().unwrap().is_none());
    let other: Vec<_> = (0..511).map(|_| second.try_request().unwrap().unwrap()).collect();
    assert!(second.try_request().unwrap().is_none());
    drop(taken.into_iter().next());
    assert!(second.try_request().unwrap().is_some());
    drop(other);
    drop((first, second));
    assert_eq!(global.stats().held, 0);
}

#[test]
fn a_segment_that_cannot_be_mapped_is_an_error_with_the_numbers_of_the_pool() {
    // No address space has room for such a segment.
    let segment_size = 1 << 47;
    let global = GlobalPool::new(4, segment_size);
    let [pool, _other] = [3, 1].map(|max| global.create_local_pool(1, max).unwrap());
    let Err(RequestError::Unmapped(error)) = pool.try_request() else { panic!("it is mapped") };
    let Unmapped { errno: _, held, size, used, total, .. } = error;
    assert_eq!((error.segment_size, held, size, used, total), (segment_size, 0, 3, 0, 4));
    let text = error.to_string();
    assert!(text.contains("holds 0 of 3 segments, all pools together 0 of 4"), "{text}");
}

#[test]
fn a_listener_is_called_once_when_a_segment_is_returned() {
    let global = GlobalPool::new(1, 64);
    let pool = global.create_local_pool(1, 1).unwrap();
    let held = pool.try_request().unwrap().unwrap();
    let listener = Arc::new(Count::default());
    assert!(pool.request_or_listen(|| listener.clone()).unwrap().is_none());
    drop(held);
    assert_eq!(listener.calls(), 1);
    drop(pool.try_request().unwrap());
    assert_eq!(listener.calls(), 1);
}

#[test]
fn pinned_segments_do_not_reduce_the_minimums() {
    let global = GlobalPool::new(8, 64);
    let pool = global.create_local_pool(3, usize::MAX).unwrap();
    let mut kept = Vec::new();
    for _ in 0..20 {
        let segment =
            pool.request(Duration::from_secs(5)).unwrap().expect("pins do not starve the pool");
        let buffer = Buffer::freeze(segment, 8);
        if buffer.pin() {
            kept.push(buffer);
        }
    }
    assert_eq!(kept.len(), 4, "half of the budget");
    assert_eq!((global.stats().pinned, global.stats().held), (4, 0));
    assert_eq!(pool.usage(), (4, 0));
    let slice = kept[0].slice(0, 4);
    kept.clear();
    assert_eq!(global.stats().pinned, 1, "a slice keeps its segment");
    drop(slice);
    assert_eq!(global.stats().pinned, 0);
    assert_eq!(pool.usage().0, 8);
}

#[test]
fn threads_that_share_few_segments_all_make_progress() {
    let global = GlobalPool::new(5, 64);
    let pools: Vec<_> =
        (0..4).map(|_| Arc::new(global.create_local_pool(1, usize::MAX).unwrap())).collect();
    thread::scope(|scope| {
        for pool in &pools {
            for seed in 0..2_usize {
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let segment = pool.request(Duration::from_secs(30)).unwrap().unwrap();
                        let buffer = Buffer::freeze(segment, 1);
                        if (round + seed) % 7 == 0 {
                            buffer.pin();
                        }
                        let copy = buffer.clone();
                        drop(buffer);
                        drop(copy);
                    }
                });
            }
        }
    });
    let stats = global.stats();
    assert_eq!((stats.held, stats.pinned), (0, 0));
    assert!(stats.peak <= 5);
}
