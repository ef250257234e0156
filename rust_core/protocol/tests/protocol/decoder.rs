//! The decoder refuses every invalid frame, from pieces of any length.

use headgate_protocol::{
    ChannelId, DataType, ErrorFrame, Frame, FrameDecoder, FrameError, FrameKind, FrameMask, Limits,
    MAX_ERROR_TEXT, Side, TaskEventHeader,
};
use proptest::prelude::*;

use crate::frames::{
    crc32c_by_bits, credit, decode_pieces, header, lent, payload_len, request, sealed, to_consumer,
    to_producer, wire,
};

const LIMITS: Limits = Limits { max_frame: 4096, max_payload: 1024 };
/// The mask that changes nothing, so that tests can state checksums.
const MASK: FrameMask = FrameMask::new([0; 4]);

fn decoder(side: Side) -> FrameDecoder {
    FrameDecoder::new(LIMITS, side, MASK)
}

fn data(size: u32) -> Vec<u8> {
    wire(&Frame::Buffer(header(1, 0, DataType::DataBuffer, size)))
}

fn task_event(size: u32) -> Vec<u8> {
    wire(&Frame::TaskEvent(TaskEventHeader { channel: ChannelId(1), size, crc: 0 }))
}

fn add_credit() -> Vec<u8> {
    wire(&Frame::AddCredit { credit: credit(1), channel: ChannelId(1) })
}

