//! Every single bit of frames with a payload. Their driver checks the CRC once the payload is there, so
//! the header is believed until then: these tests say which of its bits may change it.

use headgate_protocol::{
    BUFFER_HEADER_LEN, BufferHeader, ChannelId, DataType, Frame, FrameDecoder, FrameError,
    FrameMask, Generation, Limits, Sequence, Side, TASK_EVENT_HEADER_LEN, TaskEventHeader,
};

use crate::frames::{crc32c_by_bits, decode_pieces, header};

const LIMITS: Limits = Limits { max_frame: 4096, max_payload: 1024 };
const PAYLOAD: &[u8] = b"some payload";

/// A frame on the wire, with its checksum and its payload.
struct Sealed {
    frame: Frame,
    bytes: Vec<u8>,
    /// Offset of the CRC.
    crc_at: usize,
    side: Side,
}

impl Sealed {
    fn new(frame: &Frame) -> Self {
        let (crc_at, side) = match frame {
            Frame::Buffer(_) => (BUFFER_HEADER_LEN - 4, Side::Consumer),
            _ => (TASK_EVENT_HEADER_LEN - 4, Side::Producer),
        };
        let mut bytes = Vec::new();
        frame.encode(FrameMask::default(), &mut bytes);
        bytes.extend(PAYLOAD);
        let crc = crc_without(&bytes, crc_at);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_be_bytes());
        let frame = decode(side, &bytes).unwrap();
        Self { frame, bytes, crc_at, side }
    }

    /// Flips each bit; returns those of the header that give another valid one, as bytes and their bits.
    fn believed(&self, refused: impl Fn(usize, &FrameError) -> bool) -> Vec<(usize, u8)> {
        let mut believed: Vec<(usize, u8)> = Vec::new();
        for bit in 0..self.bytes.len() * 8 {
            let (at, mask) = (bit / 8, 1 << (bit % 8));
            let mut bytes = self.bytes.clone();
            bytes[at] ^= mask;
            // The driver compares the CRC of what it decoded, so the decoded header must encode to the bytes.
            match decode(self.side, &bytes) {
                Err(error) => assert!(refused(at, &error), "byte {at}, bit {bit}: {error}"),
                Ok(frame) => {
                    let mut head = Vec::new();
                    frame.encode(FrameMask::default(), &mut head);
                    assert_eq!(head, bytes[..self.crc_at + 4], "byte {at}, bit {bit}");
                    let crc = u32::from_be_bytes(*head.last_chunk().unwrap());
                    assert_ne!(crc, crc_without(&bytes, self.crc_at), "byte {at}, bit {bit}");
                    if at >= self.crc_at + 4 {
                        assert_eq!(frame, self.frame, "a bit of the payload changed the header");
                        continue;
                    }
                    assert_ne!(frame, self.frame, "byte {at}, bit {bit}");
                    match believed.last_mut() {
                        Some((last, bits)) if *last == at => *bits |= mask,
                        _ => believed.push((at, mask)),
                    }
                }
            }
        }
        believed
    }
}

/// Returns the CRC of a frame and its payload, which covers all but itself.
fn crc_without(bytes: &[u8], at: usize) -> u32 {
    crc32c_by_bits(&[&bytes[..at], &bytes[at + 4..]].concat())
}

/// Decodes one frame, whole and byte by byte; the decoder must not wait for more bytes than there are.
fn decode(side: Side, bytes: &[u8]) -> Result<Frame, FrameError> {
    let decoder = || FrameDecoder::new(LIMITS, side, FrameMask::default());
    let whole = decode_pieces(&mut decoder(), [bytes]);
    assert_eq!(decode_pieces(&mut decoder(), bytes.chunks(1)), whole);
    let frames = whole?;
    assert_eq!(frames.len(), 1, "{frames:?}");
    Ok(frames.into_iter().next().unwrap())
}

/// All bits of these bytes.
fn all_of(range: std::ops::Range<usize>) -> impl Iterator<Item = (usize, u8)> {
    range.map(|at| (at, 0xFF))
}

/// Returns true if a flipped bit of this byte of a buffer's header may be refused so.
fn is_refusal_of_buffer(at: usize, error: &FrameError) -> bool {
    use FrameError as E;
    match at {
        // The length of the frame.
        0..4 => {
            matches!(error, E::TooShort { .. } | E::TooLong { .. } | E::SizeMismatch { .. })
        }
        4..8 => matches!(error, E::BadMagic { .. }),
        // Its kind; an error frame (id 1) has two lengths, which disagree.
        8 => {
            matches!(error, E::UnknownId { .. } | E::WrongDirection { .. } | E::TextMismatch { .. })
        }
        25 => matches!(error, E::UnknownDataType { .. } | E::CompressedEvent { .. }),
        26 => matches!(error, E::CompressedByte { .. } | E::CompressedEvent { .. }),
        27..31 => matches!(error, E::PayloadTooLarge { .. } | E::SizeMismatch { .. }),
        _ => false,
    }
}

