//! Structures behind keyed state, each used by one call per batch: slots of keys, chains of values, timers by time.
//!
//! A slot is a small number that stands for a key. Columns of state are indexed by it; they live in Python, as
//! numpy or Arrow arrays. Decision: ADR 0033.

#![forbid(unsafe_code)]

mod chains;
mod index;
mod queue;

pub use chains::Chains;
pub use index::{IndexError, KeyIndex, Resolved};
pub use queue::TimerQueue;

/// Numbers of rows, slots and nodes, as numpy's index type.
pub type Numbers = Vec<i64>;