/// Replaces some bytes.
fn patched(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn spec_9_02_every_defect_has_its_error() {
    use FrameError as E;
    let channel = ChannelId(1);
    let (c, p) = (Side::Consumer, Side::Producer);
    let error = wire(&Frame::Error(ErrorFrame::new(None, 1, "ab")));
    let open = wire(&Frame::PartitionRequest(request()));
    let cancel = wire(&Frame::CancelPartitionRequest { channel });
    let event = wire(&Frame::Buffer(header(1, 0, DataType::EndOfData, 5)));
    let long = (21 + MAX_ERROR_TEXT as u32 + 1).to_be_bytes();
    let all = u32::MAX.to_be_bytes();
    let zero = [0; 4];
    let credit_kind = FrameKind::AddCredit;
    let cases: Vec<(Side, Vec<u8>, FrameError)> = vec![
        (c, patched(data(1), 4, &[0xBB]), E::BadMagic { got: 0xBBDC_0FFE }),
        (p, patched(add_credit(), 8, &[11]), E::UnknownId { id: 11 }),
        (p, patched(add_credit(), 8, &[17]), E::UnknownId { id: 17 }),
        (p, data(1), E::WrongDirection { kind: FrameKind::Buffer, side: p }),
        (p, error.clone(), E::WrongDirection { kind: FrameKind::Error, side: p }),
        (c, add_credit(), E::WrongDirection { kind: credit_kind, side: c }),
        (c, open.clone(), E::WrongDirection { kind: FrameKind::PartitionRequest, side: c }),
        (
            p,
            patched(add_credit(), 3, &[20]),
            E::TooShort { kind: credit_kind, length: 20, least: 21 },
        ),
        (
            p,
            patched(add_credit(), 3, &[22]),
            E::TooLong { kind: credit_kind, length: 22, limit: 21 },
        ),
        (
            c,
            patched(data(1), 0, &all),
            E::TooLong { kind: FrameKind::Buffer, length: u32::MAX, limit: 4096 },
        ),
        (
            c,
            patched(data(1), 0, &zero),
            E::TooShort { kind: FrameKind::Buffer, length: 0, least: 35 },
        ),
        (
            c,
            patched(error.clone(), 0, &long),
            E::TooLong { kind: FrameKind::Error, length: 1046, limit: 1045 },
        ),
        (c, data(1025), E::PayloadTooLarge { channel, size: 1025, limit: 1024 }),
        (
            c,
            patched(data(1), 27, &all),
            E::PayloadTooLarge { channel, size: u32::MAX, limit: 1024 },
        ),
        (c, patched(data(1), 3, &[37]), E::SizeMismatch { channel, length: 37, size: 1 }),
        (c, patched(data(1), 30, &[2]), E::SizeMismatch { channel, length: 36, size: 2 }),
        (c, patched(data(1), 25, &[0]), E::UnknownDataType { channel, data_type: 0 }),
        (c, patched(data(1), 25, &[12]), E::UnknownDataType { channel, data_type: 12 }),
        (c, patched(data(1), 26, &[2]), E::CompressedByte { channel, got: 2 }),
        (c, patched(data(1), 26, &[255]), E::CompressedByte { channel, got: 255 }),
        (
            c,
            patched(event.clone(), 26, &[1]),
            E::CompressedEvent { channel, data_type: DataType::EndOfData },
        ),
        (
            c,
            patched(patched(event, 3, &[35]), 30, &[0]),
            E::EmptyEvent { channel, data_type: DataType::EndOfData },
        ),
        (c, patched(data(1), 9, &all), E::ReservedChannel),
        (p, sealed(patched(add_credit(), 13, &all)), E::ReservedChannel),
        (p, sealed(patched(cancel, 9, &all)), E::ReservedChannel),
        (p, sealed(patched(open.clone(), 29, &all)), E::ReservedChannel),
        (p, sealed(patched(add_credit(), 9, &zero)), E::Zero { kind: FrameKind::AddCredit }),
        (p, patched(task_event(1), 3, &[23]), E::SizeMismatch { channel, length: 23, size: 1 }),
        (p, patched(task_event(1), 9, &all), E::ReservedChannel),
        (p, patched(patched(task_event(1), 3, &[21]), 16, &[0]), E::EmptyTaskEvent { channel }),
        (p, task_event(1025), E::TooLong { kind: FrameKind::TaskEvent, length: 1046, limit: 1045 }),
        (c, task_event(1), E::WrongDirection { kind: FrameKind::TaskEvent, side: Side::Consumer }),
        (c, patched(error.clone(), 16, &[3]), E::TextMismatch { length: 23, text: 3 }),
        (c, patched(error.clone(), 16, &[1]), E::TextMismatch { length: 23, text: 1 }),
        (c, sealed(patched(error, 17, &[0xFF])), E::TextNotUtf8),
        (
            c,
            sealed(patched(wire(&Frame::LentBuffer(lent())), 25, &[9])),
            E::LentEvent { channel: lent().channel, data_type: DataType::EndOfData },
        ),
        (
            c,
            sealed(patched(wire(&Frame::LentBuffer(lent())), 26, &zero)),
            E::Zero { kind: FrameKind::LentBuffer },
        ),
        (
            c,
            sealed(patched(wire(&Frame::LentBuffer(lent())), 26, &all)),
            E::PayloadTooLarge { channel: lent().channel, size: u32::MAX, limit: 1024 },
        ),
        (
            p,
            wire(&Frame::LentBuffer(lent())),
            E::WrongDirection { kind: FrameKind::LentBuffer, side: p },
        ),
    ];
    for (side, bytes, want) in cases {
        let mut decoder = decoder(side);
        let mut input = bytes.as_slice();
        assert_eq!(decoder.decode(&mut input), Err(want.clone()));
        let good = data(1);
        assert_eq!(decoder.decode(&mut good.as_slice()), Err(want), "the same error again");
    }
}

/// One frame of each kind that ends with a CRC, and its receiving side.
fn control_frames() -> Vec<(Side, Frame)> {
    let channel = ChannelId(0x0102_0304);
    let error = |text: &str| Frame::Error(ErrorFrame::new(Some(channel), 3006, text));
    vec![
        (Side::Consumer, error("")),
        (Side::Consumer, error("it broke, as things with wheels and springs do in the end: é")),
        (Side::Consumer, error(&"x".repeat(MAX_ERROR_TEXT))),
        (Side::Producer, Frame::PartitionRequest(request())),
        (Side::Producer, Frame::CancelPartitionRequest { channel }),
        (Side::Producer, Frame::CloseRequest),
        (Side::Producer, Frame::AddCredit { credit: credit(7), channel }),
        (Side::Producer, Frame::ResumeConsumption { channel }),
        (Side::Producer, Frame::AckAllUserRecordsProcessed { channel }),
        (Side::Consumer, Frame::BacklogAnnouncement { backlog: credit(7), channel }),
        (Side::Producer, Frame::NewBufferSize { size: credit(7), channel }),
        (Side::Consumer, Frame::Heartbeat),
        (Side::Consumer, Frame::Lease),
        (Side::Consumer, Frame::Region { region: 7, size: 1 << 40 }),
        (Side::Consumer, Frame::LentBuffer(lent())),
        (Side::Producer, Frame::Return { loan: 1 << 40 }),
        (Side::Producer, Frame::Heartbeat),
    ]
}

#[test]
fn a_wrong_crc_names_its_frame() {
    for (side, frame) in control_frames() {
        let bytes = wire(&frame);
        let want = crc32c_by_bits(&bytes[..bytes.len() - 4]);
        let wrong = patched(bytes.clone(), bytes.len() - 4, &(!want).to_be_bytes());
        let error = FrameError::Checksum { kind: frame.kind(), got: !want, want };
        assert!(error.to_string().contains(&format!("{:?} frame", frame.kind())));
        assert_eq!(decoder(side).decode(&mut wrong.as_slice()), Err(error));
    }
}

#[test]
fn the_crc_is_checked_before_the_body() {
    let bytes = patched(add_credit(), 9, &[0; 8]);
    let want = crc32c_by_bits(&bytes[..17]);
    let mut decoder = decoder(Side::Producer);
    assert_eq!(decoder.decode(&mut &bytes[..20]), Ok(None), "not before the last byte");
    let error = decoder.decode(&mut &bytes[20..]).unwrap_err();
    assert!(
        matches!(error, FrameError::Checksum { kind: FrameKind::AddCredit, want: w, .. } if w == want)
    );
}

/// No flipped bit may make the decoder wait for more bytes.
#[test]
fn each_flipped_bit_of_a_control_frame_is_an_error() {
    for (side, frame) in control_frames() {
        let good = wire(&frame);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for cut in [bytes.len(), 1, 7] {
                let decoded = decode_pieces(&mut decoder(side), bytes.chunks(cut));
                assert!(decoded.is_err(), "bit {bit} of {frame:?}: {decoded:?}");
            }
        }
    }
}

