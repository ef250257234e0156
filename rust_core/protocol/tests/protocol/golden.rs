//! The exact bytes of every frame: a change breaks the protocol between versions.

use headgate_protocol::{
    BUFFER_HEADER_LEN, BufferHeader, CRC_OFFSET, ChannelId, DataType, ErrorFrame, Frame,
    FrameDecoder, FrameError, FrameKind, FrameMask, Generation, Limits, MAX_ERROR_TEXT,
    MAX_PAYLOAD, Sequence, Side, TASK_EVENT_CRC_OFFSET, TASK_EVENT_HEADER_LEN, TaskEventHeader,
    Totals, TotalsError,
};

use crate::frames::{credit, header, lent, request, sealed};
use crate::hex;

const LIMITS: Limits = Limits::for_segment(1 << 20);

/// Asserts that the frame encodes to these bytes, and that they decode to the frame.
fn check(frame: &Frame, side: Side, text: &str) {
    let want = hex(text);
    let mut got = Vec::new();
    frame.encode(FrameMask::default(), &mut got);
    assert_eq!(got, want, "{frame:?}");
    if !matches!(frame, Frame::Buffer(_) | Frame::TaskEvent(_)) {
        assert_eq!(sealed(got), want, "the CRC as computed by the test");
    }
    let decoded =
        FrameDecoder::new(LIMITS, side, FrameMask::default()).decode(&mut want.as_slice());
    assert_eq!(decoded.unwrap().as_ref(), Some(frame));
}

#[test]
fn buffer() {
    let header = BufferHeader {
        channel: ChannelId(0x0102_0304),
        generation: Generation(0x1112_1314),
        sequence: Sequence(0x2122_2324),
        backlog: 0x3132_3334,
        data_type: DataType::DataBufferWithClearEnd,
        compressed: false,
        size: 0x0004_0000,
        crc: 0x4142_4344,
    };
    let text = "00040023 BADC0FFE 00 01020304 11121314 21222324 31323334 08 00 00040000 41424344";
    check(&Frame::Buffer(header), Side::Consumer, text);
    let text = "00040023 BADC0FFE 00 01020304 11121314 21222324 31323334 08 01 00040000 41424344";
    check(&Frame::Buffer(BufferHeader { compressed: true, ..header }), Side::Consumer, text);
    assert_eq!(header.encode().len(), BUFFER_HEADER_LEN);
    assert_eq!(header.encode()[..CRC_OFFSET], header.prefix_for_crc());
    assert_eq!(header.encode()[CRC_OFFSET..], hex("41424344"));
}

#[test]
fn error_of_a_channel_and_of_the_connection() {
    let of_channel = ErrorFrame::new(Some(ChannelId(9)), 3006, "gone");
    let text = "00000019 BADC0FFE 01 00000009 0BBE 0004 676F6E65 CCA831FB";
    check(&Frame::Error(of_channel), Side::Consumer, text);
    let of_connection = ErrorFrame::new(None, 9001, "");
    let text = "00000015 BADC0FFE 01 FFFFFFFF 2329 0000 A33E7E42";
    check(&Frame::Error(of_connection), Side::Consumer, text);
}

#[test]
fn partition_request() {
    let text = format!(
        "0000004D BADC0FFE 02 {} 00000007 00000003 00000002 00000005 {} A1CCB93A",
        "A5".repeat(16),
        "5A".repeat(32)
    );
    check(&Frame::PartitionRequest(request()), Side::Producer, &text);
}

#[test]
fn spec_9_01_cancel_close_and_credit() {
    let cancel = Frame::CancelPartitionRequest { channel: ChannelId(3) };
    check(&cancel, Side::Producer, "00000011 BADC0FFE 04 00000003 A12906CF");
    check(&Frame::CloseRequest, Side::Producer, "0000000D BADC0FFE 05 9D5E7E77");
    let grant = Frame::AddCredit { credit: credit(2), channel: ChannelId(3) };
    check(&grant, Side::Producer, "00000015 BADC0FFE 06 00000002 00000003 BDA81B9C");
}

#[test]
fn task_event() {
    let (channel, size, crc) = (ChannelId(0x0102_0304), 0x0000_0102, 0x4142_4344);
    let header = TaskEventHeader { channel, size, crc };
    let text = "00000117 BADC0FFE 03 01020304 00000102 41424344";
    check(&Frame::TaskEvent(header), Side::Producer, text);
    assert_eq!(header.encode().len(), TASK_EVENT_HEADER_LEN);
    assert_eq!(header.encode()[..TASK_EVENT_CRC_OFFSET], header.prefix_for_crc());
}

