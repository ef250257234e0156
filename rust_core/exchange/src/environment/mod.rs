//! The data plane of a process: pool, partitions, gates, connections and threads.
//!
//! ```text
//!   ShuffleEnvironment --> Channels --> LazyNetwork --> Gates
//! ```

mod channels;
mod gates;
mod network;
mod shuffle_environment;

pub use shuffle_environment::ShuffleEnvironment;