#[test]
fn a_control_frame_may_be_cut_anywhere() {
    for (side, frame) in control_frames() {
        // A second one shows that none of its bytes was taken for the first.
        let bytes = wire(&frame).repeat(2);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            let mut decoder = decoder(side);
            let decoded = decode_pieces(&mut decoder, [head, tail]);
            assert_eq!(decoded, Ok(vec![frame.clone(), frame.clone()]), "cut at {at}");
            assert!(decoder.is_between_frames());
        }
        let decoded = decode_pieces(&mut decoder(side), bytes.chunks(1));
        assert_eq!(decoded, Ok(vec![frame.clone(), frame]));
    }
}

#[test]
fn a_control_frame_is_complete_with_its_last_byte() {
    for (side, frame) in control_frames() {
        let bytes = wire(&frame);
        let mut decoder = decoder(side);
        for (at, byte) in bytes.iter().enumerate() {
            assert!(decoder.missing() > 0 && decoder.missing() <= bytes.len() - at);
            let decoded = decoder.decode(&mut [*byte].as_slice()).unwrap();
            let last = at + 1 == bytes.len();
            assert_eq!(decoded, last.then(|| frame.clone()), "byte {at}");
            assert_eq!(decoder.is_between_frames(), last);
        }
    }
}

#[test]
fn limits_are_inclusive() {
    let empty = Frame::Buffer(header(1, 0, DataType::DataBuffer, 0));
    let full = Frame::Buffer(header(1, 0, DataType::DataBuffer, 1024));
    for frame in [empty, full.clone()] {
        let decoded = decode_pieces(&mut decoder(Side::Consumer), [wire(&frame).as_slice()]);
        assert_eq!(decoded, Ok(vec![frame]));
    }
    // The frame limit holds on its own, and a payload may reach it exactly.
    for (max_frame, legal) in [(35 + 1024, true), (35 + 1023, false)] {
        let limits = Limits { max_frame, max_payload: 1024 };
        let decoded =
            FrameDecoder::new(limits, Side::Consumer, MASK).decode(&mut wire(&full).as_slice());
        assert_eq!(decoded.is_ok(), legal, "{max_frame}");
    }
    let longest = Frame::Error(ErrorFrame::new(None, 1, "x".repeat(MAX_ERROR_TEXT)));
    let tiny = FrameDecoder::new(Limits::for_segment(1), Side::Consumer, MASK);
    assert_eq!(wire(&longest).len(), Limits::for_segment(1).max_frame as usize);
    assert_eq!(tiny.clone().decode(&mut wire(&longest).as_slice()), Ok(Some(longest)));
    let over = FrameError::PayloadTooLarge { channel: ChannelId(1), size: 2, limit: 1 };
    assert_eq!(tiny.clone().decode(&mut data(2).as_slice()), Err(over));
    assert_eq!(Limits::for_segment(u32::MAX).max_frame, u32::MAX);
}

#[test]
fn an_end_of_stream_within_a_frame_is_detected() {
    let bytes = data(1);
    let mut decoder = decoder(Side::Consumer);
    for at in 0..35 {
        assert_eq!(decoder.is_between_frames(), at == 0, "after {at} bytes");
        let decoded = decoder.decode(&mut &bytes[at..=at]).unwrap();
        assert_eq!(decoded.is_some(), at == 34);
    }
    assert!(decoder.is_between_frames());
}

