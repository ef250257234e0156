//! Threads that request, keep, pin, resize and close concurrently; at the end every segment is
//! returned.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use headgate_memory::{Buffer, GlobalPool, LocalPool, LocalPoolOptions, RequestError};

use crate::{Count, PATIENCE, assert_all_returned};

/// A generator with a seed, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).unwrap()
    }
}

fn options() -> LocalPoolOptions {
    LocalPoolOptions {
        max_overdraft: 2,
        num_subpartitions: 3,
        max_buffers_per_channel: 2,
        ..LocalPoolOptions::new(1, 6)
    }
}

/// Random operations of one thread on a pool that other threads use and close.
fn work(pool: &LocalPool, random: &mut Random) -> Result<(), RequestError> {
    let mut kept = Vec::new();
    for _ in 0..400 {
        match random.below(10) {
            0 => drop(pool.wait_available(Duration::from_micros(50))?),
            1 => drop(pool.available_or_listen(|| Arc::new(Count::default()))),
            2 => drop(pool.reserve(1, Duration::from_micros(50))?),
            3 => pool.set_minimum(1, 1 + random.below(6), 0).unwrap(),
            4 | 5 => drop(kept.pop()),
            6 => kept.clear(),
            _ => {
                let channel = Some(random.below(3));
                // This thread may hold every segment, so it must not wait while it holds one.
                let timeout = if kept.is_empty() { PATIENCE } else { Duration::ZERO };
                if let Some(segment) = pool.request_for(channel, timeout)? {
                    let buffer = Buffer::freeze(segment, 16);
                    if random.below(4) == 0 {
                        buffer.pin();
                    }
                    kept.push(buffer.slice(8, 16));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_segment_is_returned_after_all_threads() {
    for seed in 0..6_u64 {
        println!("seed {seed}");
        let global = GlobalPool::new(9, 64);
        thread::scope(|scope| {
            for number in 0..3_u64 {
                let pool = Arc::new(global.create_local_pool_with(&options()).unwrap());
                for other in 0..2_u64 {
                    let pool = Arc::clone(&pool);
                    scope.spawn(move || {
                        let mut random = Random(seed << 8 | number << 4 | other);
                        match work(&pool, &mut random) {
                            Ok(()) if seed % 2 == 0 => pool.close(),
                            Ok(()) | Err(RequestError::Closed) => {}
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
            }
            let global = &global;
            scope.spawn(move || {
                let mut random = Random(seed << 8 | 0xf0);
                for _ in 0..100 {
                    let count = 1 + random.below(3);
                    let timeout = Duration::from_micros(200);
                    drop(global.request_unpooled(count, timeout, || false));
                }
            });
        });
        assert_all_returned(&global);
        assert_eq!(global.stats().local_pools, 0);
    }
}
