//! What a result partition is made with.

use std::time::Duration;

use headgate_protocol::PartitionId;

/// How a result partition is built; its caller checks the values.
#[derive(Debug, Clone)]
pub struct PartitionOptions {
    /// One per consumer: whether its subpartition is built. Rows for the others are dropped.
    pub wanted: Vec<bool>,
    /// Its name, unique for good; random if not given.
    pub id: Option<PartitionId>,
    /// Names of the task events it takes from the start.
    pub task_events: Vec<String>,
    /// How long whoever knows why a consumer vanished has to say so; zero fails the partition at once.
    pub lost_consumer_timeout: Duration,
}

impl PartitionOptions {
    /// All of `count` subpartitions, which fail with the first consumer that vanishes.
    pub fn all(count: usize) -> Self {
        Self {
            wanted: vec![true; count],
            id: None,
            task_events: Vec::new(),
            lost_consumer_timeout: Duration::ZERO,
        }
    }
}
