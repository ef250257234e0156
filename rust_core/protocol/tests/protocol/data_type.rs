//! The table of data types.

use headgate_protocol::{DataType, Next, UnknownDataType};

#[test]
fn spec_2_10_table() {
    use DataType as D;
    // value, type, is a buffer, blocks upstream, has priority, requires an announcement
    let table = [
        (1, D::DataBuffer, true, false, false, false),
        (2, D::EventBuffer, false, false, false, false),
        (3, D::PrioritizedEventBuffer, false, false, true, false),
        (4, D::AlignedCheckpointBarrier, false, true, false, false),
        (5, D::TimeoutableAlignedCheckpointBarrier, false, true, false, true),
        (6, D::RecoveryCompletion, false, true, false, false),
        (7, D::EndOfSegment, false, false, false, false),
        (8, D::DataBufferWithClearEnd, true, false, false, false),
        (9, D::EndOfData, false, false, false, false),
        (10, D::EndOfPartition, false, false, false, false),
        (11, D::RecoveryMetadata, false, false, false, false),
    ];
    for (value, data_type, buffer, blocks, priority, announced) in table {
        assert_eq!(DataType::try_from(value), Ok(data_type));
        assert_eq!(data_type as u8, value);
        assert_eq!(data_type.is_buffer(), buffer, "{data_type:?}");
        assert_eq!(data_type.is_event(), !buffer, "{data_type:?}");
        assert_eq!(data_type.blocks_upstream(), blocks, "{data_type:?}");
        assert_eq!(data_type.has_priority(), priority, "{data_type:?}");
        assert_eq!(data_type.requires_announcement(), announced, "{data_type:?}");
        assert!(!(priority && announced), "{data_type:?}");
        let next = if buffer { Next::Data } else { Next::Event };
        assert_eq!(Next::from(Some(data_type)), next);
    }
    assert_eq!(Next::from(None), Next::None);
    for value in (0..=u8::MAX).filter(|value| !(1..=11).contains(value)) {
        assert_eq!(DataType::try_from(value), Err(UnknownDataType(value)));
    }
}
