//! Decoding of frames from untrusted bytes.

use std::num::NonZeroU32;

use crate::crc32c::crc32c;
use crate::frame::{ErrorFrame, Frame, MAX_ERROR_TEXT, PartitionRequest};
use crate::frame_error::FrameError;
use crate::frame_kind::{
    BUFFER_HEADER_LEN, CRC_LEN, FRAME_HEADER_LEN, FrameKind, MAGIC, TASK_EVENT_HEADER_LEN,
};
use crate::header::{BufferHeader, TaskEventHeader};
use crate::lent::LentBuffer;
use crate::side::Side;
use crate::wire::{fill, take, take_u8, take_u16, take_u32, take_u64};
use crate::{ChannelId, DataType, FrameMask, Generation, PartitionId, Sequence};

/// The limits that the handshake agreed on, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest frame, payload included.
    pub max_frame: u32,
    /// Largest payload of a buffer or of a task event.
    pub max_payload: u32,
}

impl Limits {
    /// Returns limits for payloads of up to one segment.
    #[must_use]
    pub const fn for_segment(size: u32) -> Self {
        // Frames without payload must pass even if segments are smaller.
        let least = (FrameKind::Error.fixed_len() + MAX_ERROR_TEXT) as u32;
        let max_frame = size.saturating_add(BUFFER_HEADER_LEN as u32);
        Self { max_frame: if max_frame < least { least } else { max_frame }, max_payload: size }
    }
}

/// Decodes the frames of one connection from pieces of any length.
///
/// Holds at most one frame without payload (about 1 KiB). Every length is compared with the limits
/// before it is used; other fields of a body are parsed only after the frame's CRC is checked. The
/// driver checks the CRC of a buffer: it covers the payload, which does not pass through the decoder.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    limits: Limits,
    side: Side,
    mask: FrameMask,
    stage: Stage,
    buffer: Vec<u8>,
}

impl FrameDecoder {
    /// Creates a decoder for frames that arrive at `side` of a connection.
    #[must_use]
    pub const fn new(limits: Limits, side: Side, mask: FrameMask) -> Self {
        Self { limits, side, mask, stage: Stage::Header, buffer: Vec::new() }
    }

    /// Consumes bytes up to the end of one frame and returns it; `None` if it needs more bytes.
    ///
    /// After [`Frame::Buffer`] and [`Frame::TaskEvent`] the caller takes `size` payload bytes off the
    /// input before it calls again. After an error every further call returns the same error.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        while fill(&mut self.buffer, self.stage.want(), input) {
            // An error leaves the buffer as it is, so that the next call fails alike.
            if let Some(frame) = self.advance()? {
                self.buffer.clear();
                self.stage = Stage::Header;
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Number of bytes that [`decode`](Self::decode) needs next. A driver that reads no more than these
    /// can read each payload straight into its own memory.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.stage.want().saturating_sub(self.buffer.len())
    }

    /// Returns true if the bytes so far end with a whole frame. Only then is an end of stream clean.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Moves to the next stage, or returns the frame, once the buffer holds the bytes of this stage.
    fn advance(&mut self) -> Result<Option<Frame>, FrameError> {
        match self.stage {
            Stage::Header => {
                let (kind, length) = check_header(&self.buffer, self.limits, self.side)?;
                self.stage = match kind {
                    FrameKind::Error => Stage::TextLen { length },
                    _ => Stage::Frame { kind, length },
                };
                Ok(None)
            }
            Stage::TextLen { length } => {
                check_text_len(&self.buffer, length)?;
                self.stage = Stage::Frame { kind: FrameKind::Error, length };
                Ok(None)
            }
            Stage::Frame { kind, length } => {
                // The driver checks the CRC of a frame with a payload.
                let frame = match kind {
                    FrameKind::Buffer | FrameKind::TaskEvent => &self.buffer,
                    _ => check_crc(&self.buffer, kind, self.mask)?,
                };
                parse_body(&frame[FRAME_HEADER_LEN..], kind, length, self.limits).map(Some)
            }
        }
    }
}

/// Offset of the text in an error frame.
const TEXT_OFFSET: usize = FrameKind::Error.fixed_len() - CRC_LEN;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Header,
    /// An error frame up to its text.
    TextLen {
        length: u32,
    },
    /// The whole frame, without a payload.
    Frame {
        kind: FrameKind,
        length: u32,
    },
}

