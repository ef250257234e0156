//! Frames for the tests, and a driver that decodes them.

use std::num::NonZeroU32;

use headgate_protocol::{
    BufferHeader, ChannelId, DataType, ErrorFrame, Frame, FrameDecoder, FrameError, FrameMask,
    Generation, LentBuffer, PartitionId, PartitionRequest, Sequence, TaskEventHeader,
};
use proptest::prelude::*;

pub(crate) fn header(channel: u32, sequence: u32, data_type: DataType, size: u32) -> BufferHeader {
    BufferHeader {
        channel: ChannelId(channel),
        generation: Generation(0),
        sequence: Sequence(sequence),
        backlog: 0,
        data_type,
        compressed: false,
        size,
        crc: 0,
    }
}

pub(crate) fn credit(credit: u32) -> NonZeroU32 {
    NonZeroU32::new(credit).unwrap()
}

pub(crate) fn request() -> PartitionRequest {
    PartitionRequest {
        partition: PartitionId([0xA5; 16]),
        subpartition: 7,
        channel: ChannelId(3),
        generation: Generation(2),
        initial_credit: 5,
        schema_hash: [0x5A; 32],
    }
}

pub(crate) fn lent() -> LentBuffer {
    LentBuffer {
        channel: ChannelId(0x0102_0304),
        generation: Generation(0x1112_1314),
        sequence: Sequence(0x2122_2324),
        backlog: 0x3132_3334,
        data_type: DataType::DataBufferWithClearEnd,
        size: 0x40,
        loan: 0x5152_5354_5556_5758,
        region: 0x6162_6364,
        offset: 0x7172_7374_7576_7778,
    }
}

/// Encodes a frame, with a payload of its size.
pub(crate) fn wire(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(FrameMask::default(), &mut out);
    out.resize(out.len() + payload_len(frame), 0xEE);
    out
}

/// Number of payload bytes after a frame.
pub(crate) fn payload_len(frame: &Frame) -> usize {
    match frame {
        Frame::Buffer(header) => header.size as usize,
        Frame::TaskEvent(header) => header.size as usize,
        _ => 0,
    }
}

/// Computes CRC32C bit by bit, after its definition.
pub(crate) fn crc32c_by_bits(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    !crc
}

/// Replaces the CRC of a frame by that of its bytes.
pub(crate) fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame.truncate(frame.len() - 4);
    let crc = crc32c_by_bits(&frame);
    frame.extend(crc.to_be_bytes());
    frame
}

/// Decodes all frames of a stream that arrives in pieces, skipping payloads as a driver does.
pub(crate) fn decode_pieces<'a>(
    decoder: &mut FrameDecoder,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Frame>, FrameError> {
    let (mut frames, mut payload) = (Vec::new(), 0);
    for mut piece in pieces {
        loop {
            let skipped = piece.len().min(payload);
            piece = &piece[skipped..];
            payload -= skipped;
            if payload > 0 {
                break;
            }
            let Some(frame) = decoder.decode(&mut piece)? else {
                assert!(piece.is_empty(), "bytes are left though the decoder wants more");
                break;
            };
            payload = payload_len(&frame);
            frames.push(frame);
        }
    }
    Ok(frames)
}

fn channels() -> impl Strategy<Value = ChannelId> {
    (0..u32::MAX).prop_map(ChannelId)
}

fn buffers() -> impl Strategy<Value = Frame> {
    let numbers = (channels(), any::<[u32; 4]>(), any::<bool>());
    (numbers, 1u8..=11, 1u32..=64).prop_map(|((channel, numbers, compressed), data_type, size)| {
        let [generation, sequence, backlog, crc] = numbers;
        let data_type = DataType::try_from(data_type).unwrap();
        Frame::Buffer(BufferHeader {
            channel,
            generation: Generation(generation),
            sequence: Sequence(sequence),
            backlog,
            data_type,
            compressed: compressed && data_type.is_buffer(),
            size,
            crc,
        })
    })
}

/// Generates any frame for a consumer.
pub(crate) fn to_consumer() -> impl Strategy<Value = Frame> {
    let errors = (proptest::option::of(channels()), any::<u16>(), ".{0,40}");
    let errors =
        errors.prop_map(|(channel, code, text)| Frame::Error(ErrorFrame::new(channel, code, text)));
    let backlogs = (1..=u32::MAX, channels()).prop_map(|(backlog, channel)| {
        Frame::BacklogAnnouncement { backlog: credit(backlog), channel }
    });
    let regions = (any::<u32>(), any::<u64>());
    let regions = regions.prop_map(|(region, size)| Frame::Region { region, size });
    let loans = (channels(), any::<[u32; 4]>(), any::<[u64; 2]>(), 1..=64_u32);
    let loans = loans.prop_map(|(channel, numbers, [loan, offset], size)| {
        let [generation, sequence, backlog, region] = numbers;
        let (generation, sequence) = (Generation(generation), Sequence(sequence));
        let place = LentBuffer { loan, region, offset, ..lent() };
        Frame::LentBuffer(LentBuffer { channel, generation, sequence, backlog, size, ..place })
    });
    let rare = prop_oneof![regions, loans, Just(Frame::Heartbeat), Just(Frame::Lease)];
    prop_oneof![buffers(), errors, backlogs, rare]
}

/// Generates any frame for a producer.
pub(crate) fn to_producer() -> impl Strategy<Value = Frame> {
    let credits = (1..=u32::MAX).prop_map(credit);
    let requests = (any::<[u8; 16]>(), any::<[u32; 2]>(), channels(), any::<u32>());
    let task_events = (channels(), 1u32..=64, any::<u32>())
        .prop_map(|(channel, size, crc)| Frame::TaskEvent(TaskEventHeader { channel, size, crc }));
    let sizes = (credits.clone(), channels());
    let requests = (requests, any::<[u8; 32]>()).prop_map(|(request, schema_hash)| {
        let (partition, [subpartition, generation], channel, initial_credit) = request;
        Frame::PartitionRequest(PartitionRequest {
            partition: PartitionId(partition),
            subpartition,
            channel,
            generation: Generation(generation),
            initial_credit,
            schema_hash,
        })
    });
    prop_oneof![
        requests,
        channels().prop_map(|channel| Frame::CancelPartitionRequest { channel }),
        Just(Frame::CloseRequest),
        (credits, channels()).prop_map(|(credit, channel)| Frame::AddCredit { credit, channel }),
        task_events,
        channels().prop_map(|channel| Frame::ResumeConsumption { channel }),
        channels().prop_map(|channel| Frame::AckAllUserRecordsProcessed { channel }),
        sizes.prop_map(|(size, channel)| Frame::NewBufferSize { size, channel }),
        Just(Frame::Heartbeat),
        any::<u64>().prop_map(|loan| Frame::Return { loan }),
    ]
}
