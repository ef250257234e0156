//! What a result partition is made with.

use std::time::Duration;

use headgate_protocol::PartitionId;
use headgate_record::Codec;

/// When a partition is read, and where its data waits (spec 4.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PartitionKind {
    /// Read while it is written; the writer may use all segments that nobody else needs.
    Pipelined,
    /// Read while it is written, in a bounded number of segments.
    #[default]
    PipelinedBounded,
    /// Written to disk, read after it is finished, any number of times.
    Blocking,
    /// Read while it is written, once; what finds no segment goes to disk, so that a slow or missing
    /// reader does not stop the writer.
    Hybrid,
}

impl PartitionKind {
    /// Whether its data may wait on disk.
    pub(crate) fn is_stored(self) -> bool {
        matches!(self, Self::Blocking | Self::Hybrid)
    }
}

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
    /// A blocking one waits for the next consumer instead.
    pub lost_consumer_timeout: Duration,
    /// When it is read, and where its data waits.
    pub kind: PartitionKind,
    /// Bytes it may have on disk, 0 for no limit. There a hybrid one waits for its readers; a blocking
    /// one, which has none yet, fails.
    pub max_spill_size: u64,
    /// How complete data buffers are compressed, if they are.
    pub compression: Option<Codec>,
}

impl PartitionOptions {
    /// All of `count` subpartitions, pipelined and bounded, which fail with the first consumer that
    /// vanishes.
    pub fn all(count: usize) -> Self {
        Self {
            wanted: vec![true; count],
            id: None,
            task_events: Vec::new(),
            lost_consumer_timeout: Duration::ZERO,
            kind: PartitionKind::default(),
            max_spill_size: 0,
            compression: None,
        }
    }

    /// The same of another kind.
    #[must_use]
    pub fn of_kind(self, kind: PartitionKind) -> Self {
        Self { kind, ..self }
    }

    /// The same with its data buffers compressed.
    #[must_use]
    pub fn compressed(self, codec: Codec) -> Self {
        Self { compression: Some(codec), ..self }
    }
}