#[test]
fn spec_9_01_resume_acknowledge_backlog_size_and_heartbeat() {
    let channel = ChannelId(3);
    let resume = Frame::ResumeConsumption { channel };
    check(&resume, Side::Producer, "00000011 BADC0FFE 07 00000003 E91AB63B");
    let acknowledge = Frame::AckAllUserRecordsProcessed { channel };
    check(&acknowledge, Side::Producer, "00000011 BADC0FFE 08 00000003 840BB3EE");
    let backlog = Frame::BacklogAnnouncement { backlog: credit(2), channel };
    check(&backlog, Side::Consumer, "00000015 BADC0FFE 09 00000002 00000003 C2BB2711");
    let size = Frame::NewBufferSize { size: credit(4096), channel };
    check(&size, Side::Producer, "00000015 BADC0FFE 0A 00001000 00000003 6B3AC45E");
    for side in [Side::Consumer, Side::Producer] {
        check(&Frame::Heartbeat, side, "0000000D BADC0FFE 0C E5ECA5BB");
    }
}

#[test]
fn lent_buffers() {
    check(&Frame::Lease, Side::Consumer, &sealed_text("0000000D BADC0FFE 0D"));
    let region = Frame::Region { region: 0x0102_0304, size: 0x1112_1314_1516_1718 };
    let text = "00000019 BADC0FFE 0E 01020304 1112131415161718";
    check(&region, Side::Consumer, &sealed_text(text));
    let text = "00000036 BADC0FFE 0F 01020304 11121314 21222324 31323334 08 00000040 \
        5152535455565758 61626364 7172737475767778";
    check(&Frame::LentBuffer(lent()), Side::Consumer, &sealed_text(text));
    let text = "00000015 BADC0FFE 10 5152535455565758";
    check(&Frame::Return { loan: lent().loan }, Side::Producer, &sealed_text(text));
    assert_eq!(lent().header(), BufferHeader { backlog: 0x3132_3334, ..header_of_lent() });
}

/// Appends the CRC of the bytes.
fn sealed_text(text: &str) -> String {
    sealed([hex(text), vec![0; 4]].concat()).iter().map(|byte| format!("{byte:02X}")).collect()
}

fn header_of_lent() -> BufferHeader {
    let lent = lent();
    let header = header(lent.channel.0, lent.sequence.0, lent.data_type, lent.size);
    BufferHeader { generation: lent.generation, ..header }
}

#[test]
fn the_mask_of_a_connection_and_of_another_one() {
    let mask = FrameMask::new([0x01, 0x02, 0x03, 0x04]);
    let mut got = Vec::new();
    Frame::CloseRequest.encode(mask, &mut got);
    assert_eq!(got, hex("0000000D BADC0FFE 05 9C5C7D73"));
    let decode = |mask| FrameDecoder::new(LIMITS, Side::Producer, mask).decode(&mut got.as_slice());
    assert_eq!(decode(mask), Ok(Some(Frame::CloseRequest)));
    let refused = decode(FrameMask::new([0x01, 0x02, 0x03, 0x05]));
    let (got, want) = (0x9C5C_7D73, 0x9C5C_7D72);
    assert_eq!(refused, Err(FrameError::Checksum { kind: FrameKind::CloseRequest, got, want }));
}

#[test]
fn totals() {
    let totals = Totals { rows: 1, bytes: 0x0203, buffers: 4 };
    let bytes = hex("0000000000000001 0000000000000203 0000000000000004");
    assert_eq!(totals.encode().as_slice(), bytes);
    let with_tail = [bytes.as_slice(), &[0, 0, 0]].concat();
    assert_eq!(Totals::decode(&with_tail), Ok(totals), "bytes behind an event are ignored");
    assert_eq!(Totals::decode(&bytes[..23]), Err(TotalsError { got: 23 }));
}

#[test]
fn error_text_is_cut_at_a_character() {
    // After 1023 bytes a character of two bytes does not fit, and half of it is not UTF-8.
    let text = format!("{}é", "x".repeat(MAX_ERROR_TEXT - 1));
    let frame = ErrorFrame::new(None, 1, text);
    assert_eq!(frame.text(), "x".repeat(MAX_ERROR_TEXT - 1));
    assert_eq!(ErrorFrame::new(None, 1, "x".repeat(5000)).text().len(), MAX_ERROR_TEXT);
    assert_eq!(ErrorFrame::new(Some(ChannelId::CONNECTION), 1, "").channel(), None);
}

#[test]
fn largest_payload_fills_the_length_field() {
    let largest = header(0, 0, DataType::DataBuffer, MAX_PAYLOAD);
    assert_eq!(largest.encode()[..4], [0xFF; 4]);
}

#[test]
#[should_panic(expected = "payload of 4294967261 bytes")]
fn larger_payload_panics() {
    let _ = header(0, 0, DataType::DataBuffer, MAX_PAYLOAD + 1).encode();
}
