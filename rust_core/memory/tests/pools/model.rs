//! Random operations on several local pools, compared with a model that recounts all numbers after
//! each.

use std::time::Duration;

use headgate_memory::{Buffer, GlobalPool, LocalPool, LocalPoolOptions, RequestError};
use proptest::prelude::*;

use crate::assert_all_returned;

const TOTAL: usize = 12;
const CHANNELS: usize = 2;

#[derive(Debug, Clone)]
enum Step {
    Create { min: usize, more: usize, overdraft: usize, per_channel: usize, needs_one: bool },
    Request { pool: usize, channel: Option<usize> },
    Recycle(usize),
    Pin(usize),
    Resize { pool: usize, min: usize, more: usize },
    Reserve { pool: usize, count: usize },
    Unpooled(usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_usize..5, 0_usize..9, 0_usize..4, 1_usize..4, any::<bool>()).prop_map(
            |(min, more, overdraft, per_channel, needs_one)| {
                Step::Create { min, more, overdraft, per_channel, needs_one }
            }
        ),
        12 => (any::<usize>(), prop::option::of(0..CHANNELS))
            .prop_map(|(pool, channel)| Step::Request { pool, channel }),
        6 => any::<usize>().prop_map(Step::Recycle),
        2 => any::<usize>().prop_map(Step::Pin),
        2 => (any::<usize>(), 0_usize..5, 0_usize..9)
            .prop_map(|(pool, min, more)| Step::Resize { pool, min, more }),
        2 => (any::<usize>(), 0_usize..5).prop_map(|(pool, count)| Step::Reserve { pool, count }),
        1 => (0_usize..4).prop_map(Step::Unpooled),
        1 => any::<usize>().prop_map(Step::Close),
    ]
}

struct Pool {
    pool: LocalPool,
    options: LocalPoolOptions,
    reserved: usize,
    open: bool,
    needs_one: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Pool(usize, Option<usize>),
    Nobody,
    Caller,
}

struct World {
    global: GlobalPool,
    pools: Vec<Pool>,
    out: Vec<(Buffer, Owner)>,
}

impl World {
    fn count(&self, which: impl Fn(Owner) -> bool) -> usize {
        self.out.iter().filter(|(_, owner)| which(*owner)).count()
    }

    fn pinned(&self) -> usize {
        self.count(|owner| owner == Owner::Caller)
    }

    fn held(&self, pool: usize) -> usize {
        self.count(|owner| matches!(owner, Owner::Pool(of, _) if of == pool))
    }

    fn promised(&self) -> usize {
        let open = self.pools.iter().filter(|pool| pool.open);
        open.map(|pool| pool.options.min).sum::<usize>() + self.count(|o| o == Owner::Nobody)
    }

    fn reserved(&self) -> usize {
        let aside = |(index, pool): (usize, &Pool)| pool.reserved.saturating_sub(self.held(index));
        self.pools.iter().enumerate().map(aside).sum()
    }

    fn free(&self) -> usize {
        TOTAL - self.out.len() - self.reserved()
    }

    /// Uses the sizes of the pool under test; `check` verifies those.
    fn may_take(&self, index: usize, overdraw: bool) -> bool {
        let pool = &self.pools[index];
        let (held, size) = (self.held(index), pool.pool.usage().0);
        if held < size {
            return self.free() > 0 || held < pool.reserved;
        }
        let unfilled = |(other, pool): (usize, &Pool)| {
            if pool.open {
                pool.pool.usage().0.saturating_sub(self.held(other).max(pool.reserved))
            } else {
                0
            }
        };
        let promised: usize = self.pools.iter().enumerate().map(unfilled).sum();
        overdraw && held - size < pool.options.max_overdraft && self.free() > promised
    }

    fn saturated(&self, index: usize) -> bool {
        let limit = self.pools[index].options.max_buffers_per_channel;
        let is_full = |c: usize| self.count(|owner| owner == Owner::Pool(index, Some(c))) >= limit;
        if self.pools[index].needs_one {
            (0..CHANNELS).all(is_full)
        } else {
            (0..CHANNELS).any(is_full)
        }
    }