/// Channel, generation, sequence, backlog and CRC may change to anything, the data type to another one
/// that a flipped bit reaches, and data may become compressed or plain. Nothing else may.
#[test]
fn each_flipped_bit_of_a_buffer_is_refused_or_found_by_its_checksum() {
    use DataType as D;
    // For each data type the bits whose flip gives another of the types 1 to 11.
    let cases: [(DataType, u8); 11] = [
        (D::DataBuffer, 0b1110),
        (D::EventBuffer, 0b1101),
        (D::PrioritizedEventBuffer, 0b1111),
        (D::AlignedCheckpointBarrier, 0b0011),
        (D::TimeoutableAlignedCheckpointBarrier, 0b0111),
        (D::RecoveryCompletion, 0b0111),
        (D::EndOfSegment, 0b0111),
        (D::DataBufferWithClearEnd, 0b0011),
        (D::EndOfData, 0b1011),
        (D::EndOfPartition, 0b1011),
        (D::RecoveryMetadata, 0b1011),
    ];
    for (data_type, types) in cases {
        let plain = BufferHeader {
            channel: ChannelId(0x0102_0304),
            generation: Generation(0x1112_1314),
            sequence: Sequence(0x2122_2324),
            backlog: 0x3132_3334,
            ..header(0, 0, data_type, PAYLOAD.len() as u32)
        };
        for compressed in [false, true] {
            if compressed && data_type.is_event() {
                continue;
            }
            let sealed = Sealed::new(&Frame::Buffer(BufferHeader { compressed, ..plain }));
            // All types that a flipped bit makes of a data type are events, which are never compressed.
            let types = (!compressed).then_some((25, types));
            let compression = data_type.is_buffer().then_some((26, 1));
            let want: Vec<_> = all_of(9..25)
                .chain(types)
                .chain(compression)
                .chain(all_of(BUFFER_HEADER_LEN - 4..BUFFER_HEADER_LEN))
                .collect();
            assert_eq!(sealed.believed(is_refusal_of_buffer), want, "{data_type:?} {compressed}");
        }
    }
}

#[test]
fn each_flipped_bit_of_a_task_event_is_refused_or_found_by_its_checksum() {
    let (channel, size) = (ChannelId(0x0102_0304), PAYLOAD.len() as u32);
    let sealed = Sealed::new(&Frame::TaskEvent(TaskEventHeader { channel, size, crc: 0 }));
    let believed = sealed.believed(|at, error| {
        use FrameError as E;
        match at {
            0..4 => {
                matches!(error, E::TooShort { .. } | E::TooLong { .. } | E::SizeMismatch { .. })
            }
            4..8 => matches!(error, E::BadMagic { .. }),
            // Two of the kinds that a flipped bit reaches have a length of their own.
            8 => matches!(
                error,
                E::UnknownId { .. }
                    | E::WrongDirection { .. }
                    | E::TooShort { .. }
                    | E::TooLong { .. }
            ),
            13..17 => matches!(error, E::SizeMismatch { .. }),
            _ => false,
        }
    });
    let want: Vec<_> =
        all_of(9..13).chain(all_of(TASK_EVENT_HEADER_LEN - 4..TASK_EVENT_HEADER_LEN)).collect();
    assert_eq!(believed, want);
}

/// The number that stands for the whole connection is one flipped bit away from this channel.
#[test]
fn a_flipped_bit_that_names_the_connection_is_refused() {
    let channel = ChannelId(0xFFFF_FFFE);
    let size = PAYLOAD.len() as u32;
    let buffer = header(channel.0, 0, DataType::DataBuffer, size);
    for frame in
        [Frame::Buffer(buffer), Frame::TaskEvent(TaskEventHeader { channel, size, crc: 0 })]
    {
        let mut bytes = Sealed::new(&frame).bytes;
        bytes[12] ^= 1;
        let side = if matches!(frame, Frame::Buffer(_)) { Side::Consumer } else { Side::Producer };
        assert_eq!(decode(side, &bytes), Err(FrameError::ReservedChannel));
    }
}
