//! The control messages, their encoding and decoding.

use bytes::{BufMut, Bytes};
use headgate_protocol::{CheckpointBarrier, CheckpointId, CheckpointOptions};

use super::checkpoint::{alignment, fields};
use super::error::EventError;

/// A barrier whose snapshot is described by bytes that only the task reads.
pub type Barrier = CheckpointBarrier<Bytes>;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The checkpoint is cancelled.
    CancelCheckpointMarker {
        /// Id of the checkpoint.
        checkpoint_id: i64,
    },
    /// Records before the barrier belong to the checkpoint, records after it do not.
    CheckpointBarrier(Barrier),
    /// An event of the user.
    Custom {
        /// Name of the kind of event, at most 65,535 bytes.
        name: String,
        /// Content.
        body: Bytes,
    },
    /// End of the recovered state of a channel.
    EndOfChannelState,
    /// End of the user's records; more events can follow.
    EndOfData(StopMode),
    /// End of the partition.
    EndOfPartition,
    /// End of a segment of a tiered partition.
    EndOfSegment,
    /// End of a superstep of an iteration.
    EndOfSuperstep,
    /// Announces to the receiving channel an event that is still queued.
    EventAnnouncement {
        /// Sequence number of the announced event's buffer.
        sequence_number: i32,
        /// Announced event; must not be an announcement.
        announced: Box<Self>,
    },
    /// Describes the buffers before it for recovery.
    RecoveryMetadata {
        /// Index of the last buffer.
        final_buffer_index: i32,
    },
    /// Names the old channel of the recovered buffers that follow.
    SubtaskConnectionDescriptor {
        /// Sending subtask.
        input_subtask: i32,
        /// Receiving subtask.
        output_subtask: i32,
    },
}

/// Reason for the end of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// The input is exhausted; operators must send pending results.
    Drain,
    /// The job stops and will be resumed.
    NoDrain,
}

/// The names of all events but [`Event::Custom`].
const RESERVED: [&str; 10] = [
    "CancelCheckpointMarker",
    "CheckpointBarrier",
    "EndOfChannelState",
    "EndOfData",
    "EndOfPartition",
    "EndOfSegment",
    "EndOfSuperstep",
    "EventAnnouncement",
    "RecoveryMetadata",
    "SubtaskConnectionDescriptor",
];

impl Event {
    /// Returns true for the name of an event that is not the user's, with its fields or without, as its
    /// `Debug` text has them. A reader that knows events by name could not tell a custom one apart.
    #[must_use]
    pub fn is_reserved(name: &str) -> bool {
        let first = name.split(['(', ' ']).next();
        first.is_some_and(|first| RESERVED.contains(&first))
    }

    /// Encodes the event without padding.
    ///
    /// # Errors
    /// A custom name, a body or a description is too long for its length field, an announcement
    /// contains an announcement, or the options of a checkpoint contradict each other.
    pub fn encode(&self) -> Result<Bytes, EventError> {
        let mut out = Vec::new();
        self.put(&mut out)?;
        Ok(out.into())
    }

    /// Decodes an event and ignores the bytes after it.
    ///
    /// # Errors
    /// The bytes are too few, a code is unknown, a length is invalid, an announcement contains an
    /// announcement, or the options of a checkpoint contradict each other.
    pub fn decode(bytes: &[u8]) -> Result<Self, EventError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.i32()? {
            ANNOUNCEMENT => {
                let sequence_number = reader.i32()?;
                let announced = match reader.i32()? {
                    ANNOUNCEMENT => return Err(EventError::NestedAnnouncement),
                    code => Box::new(reader.event(code)?),
                };
                Ok(Self::EventAnnouncement { sequence_number, announced })
            }
            code => reader.event(code),
        }
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<(), EventError> {
        out.put_i32(self.code());
        match self {
            Self::EndOfPartition
            | Self::EndOfSuperstep
            | Self::EndOfChannelState
            | Self::EndOfSegment => {}
            Self::CheckpointBarrier(barrier) => put_barrier(barrier, out)?,
            Self::Custom { name, body } => {
                let length = u16::try_from(name.len())
                    .map_err(|_| invalid_length("name of a custom event", name.len()))?;
                out.put_u16(length);
                out.put_slice(name.as_bytes());
                let length = u32::try_from(body.len())
                    .map_err(|_| invalid_length("body of a custom event", body.len()))?;
                out.put_u32(length);
                out.put_slice(body);
            }
            Self::CancelCheckpointMarker { checkpoint_id } => out.put_i64(*checkpoint_id),
            Self::EventAnnouncement { sequence_number, announced } => {
                if announced.code() == ANNOUNCEMENT {
                    return Err(EventError::NestedAnnouncement);
                }
                out.put_i32(*sequence_number);
                announced.put(out)?;
            }
            Self::SubtaskConnectionDescriptor { input_subtask, output_subtask } => {
                out.put_i32(*input_subtask);
                out.put_i32(*output_subtask);
            }
            Self::EndOfData(mode) => out.put_u8(match mode {
                StopMode::Drain => 0,
                StopMode::NoDrain => 1,
            }),
            Self::RecoveryMetadata { final_buffer_index } => out.put_i32(*final_buffer_index),
        }
        Ok(())
    }