impl Stage {
    const fn want(self) -> usize {
        match self {
            Self::Header => FRAME_HEADER_LEN,
            Self::TextLen { .. } => TEXT_OFFSET,
            Self::Frame { kind: kind @ (FrameKind::Buffer | FrameKind::TaskEvent), .. } => {
                kind.fixed_len()
            }
            Self::Frame { length, .. } => length as usize,
        }
    }
}

fn check_header(
    mut bytes: &[u8],
    limits: Limits,
    side: Side,
) -> Result<(FrameKind, u32), FrameError> {
    let (length, magic) = (take_u32(&mut bytes), take_u32(&mut bytes));
    if magic != MAGIC {
        return Err(FrameError::BadMagic { got: magic });
    }
    let id = take_u8(&mut bytes);
    let kind = FrameKind::from_id(id).ok_or(FrameError::UnknownId { id })?;
    let receiver = match kind {
        FrameKind::Buffer
        | FrameKind::Error
        | FrameKind::BacklogAnnouncement
        | FrameKind::Lease
        | FrameKind::Region
        | FrameKind::LentBuffer => Some(Side::Consumer),
        FrameKind::PartitionRequest
        | FrameKind::TaskEvent
        | FrameKind::CancelPartitionRequest
        | FrameKind::CloseRequest
        | FrameKind::AddCredit
        | FrameKind::ResumeConsumption
        | FrameKind::AckAllUserRecordsProcessed
        | FrameKind::NewBufferSize
        | FrameKind::Return => Some(Side::Producer),
        FrameKind::Heartbeat => None,
    };
    if receiver.is_some_and(|receiver| receiver != side) {
        return Err(FrameError::WrongDirection { kind, side });
    }
    let (got, least) = (u64::from(length), kind.fixed_len() as u64);
    let most = match kind {
        FrameKind::Buffer => u64::from(limits.max_frame),
        FrameKind::TaskEvent => u64::from(limits.max_payload) + TASK_EVENT_HEADER_LEN as u64,
        FrameKind::Error => least + MAX_ERROR_TEXT as u64,
        _ => least,
    };
    if got < least {
        return Err(FrameError::TooShort { kind, length, least });
    }
    if got > most {
        return Err(FrameError::TooLong { kind, length, limit: most });
    }
    Ok((kind, length))
}

/// Checks the CRC at the end of a frame and returns the bytes before it.
fn check_crc(frame: &[u8], kind: FrameKind, mask: FrameMask) -> Result<&[u8], FrameError> {
    let (frame, crc) = frame.split_last_chunk().expect("the caller waited for the whole frame");
    let (got, want) = (u32::from_be_bytes(*crc), mask.apply(crc32c(frame)));
    if got == want { Ok(frame) } else { Err(FrameError::Checksum { kind, got, want }) }
}

fn parse_body(
    mut bytes: &[u8],
    kind: FrameKind,
    length: u32,
    limits: Limits,
) -> Result<Frame, FrameError> {
    let input = &mut bytes;
    Ok(match kind {
        FrameKind::Buffer => Frame::Buffer(parse_buffer(input, length, limits)?),
        FrameKind::PartitionRequest => Frame::PartitionRequest(PartitionRequest {
            partition: PartitionId(take(input)),
            subpartition: take_u32(input),
            channel: parse_channel(input)?,
            generation: Generation(take_u32(input)),
            initial_credit: take_u32(input),
            schema_hash: take(input),
        }),
        FrameKind::CancelPartitionRequest => {
            Frame::CancelPartitionRequest { channel: parse_channel(input)? }
        }
        FrameKind::AddCredit => {
            Frame::AddCredit { credit: parse_number(input, kind)?, channel: parse_channel(input)? }
        }
        FrameKind::CloseRequest => Frame::CloseRequest,
        FrameKind::Heartbeat => Frame::Heartbeat,
        FrameKind::Lease => Frame::Lease,
        FrameKind::Region => Frame::Region { region: take_u32(input), size: take_u64(input) },
        FrameKind::LentBuffer => Frame::LentBuffer(parse_lent(input, limits)?),
        FrameKind::Return => Frame::Return { loan: take_u64(input) },
        FrameKind::TaskEvent => Frame::TaskEvent(parse_task_event(input, length)?),
        FrameKind::ResumeConsumption => Frame::ResumeConsumption { channel: parse_channel(input)? },
        FrameKind::AckAllUserRecordsProcessed => {
            Frame::AckAllUserRecordsProcessed { channel: parse_channel(input)? }
        }
        FrameKind::BacklogAnnouncement => Frame::BacklogAnnouncement {
            backlog: parse_number(input, kind)?,
            channel: parse_channel(input)?,
        },
        FrameKind::NewBufferSize => Frame::NewBufferSize {
            size: parse_number(input, kind)?,
            channel: parse_channel(input)?,
        },
        FrameKind::Error => parse_error(input)?,
    })
}

