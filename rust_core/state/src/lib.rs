//! Structures behind keyed state, each used by one call per batch: slots of keys, chains of values, numbers by time,
//! Arrow values by position.
//!
//! A slot is a small number that stands for a key. Columns of state are indexed by it; they live in Python, as
//! numpy arrays. Values that numpy cannot hold live here: a column has their positions. Decision: ADR 0033.

#![forbid(unsafe_code)]

mod chains;
mod index;
mod intervals;
mod keys;
mod order;
mod places;
mod queue;
mod settle;
mod values;

pub use chains::{ChainError, Chains};
pub use headgate_memory::{ReadAhead, Reserved, StateMemory, Usage};
pub use index::{IndexError, KeyIndex, Resolved};
pub use intervals::{JointIntervals, join_intervals};
pub use order::{OtherLength, by_group};
pub use queue::{NoRoom, TimeQueue};
pub use values::{FrozenValues, Values, ValuesError};

/// Numbers of rows, slots and nodes, as numpy's index type.
pub type Numbers = Vec<i64>;