    fn step(&mut self, step: Step) {
        let pools = self.pools.len();
        match step {
            Step::Create { min, more, overdraft, per_channel, needs_one } => {
                let options = LocalPoolOptions {
                    max_overdraft: overdraft,
                    num_subpartitions: CHANNELS,
                    max_buffers_per_channel: per_channel,
                    ..LocalPoolOptions::new(min, min + more)
                };
                let fits = self.promised() + self.pinned() + min <= TOTAL;
                let created = self.global.create_local_pool_with(&options);
                assert_eq!(created.is_ok(), fits);
                if let Ok(pool) = created {
                    if needs_one {
                        pool.need_one_subpartition();
                    }
                    self.pools.push(Pool { pool, options, reserved: 0, open: true, needs_one });
                }
            }
            Step::Request { pool, channel } if pools > 0 => {
                let index = pool % pools;
                let expected = self.may_take(index, true);
                match self.pools[index].pool.try_request_for(channel) {
                    Err(error) => {
                        assert_eq!((error, self.pools[index].open), (RequestError::Closed, false))
                    }
                    Ok(segment) => {
                        assert!(self.pools[index].open);
                        assert_eq!(segment.is_some(), expected);
                        let buffer = segment.map(|segment| Buffer::freeze(segment, 8));
                        self.out.extend(buffer.map(|b| (b, Owner::Pool(index, channel))));
                    }
                }
            }
            Step::Recycle(which) if !self.out.is_empty() => {
                self.out.swap_remove(which % self.out.len());
            }
            Step::Pin(which) if !self.out.is_empty() => {
                let which = which % self.out.len();
                let owner = self.out[which].1;
                let (own, replaced) = match owner {
                    Owner::Caller => return assert!(self.out[which].0.pin()),
                    Owner::Nobody => (1, 0),
                    Owner::Pool(index, _) => {
                        (0, usize::from(self.held(index) <= self.pools[index].reserved))
                    }
                };
                let pinned = self.pinned() + 1;
                let fits = pinned * 2 <= TOTAL
                    && self.promised() - own + pinned <= TOTAL
                    && replaced <= self.free();
                assert_eq!(self.out[which].0.pin(), fits);
                if fits {
                    self.out[which].1 = Owner::Caller;
                }
            }
            Step::Resize { pool, min, more } if pools > 0 && self.pools[pool % pools].open => {
                let own = self.pools[pool % pools].options.min;
                let fits = min <= own || self.promised() - own + self.pinned() + min <= TOTAL;
                let pool = &mut self.pools[pool % pools];
                assert_eq!(pool.pool.set_minimum(min, min + more, 0).is_ok(), fits);
                if fits {
                    (pool.options.min, pool.options.max) = (min, min + more);
                    pool.reserved = pool.reserved.min(min);
                }
            }
            Step::Reserve { pool, count } if pools > 0 && self.pools[pool % pools].open => {
                let index = pool % pools;
                let count = count.min(self.pools[index].options.min);
                let there = self.held(index).max(self.pools[index].reserved);
                let fits = count.saturating_sub(there) <= self.free();
                let pool = &mut self.pools[index];
                assert_eq!(pool.pool.reserve(count, Duration::ZERO), Ok(fits));
                if fits {
                    pool.reserved = pool.reserved.max(count);
                }
            }
            Step::Unpooled(count) => {
                let fits = self.promised() + self.pinned() + count <= TOTAL && count <= self.free();
                let got = self.global.request_unpooled(count, Duration::ZERO, || false);
                assert_eq!(got.is_ok(), fits || count == 0);
                let freeze = |segment| (Buffer::freeze(segment, 8), Owner::Nobody);
                self.out.extend(got.into_iter().flatten().map(freeze));
            }
            Step::Close(pool) if pools > 0 => {
                let pool = &mut self.pools[pool % pools];
                pool.pool.close();
                (pool.open, pool.reserved) = (false, 0);
            }
            _ => {}
        }
    }

    fn check(&self) {
        let stats = self.global.stats();
        assert_eq!(stats.pinned, self.pinned());
        assert_eq!(stats.held, self.out.len() - self.pinned());
        assert_eq!(stats.reserved, self.reserved());
        assert!(stats.held + stats.pinned + stats.reserved <= TOTAL);
        let (mut sizes, mut wanted) = (0, 0);
        for (index, pool) in self.pools.iter().enumerate() {
            if !pool.open {
                assert!(
                    pool.pool.is_available() && pool.pool.wait_available(Duration::ZERO).is_err()
                );
                continue;
            }
            let (size, held) = pool.pool.usage();
            assert_eq!(held, self.held(index));
            assert!(size >= pool.options.min && size <= pool.options.max);
            (sizes, wanted) = (sizes + size, wanted + pool.options.max);
            let available = self.may_take(index, false) && !self.saturated(index);
            assert_eq!(pool.pool.is_available(), available, "pool {index}");
            let of = |c| self.count(|owner| owner == Owner::Pool(index, Some(c)));
            let of_channels: Vec<_> = (0..CHANNELS).map(of).collect();
            assert_eq!(pool.pool.held_by_subpartitions(), of_channels);
        }
        let for_pools = TOTAL - self.pinned() - self.count(|owner| owner == Owner::Nobody);
        assert_eq!(sizes, wanted.min(for_pools), "every usable segment is assigned");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn several_pools_agree_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut world =
            World { global: GlobalPool::new(TOTAL, 64), pools: Vec::new(), out: Vec::new() };
        for step in steps {
            world.step(step);
            world.check();
        }
        world.out.clear();
        world.check();
        // With every segment returned, all pools can take their minimum at once.
        let open = || world.pools.iter().filter(|pool| pool.open);
        let promised: Vec<_> = open()
            .flat_map(|pool| (0..pool.options.min).map(|_| pool.pool.try_request().unwrap().unwrap()))
            .collect();
        drop(promised);
        let global = world.global.clone();
        drop(world);
        assert_all_returned(&global);
    }
}