fn parse_buffer(
    input: &mut &[u8],
    length: u32,
    limits: Limits,
) -> Result<BufferHeader, FrameError> {
    let channel = parse_channel(input)?;
    let generation = Generation(take_u32(input));
    let sequence = Sequence(take_u32(input));
    let backlog = take_u32(input);
    let data_type = parse_data_type(input, channel)?;
    let compressed = match take_u8(input) {
        0 => false,
        1 if data_type.is_event() => {
            return Err(FrameError::CompressedEvent { channel, data_type });
        }
        1 => true,
        got => return Err(FrameError::CompressedByte { channel, got }),
    };
    let size = take_u32(input);
    if size > limits.max_payload {
        return Err(FrameError::PayloadTooLarge { channel, size, limit: limits.max_payload });
    }
    if u64::from(length) != u64::from(size) + BUFFER_HEADER_LEN as u64 {
        return Err(FrameError::SizeMismatch { channel, length, size });
    }
    if size == 0 && data_type.is_event() {
        return Err(FrameError::EmptyEvent { channel, data_type });
    }
    let crc = take_u32(input);
    Ok(BufferHeader { channel, generation, sequence, backlog, data_type, compressed, size, crc })
}

fn parse_lent(input: &mut &[u8], limits: Limits) -> Result<LentBuffer, FrameError> {
    let channel = parse_channel(input)?;
    let generation = Generation(take_u32(input));
    let sequence = Sequence(take_u32(input));
    let backlog = take_u32(input);
    let data_type = parse_data_type(input, channel)?;
    if data_type.is_event() {
        return Err(FrameError::LentEvent { channel, data_type });
    }
    let size = take_u32(input);
    if size == 0 {
        return Err(FrameError::Zero { kind: FrameKind::LentBuffer });
    }
    if size > limits.max_payload {
        return Err(FrameError::PayloadTooLarge { channel, size, limit: limits.max_payload });
    }
    let (loan, region, offset) = (take_u64(input), take_u32(input), take_u64(input));
    Ok(LentBuffer { channel, generation, sequence, backlog, data_type, size, loan, region, offset })
}

fn parse_data_type(input: &mut &[u8], channel: ChannelId) -> Result<DataType, FrameError> {
    let data_type = take_u8(input);
    DataType::try_from(data_type).map_err(|_| FrameError::UnknownDataType { channel, data_type })
}

fn parse_task_event(input: &mut &[u8], length: u32) -> Result<TaskEventHeader, FrameError> {
    let channel = parse_channel(input)?;
    let size = take_u32(input);
    if u64::from(length) != u64::from(size) + TASK_EVENT_HEADER_LEN as u64 {
        return Err(FrameError::SizeMismatch { channel, length, size });
    }
    if size == 0 {
        return Err(FrameError::EmptyTaskEvent { channel });
    }
    Ok(TaskEventHeader { channel, size, crc: take_u32(input) })
}

/// Compares the two lengths of an error frame before its text is awaited.
fn check_text_len(bytes: &[u8], length: u32) -> Result<(), FrameError> {
    let text = take_u16(&mut &bytes[TEXT_OFFSET - 2..]);
    if u64::from(length) != FrameKind::Error.fixed_len() as u64 + u64::from(text) {
        return Err(FrameError::TextMismatch { length, text });
    }
    Ok(())
}

fn parse_error(mut bytes: &[u8]) -> Result<Frame, FrameError> {
    let input = &mut bytes;
    let channel = ChannelId(take_u32(input));
    let code = take_u16(input);
    let _text_len = take_u16(input);
    let text = std::str::from_utf8(input).map_err(|_| FrameError::TextNotUtf8)?;
    Ok(Frame::Error(ErrorFrame::new(Some(channel), code, text)))
}

fn parse_channel(input: &mut &[u8]) -> Result<ChannelId, FrameError> {
    match ChannelId(take_u32(input)) {
        ChannelId::CONNECTION => Err(FrameError::ReservedChannel),
        channel => Ok(channel),
    }
}

/// Parses a credit, a backlog or a size, which is never 0.
fn parse_number(input: &mut &[u8], kind: FrameKind) -> Result<NonZeroU32, FrameError> {
    NonZeroU32::new(take_u32(input)).ok_or(FrameError::Zero { kind })
}