    fn code(&self) -> i32 {
        match self {
            Self::EndOfPartition => END_OF_PARTITION,
            Self::CheckpointBarrier(_) => BARRIER,
            Self::EndOfSuperstep => END_OF_SUPERSTEP,
            Self::Custom { .. } => CUSTOM,
            Self::CancelCheckpointMarker { .. } => CANCEL,
            Self::EndOfChannelState => END_OF_CHANNEL_STATE,
            Self::EventAnnouncement { .. } => ANNOUNCEMENT,
            Self::SubtaskConnectionDescriptor { .. } => DESCRIPTOR,
            Self::EndOfData(_) => END_OF_DATA,
            Self::EndOfSegment => END_OF_SEGMENT,
            Self::RecoveryMetadata { .. } => RECOVERY,
        }
    }
}

fn put_barrier(barrier: &Barrier, out: &mut Vec<u8>) -> Result<(), EventError> {
    let CheckpointOptions { alignment, snapshot } = &barrier.options;
    let (code, timeout) = fields(*alignment)?;
    out.put_i64(barrier.id.0);
    out.put_i64(barrier.timestamp);
    out.put_u8(CHECKPOINT);
    let length =
        if snapshot.is_empty() { Ok(NO_DESCRIPTION) } else { i32::try_from(snapshot.len()) };
    out.put_i32(length.map_err(|_| invalid_length(DESCRIPTION, snapshot.len()))?);
    out.put_slice(snapshot);
    out.put_u8(code);
    out.put_i64(timeout);
    Ok(())
}

fn invalid_length(field: &'static str, length: usize) -> EventError {
    EventError::InvalidLength { field, length: i64::try_from(length).unwrap_or(i64::MAX) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn event(&mut self, code: i32) -> Result<Event, EventError> {
        Ok(match code {
            END_OF_PARTITION => Event::EndOfPartition,
            BARRIER => Event::CheckpointBarrier(self.barrier()?),
            END_OF_SUPERSTEP => Event::EndOfSuperstep,
            CUSTOM => self.custom()?,
            CANCEL => Event::CancelCheckpointMarker { checkpoint_id: self.i64()? },
            END_OF_CHANNEL_STATE => Event::EndOfChannelState,
            DESCRIPTOR => Event::SubtaskConnectionDescriptor {
                input_subtask: self.i32()?,
                output_subtask: self.i32()?,
            },
            END_OF_DATA => Event::EndOfData(match self.u8()? {
                0 => StopMode::Drain,
                1 => StopMode::NoDrain,
                code => return Err(unknown_code("stop mode", code)),
            }),
            END_OF_SEGMENT => Event::EndOfSegment,
            RECOVERY => Event::RecoveryMetadata { final_buffer_index: self.i32()? },
            code => {
                return Err(EventError::UnknownCode { field: "event", code });
            }
        })
    }

    fn custom(&mut self) -> Result<Event, EventError> {
        let length = u16::from_be_bytes(self.array()?);
        let name = std::str::from_utf8(self.slice(length.into())?);
        let name = name.map_err(|_| EventError::InvalidName)?.to_owned();
        let length = u32::from_be_bytes(self.array()?);
        let body = Bytes::copy_from_slice(self.slice(length as usize)?);
        Ok(Event::Custom { name, body })
    }

    fn barrier(&mut self) -> Result<Barrier, EventError> {
        let (id, timestamp) = (CheckpointId(self.i64()?), self.i64()?);
        let kind = self.u8()?;
        if kind != CHECKPOINT {
            return Err(unknown_code("snapshot type", kind));
        }
        let snapshot = match self.i32()? {
            NO_DESCRIPTION => Bytes::new(),
            length => {
                let size = usize::try_from(length).ok().filter(|size| *size > 0);
                let invalid =
                    EventError::InvalidLength { field: DESCRIPTION, length: length.into() };
                Bytes::copy_from_slice(self.slice(size.ok_or(invalid)?)?)
            }
        };
        let alignment = alignment(self.u8()?, self.i64()?)?;
        Ok(Barrier { id, timestamp, options: CheckpointOptions { alignment, snapshot } })
    }

    fn u8(&mut self) -> Result<u8, EventError> {
        self.array().map(u8::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, EventError> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, EventError> {
        self.array().map(i64::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EventError> {
        let bytes = self.slice(N)?;
        Ok(*bytes.first_chunk().expect("the slice has N bytes"))
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], EventError> {
        let rest = &self.bytes[self.at..];
        let Some(slice) = rest.get(..length) else {
            let needed = length - rest.len();
            return Err(EventError::Incomplete { at: self.at, needed, got: self.bytes.len() });
        };
        self.at += length;
        Ok(slice)
    }
}

fn unknown_code(field: &'static str, code: u8) -> EventError {
    EventError::UnknownCode { field, code: code.into() }
}

const END_OF_PARTITION: i32 = 0;
const BARRIER: i32 = 1;
const END_OF_SUPERSTEP: i32 = 2;
const CUSTOM: i32 = 3;
const CANCEL: i32 = 4;
const END_OF_CHANNEL_STATE: i32 = 5;
const ANNOUNCEMENT: i32 = 6;
const DESCRIPTOR: i32 = 7;
const END_OF_DATA: i32 = 8;
const END_OF_SEGMENT: i32 = 9;
const RECOVERY: i32 = 10;

/// Kind of snapshot; Flink has others.
const CHECKPOINT: u8 = 0;
const DESCRIPTION: &str = "description of a snapshot";
/// Length that stands for no description.
const NO_DESCRIPTION: i32 = -1;
