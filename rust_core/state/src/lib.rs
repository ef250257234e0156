//! Structures behind keyed state, each used by one call per batch: slots of keys, chains of values, timers by time,
//! Arrow values by position.
//!
//! A slot is a small number that stands for a key. Columns of state are indexed by it; they live in Python, as
//! numpy arrays. Values that numpy cannot hold live here: a column has their positions. Decision: ADR 0033.
//!
//! `unsafe` is in `memory` alone. Its invariant, S1: a block is one mapping, or one allocation of the process, that belongs
//! to nobody else from the call that gives it out to the one that takes it back.

#![deny(unsafe_code)]

mod chains;
mod index;
mod keys;
#[allow(unsafe_code, reason = "it maps files and gives out memory: S1")]
mod memory;
mod places;
mod queue;
mod values;

pub use chains::{ChainError, Chains};
pub use index::{IndexError, KeyIndex, Resolved};
pub use memory::{Block, StateMemory, Usage};
pub use queue::TimerQueue;
pub use values::{FrozenValues, Values, ValuesError};

/// Numbers of rows, slots and nodes, as numpy's index type.
pub type Numbers = Vec<i64>;
