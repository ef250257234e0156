//! Options of a result partition.

use std::time::Duration;

use headgate_protocol::PartitionId;
use headgate_record::Codec;

/// When a partition is read, and where its data waits (spec 4.1).
///
/// Decision: ADR 0014.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PartitionKind {
    /// Read while it is written. The writer may use all segments that are not promised to others.
    Pipelined,
    /// Read while it is written, in a bounded number of segments.
    #[default]
    PipelinedBounded,
    /// Written to disk, and read after it is finished, any number of times.
    Blocking,
    /// Read while it is written, once. Queued buffers go to disk when segments run short, so that a
    /// slow or missing reader does not stop the writer.
    Hybrid,
}

impl PartitionKind {
    /// True if its data may wait on disk.
    pub(crate) fn is_stored(self) -> bool {
        matches!(self, Self::Blocking | Self::Hybrid)
    }
}

/// Options of one partition. The caller checks the values.
#[derive(Debug, Clone)]
pub struct PartitionOptions {
    /// True for each subpartition that is built, one per consumer. Rows for the others are dropped.
    pub wanted: Vec<bool>,
    /// Its id, which is never used again; random if none.
    pub id: Option<PartitionId>,
    /// Names of the task events that it takes from the start.
    pub task_events: Vec<String>,
    /// Time from the loss of a consumer until the partition fails, unless its subpartition is
    /// released first. Zero fails it at once. A blocking partition waits for the next consumer
    /// instead.
    pub lost_consumer_timeout: Duration,
    /// When it is read, and where its data waits.
    pub kind: PartitionKind,
    /// Bytes that it may have on disk, 0 for no limit. At the limit a hybrid partition waits for
    /// its readers; a blocking partition fails, since it has no readers yet.
    pub max_spill_size: u64,
    /// Compression of complete data buffers.
    pub compression: Option<Codec>,
}

impl PartitionOptions {
    /// Returns options for `count` subpartitions, pipelined and bounded, that fail when a consumer
    /// is lost.
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

    /// Returns the same options with another kind.
    #[must_use]
    pub fn of_kind(self, kind: PartitionKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the same options with compression.
    #[must_use]
    pub fn compressed(self, codec: Codec) -> Self {
        Self { compression: Some(codec), ..self }
    }
}
