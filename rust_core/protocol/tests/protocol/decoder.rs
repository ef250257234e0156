//! The decoder believes nothing, wherever the bytes are cut.

use headgate_protocol::{
    ChannelId, DataType, ErrorFrame, Frame, FrameDecoder, FrameError, FrameKind, Limits,
    MAX_ERROR_TEXT, Side,
};
use proptest::prelude::*;

use crate::frames::{credit, decode_pieces, header, request, to_consumer, to_producer, wire};

const LIMITS: Limits = Limits { max_frame: 4096, max_payload: 1024 };

fn decoder(side: Side) -> FrameDecoder {
    FrameDecoder::new(LIMITS, side)
}

fn data(size: u32) -> Vec<u8> {
    wire(&Frame::Buffer(header(1, 0, DataType::DataBuffer, size)))
}

fn add_credit() -> Vec<u8> {
    wire(&Frame::AddCredit { credit: credit(1), channel: ChannelId(1) })
}

/// The bytes with some of them replaced.
fn patched(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn every_defect_has_its_error() {
    use FrameError as E;
    let channel = ChannelId(1);
    let (c, p) = (Side::Consumer, Side::Producer);
    let error = wire(&Frame::Error(ErrorFrame::new(None, 1, "ab")));
    let open = wire(&Frame::PartitionRequest(request()));
    let cancel = wire(&Frame::CancelPartitionRequest { channel });
    let event = wire(&Frame::Buffer(header(1, 0, DataType::EndOfData, 5)));
    let long = (17 + MAX_ERROR_TEXT as u32 + 1).to_be_bytes();
    let all = u32::MAX.to_be_bytes();
    let zero = [0; 4];
    let credit_kind = FrameKind::AddCredit;
    let cases: Vec<(Side, Vec<u8>, FrameError)> = vec![
        (c, patched(data(1), 4, &[0xBB]), E::BadMagic { got: 0xBBDC_0FFE }),
        (p, patched(add_credit(), 8, &[3]), E::UnknownId { id: 3 }),
        (p, patched(add_credit(), 8, &[7]), E::UnknownId { id: 7 }),
        (p, data(1), E::WrongDirection { kind: FrameKind::Buffer, side: p }),
        (p, error.clone(), E::WrongDirection { kind: FrameKind::Error, side: p }),
        (c, add_credit(), E::WrongDirection { kind: credit_kind, side: c }),
        (c, open.clone(), E::WrongDirection { kind: FrameKind::PartitionRequest, side: c }),
        (
            p,
            patched(add_credit(), 3, &[16]),
            E::TooShort { kind: credit_kind, length: 16, least: 17 },
        ),
        (
            p,
            patched(add_credit(), 3, &[18]),
            E::TooLong { kind: credit_kind, length: 18, limit: 17 },
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
            E::TooLong { kind: FrameKind::Error, length: 1042, limit: 1041 },
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
        (c, patched(data(1), 26, &[1]), E::ReservedByte { channel, got: 1 }),
        (
            c,
            patched(patched(event, 3, &[35]), 30, &[0]),
            E::EmptyEvent { channel, data_type: DataType::EndOfData },
        ),
        (c, patched(data(1), 9, &all), E::ReservedChannel),
        (p, patched(add_credit(), 13, &all), E::ReservedChannel),
        (p, patched(cancel, 9, &all), E::ReservedChannel),
        (p, patched(open.clone(), 29, &all), E::ReservedChannel),
        (p, patched(add_credit(), 9, &zero), E::ZeroCredit),
        (p, patched(open, 37, &zero), E::ZeroCredit),
        (c, patched(error.clone(), 16, &[3]), E::TextMismatch { length: 19, text: 3 }),
        (c, patched(error.clone(), 16, &[1]), E::TextMismatch { length: 19, text: 1 }),
        (c, patched(error, 17, &[0xFF]), E::TextNotUtf8),
    ];
    for (side, bytes, want) in cases {
        let mut decoder = decoder(side);
        let mut input = bytes.as_slice();
        assert_eq!(decoder.decode(&mut input), Err(want.clone()));
        let good = data(1);
        assert_eq!(decoder.decode(&mut good.as_slice()), Err(want), "stays broken");
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
        let decoded = FrameDecoder::new(limits, Side::Consumer).decode(&mut wire(&full).as_slice());
        assert_eq!(decoded.is_ok(), legal, "{max_frame}");
    }
    let longest = Frame::Error(ErrorFrame::new(None, 1, "x".repeat(MAX_ERROR_TEXT)));
    let tiny = FrameDecoder::new(Limits::for_segment(1), Side::Consumer);
    assert_eq!(tiny.clone().decode(&mut wire(&longest).as_slice()), Ok(Some(longest)));
    let over = FrameError::PayloadTooLarge { channel: ChannelId(1), size: 2, limit: 1 };
    assert_eq!(tiny.clone().decode(&mut data(2).as_slice()), Err(over));
    assert_eq!(Limits::for_segment(u32::MAX).max_frame, u32::MAX);
}

#[test]
fn an_end_of_stream_within_a_frame_shows() {
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
    fn a_cut_changes_nothing(
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

    /// A driver that reads no more than is missing never holds a byte of the payload.
    #[test]
    fn missing_bytes_end_where_the_frame_ends(frame in to_consumer()) {
        let mut decoder = decoder(Side::Consumer);
        let bytes = wire(&frame);
        let payload = if let Frame::Buffer(header) = &frame { header.size as usize } else { 0 };
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

    /// A flipped bit is found, or gives another legal frame within the limits.
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