proptest! {
    #[test]
    fn spec_9_02_a_cut_changes_nothing(
        frames in prop::collection::vec(to_consumer(), 1..8),
        answers in prop::collection::vec(to_producer(), 1..8),
        sizes in prop::collection::vec(1usize..50, 1..40),
    ) {
        for (side, frames) in [(Side::Consumer, frames), (Side::Producer, answers)] {
            let stream: Vec<u8> = frames.iter().flat_map(wire).collect();
            prop_assert_eq!(&decode_pieces(&mut decoder(side), [stream.as_slice()])?, &frames);
            prop_assert_eq!(&decode_pieces(&mut decoder(side), stream.chunks(1))?, &frames);
            let mut rest = stream.as_slice();
            let mut pieces = Vec::new();
            for size in sizes.iter().cycle() {
                let (piece, later) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = later;
                if rest.is_empty() { break; }
            }
            prop_assert_eq!(&decode_pieces(&mut decoder(side), pieces)?, &frames);
        }
    }

    /// A driver that reads no more than `missing` bytes never reads a byte of the payload.
    #[test]
    fn missing_bytes_end_where_the_frame_ends(frame in prop_oneof![to_consumer(), to_producer()]) {
        let side = match frame {
            Frame::Buffer(_)
            | Frame::Error(_)
            | Frame::BacklogAnnouncement { .. }
            | Frame::Lease
            | Frame::Region { .. }
            | Frame::LentBuffer(_) => Side::Consumer,
            _ => Side::Producer,
        };
        let mut decoder = decoder(side);
        let bytes = wire(&frame);
        let payload = payload_len(&frame);
        let mut rest = bytes.as_slice();
        let decoded = loop {
            prop_assert!(decoder.missing() > 0);
            let (mut piece, later) = rest.split_at(decoder.missing());
            rest = later;
            let decoded = decoder.decode(&mut piece)?;
            prop_assert!(piece.is_empty());
            if let Some(decoded) = decoded { break decoded; }
        };
        prop_assert_eq!(decoded, frame);
        prop_assert_eq!(rest.len(), payload);
        prop_assert_eq!(decoder.missing(), 9);
    }

    #[test]
    fn noise_is_an_error_or_a_frame(bytes in prop::collection::vec(any::<u8>(), 0..2048), is_frame: bool) {
        let mut bytes = bytes;
        // Behind a good magic the noise reaches the checks that come after it.
        if is_frame && bytes.len() >= 9 {
            let (length, id) = (bytes[3], bytes[8] % 8);
            bytes[..9].copy_from_slice(&[0, 0, 0, length, 0xBA, 0xDC, 0x0F, 0xFE, id]);
        }
        for side in [Side::Consumer, Side::Producer] {
            let whole = decode_pieces(&mut decoder(side), [bytes.as_slice()]);
            let cut = decode_pieces(&mut decoder(side), bytes.chunks(1));
            prop_assert_eq!(whole, cut);
        }
    }

    /// A sender that computes the right CRC still cannot send an invalid body.
    #[test]
    fn noise_with_a_good_crc_is_an_error_or_that_frame(noise in prop::collection::vec(any::<u8>(), 64..1033)) {
        for (id, length) in [(1, 13 + noise.len()), (2, 77), (4, 17), (5, 13), (6, 21)] {
            let mut bytes = [&[0, 0, 0, 0, 0xBA, 0xDC, 0x0F, 0xFE, id], &noise[..length - 13], &[0; 4]].concat();
            bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
            if id == 1 {
                bytes[15..17].copy_from_slice(&((length - 21) as u16).to_be_bytes());
            }
            let bytes = sealed(bytes);
            let side = if id == 1 { Side::Consumer } else { Side::Producer };
            match decoder(side).decode(&mut bytes.as_slice()) {
                Ok(frame) => prop_assert_eq!(wire(&frame.unwrap()), bytes),
                Err(error) => prop_assert!(!matches!(error, FrameError::Checksum { .. }), "{error}"),
            }
        }
    }

    /// A flipped bit is detected, or gives another valid frame within the limits.
    #[test]
    fn a_flipped_bit_stays_within_limits(frame in to_consumer(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = wire(&frame);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        if let Ok(Some(decoded)) = decoder(Side::Consumer).decode(&mut bytes.as_slice()) {
            let payload = if let Frame::Buffer(header) = &decoded { header.size } else { 0 };
            prop_assert!(payload <= LIMITS.max_payload);
            let in_payload = matches!(frame, Frame::Buffer(_)) && at >= 35;
            prop_assert_eq!(decoded == frame, in_payload);
        }
    }
}
