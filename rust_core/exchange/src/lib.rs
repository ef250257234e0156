//! The exchange layer: partitions, gates and channels.
//!
//! ```text
//!   ArrowWriter -> ResultPartition -> Subpartition --(local)--> LocalChannel  \
//!                                        \-- headgate_net ---------->           InputGate -> RecordReader
//!                                                                   RemoteChannel /
//! ```
//!
//! A [`ShuffleEnvironment`] owns all of these in one process. `writer` routes rows to
//! subpartitions, `partition` and `subpartition` queue their buffers, `spill` keeps them on disk,
//! and `gate` and `reader` read them. The crate `headgate_net` moves them between processes: `serving`
//! is what it sees of partitions, and `gate::RemoteChannel` what it sees of gates.

#![forbid(unsafe_code)]

#[macro_use]
extern crate headgate_failpoint;

mod address;
mod aligned;
mod cgroup;
mod channel_state;
mod clock;
mod config;
mod connection_error;
mod control;
mod copies;
mod counters;
mod descriptors;
mod environment;
mod error;
mod event;
mod flink;
mod flusher;
mod gate;
mod heartbeat;
#[cfg(test)]
mod instructions;
mod kept;
mod limits;
mod manager;
mod metrics;
mod panic_text;
mod partition;
mod random;
mod reader;
mod readiness;
mod serving;
#[cfg(test)]
mod simulator;
mod spanning;
mod spill;
mod spill_dirs;
mod stats;
mod subpartition;
mod sync;
mod threads;
mod view;
#[cfg(test)]
mod view_contract;
mod writer;

/// The failpoints of this process, for tests.
#[cfg(feature = "failpoints")]
pub mod failpoint {
    pub use headgate_failpoint::{VARIABLE, configure, hits};
}

pub use address::Address;
pub use channel_state::{ChannelRecord, decode_channel_state};
pub use config::{BufferDebloatOptions, BufferOptions, Config};
pub use control::ControlHandshake;
pub use copies::Copies;
pub use counters::Counters;
pub use environment::ShuffleEnvironment;
pub use error::{ExchangeError, Interrupt, Interruption, Result};
pub use event::data_type_of;
pub use flink::UnionInputGate;
pub use gate::{
    AvailabilityListener, CheckpointedChannel, CheckpointedChannels, CheckpointedInput,
    Checkpointing, DataInput, EndOfDataStatus, InputGate, Received,
};
pub use heartbeat::HeartbeatManager;
pub use kept::{KeptFile, SmallLimits, SmallSubpartition, keep_small};
pub use metrics::{Passed, TaskTimes, Times};
pub use partition::{PartitionKind, PartitionOptions, ResultPartition, TaskEvent, TaskEvents};
pub use reader::{ChannelStates, CheckpointNotice, Record, RecordReader};
pub use readiness::Readiness;
pub use spanning::SpanningOptions;
pub use spill::KeptPartition;
pub use spill_dirs::SpillDirectories;
pub use stats::{
    ChannelStats, DebloatStats, GateStats, Metric, Metrics, Origin, PartitionStats, Queued,
    SpillStats, Stats, SubpartitionStats, Usage, Waits,
};
pub use writer::{ArrowWriter, BufferTimeout, BytesWriter, Emitted, RecordWriter};

pub use headgate_memory::{
    Buffer, PoolStats, Unmapped, after_fork_in_child, after_fork_in_parent, before_fork,
};
pub use headgate_net::{Connections, LentStats};
pub use headgate_protocol::{
    Alignment, CheckpointId, CheckpointOptions, DataType, HandshakeError, Key, PartitionId,
    Sequence,
};
pub use headgate_record::Codec;
pub use headgate_record::event::Barrier;
pub use headgate_tls::{Tls, TlsFiles, TlsSession, self_signed_certificate};
