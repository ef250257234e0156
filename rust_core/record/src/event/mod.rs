//! Control messages in-band with the data. Each is a big-endian `i32` code and a body.
//!
//! | code | event | body | bytes |
//! |---|---|---|---|
//! | 0 | `EndOfPartition` | | 4 |
//! | 1 | `CheckpointBarrier` | id i64, time i64, 0 u8, length of the body i32 or -1, body, alignment u8, timeout i64 | 34 + body |
//! | 2 | `EndOfSuperstep` | | 4 |
//! | 3 | `Custom` | name length u16, name in UTF-8, body length u32, body | 10 + both |
//! | 4 | `CancelCheckpointMarker` | checkpoint id i64 | 12 |
//! | 5 | `EndOfChannelState` | | 4 |
//! | 6 | `EventAnnouncement` | sequence number i32, the announced event | 8 + event |
//! | 7 | `SubtaskConnectionDescriptor` | input subtask i32, output subtask i32 | 12 |
//! | 8 | `EndOfData` | stop mode u8 | 5 |
//! | 9 | `EndOfSegment` | | 4 |
//! | 10 | `RecoveryMetadata` | final index of buffers i32 | 8 |
//!
//! Readers ignore bytes after an event: senders may pad, and `EndOfPartition` is followed by
//! totals.

mod checkpoint;
mod error;
mod message;

pub use error::EventError;
pub use message::{Barrier, Event, StopMode};
