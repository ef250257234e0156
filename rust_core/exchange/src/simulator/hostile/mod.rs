//! A peer of this host that knows the secret and lies about shared memory: leases, regions, lent buffers
//! and returns in any order, beside an honest peer whose rows must all arrive.
//!
//! `HEADGATE_HOSTILE` is the number of peers, or `HEADGATE_HOSTILE_SECONDS` the time for them, and
//! `HEADGATE_HOSTILE_SEED` the seed of the first one.

mod bits;
mod borrower;
mod lender;
mod peer;
mod scene;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use borrower::lies_to_a_producer;
use lender::lies_to_a_consumer;
use scene::Tally;

use crate::random::seeded;
use crate::simulator::number_of;
use crate::simulator::plan::rng_of;

/// Number of peers, unless the environment variable sets another.
const PEERS: u64 = 1_000;

/// Everything that must happen in a run, each in at least one of a hundred peers.
const OCCURS: [&str; 23] = [
    "a borrowed buffer was read",
    "a buffer was lent",
    "a lease ended",
    "a sent buffer was read",
    "descriptor that nothing announced",
    "lease",
    "lease ended early",
    "lease from a consumer",
    "lease without descriptor",
    "lent buffer",
    "lent buffer that is none",
    "loans outlive their connection",
    "region",
    "region that is none",
    "return",
    "return from a producer",
    "return of nothing",
    "second lease",
    "second return",
    "the consumer left",
    "the consumer lost its producer",
    "the consumer refused its producer",
    "the producer refused its consumer",
];

#[test]
fn lies_about_shared_memory_end_one_connection() {
    let first = number_of("HEADGATE_HOSTILE_SEED");
    let count = number_of("HEADGATE_HOSTILE").unwrap_or_else(|| first.map_or(PEERS, |_| 1));
    let first = first.unwrap_or(0);
    let until = number_of("HEADGATE_HOSTILE_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tally = Tally::default();
    let is_due = |seed| until.map_or(seed < first + count, |until| Instant::now() < until);
    for seed in (first..).take_while(|seed| is_due(*seed)) {
        let play = || {
            seeded::set(Some(rng_of(seed, 1)));
            let rng = &mut rng_of(seed, 0);
            match seed % 2 {
                0 => lies_to_a_consumer(rng, &mut tally),
                _ => lies_to_a_producer(rng, &mut tally),
            }
            seeded::set(None);
            tally.add("a peer");
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(play)) {
            eprintln!("run this peer again with HEADGATE_HOSTILE_SEED={seed}");
            resume_unwind(panic);
        }
    }
    for (what, times) in &tally.0 {
        println!("  {what:<36}{times:>9}");
    }
    let peers = tally.0["a peer"];
    for what in OCCURS.iter().filter(|_| peers >= 1000) {
        let times = tally.0.get(what).copied().unwrap_or(0);
        assert!(times >= peers / 100, "{what}: {times} times only");
    }
}
