//! Records that span buffers, with every buffer size and split.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

mod store;

use bytes::Bytes;
use headgate_record::{
    DeserializationResult, DeserializeError, SerializationResult, SpanningDeserializer,
    SpanningError, SpanningSerializer, SpillStore,
};
use proptest::prelude::*;
use store::{Store, unconsumed};

const LIMIT: usize = 1 << 20;

/// Writes records into full buffers of `size` bytes; the last one may be shorter.
fn cut(records: &[Bytes], size: usize) -> Vec<Bytes> {
    let mut serializer = SpanningSerializer::new(LIMIT);
    let mut buffers = Vec::new();
    let (mut buffer, mut filled) = (vec![0; size], 0);
    for record in records {
        serializer.set_record(record.clone()).unwrap();
        loop {
            let (written, result) = serializer.copy_to(&mut buffer[filled..]);
            filled += written;
            assert_eq!(result.is_full_record(), !serializer.has_data());
            assert_eq!(result.is_full_buffer(), filled == size);
            if result.is_full_buffer() {
                buffers.push(Bytes::from(std::mem::replace(&mut buffer, vec![0; size])));
                filled = 0;
            }
            if result.is_full_record() {
                break;
            }
        }
    }
    buffer.truncate(filled);
    if filled > 0 {
        buffers.push(buffer.into());
    }
    buffers
}

/// Reads buffers, and checks that no record is returned before its last byte.
fn read<S>(deserializer: &mut SpanningDeserializer<S>, buffers: &[Bytes]) -> Vec<Bytes>
where
    S: SpillStore<Error: std::error::Error>,
{
    let (mut taken, mut given) = (deserializer.unconsumed_len(), 0);
    let mut records = Vec::new();
    for buffer in buffers {
        deserializer.set_next_buffer(buffer.clone()).unwrap();
        taken += buffer.len();
        loop {
            let result = deserializer.next_record().unwrap();
            let consumed = result.is_buffer_consumed();
            if let Some(record) = result.into_record() {
                given += 4 + record.len();
                assert!(given <= taken);
                records.push(record);
            }
            assert_eq!(deserializer.unconsumed_len(), taken - given);
            if consumed {
                break;
            }
        }
    }
    records
}

/// Lengths from 0 to 999 and some large ones, the same on each run.
fn many_records() -> Vec<Bytes> {
    let mut state = 12345_u32;
    (0..10_000)
        .map(|i: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = if i.is_multiple_of(1000) { 70_000 } else { (state >> 16) % 1000 };
            let length = if i.is_multiple_of(7) { length % 5 } else { length };
            (0..length).map(|j| (i + j).to_le_bytes()[0]).collect()
        })
        .collect()
}

#[test]
fn spec_6_01_ten_thousand_records_at_each_buffer_size() {
    let records = many_records();
    assert_eq!(records.len(), 10_000);
    for size in [1, 16, 31, 64, 127, 32_768] {
        let buffers = cut(&records, size);
        assert!(buffers.iter().rev().skip(1).all(|buffer| buffer.len() == size));
        let mut deserializer = SpanningDeserializer::new(LIMIT);
        let read = read(&mut deserializer, &buffers);
        assert!(read == records, "buffer size {size}");
        assert!(!deserializer.has_unconsumed());
    }
}

#[test]
fn spec_6_02_a_record_that_ends_with_the_buffer_fills_both() {
    let mut serializer = SpanningSerializer::new(LIMIT);
    serializer.set_record(Bytes::from_static(b"1234567")).unwrap();
    let mut buffer = [0; 11];
    let full = SerializationResult::FullRecordMemorySegmentFull;
    assert_eq!(serializer.copy_to(&mut buffer), (11, full));
    assert_eq!(&buffer, b"\0\0\0\x071234567");
    serializer.set_record(Bytes::new()).unwrap();
    let partial = SerializationResult::PartialRecordMemorySegmentFull;
    assert_eq!(serializer.copy_to(&mut []), (0, partial));
    assert_eq!(serializer.copy_to(&mut buffer), (4, SerializationResult::FullRecord));
    assert_eq!(&buffer[..4], [0; 4]);
}

#[test]
fn a_record_within_one_buffer_is_not_copied() {
    let buffers = cut(&[Bytes::from_static(b"abc"), Bytes::from_static(b"de")], 64);
    let buffer = buffers[0].clone();
    let mut deserializer = SpanningDeserializer::new(LIMIT);
    deserializer.set_next_buffer(buffer.clone()).unwrap();
    let first = deserializer.next_record().unwrap();
    assert!(matches!(&first, DeserializationResult::IntermediateRecordFromBuffer(_)));
    assert_eq!(first.into_record().unwrap().as_ptr(), buffer[4..].as_ptr());
    let last = deserializer.next_record().unwrap();
    assert_eq!(last, DeserializationResult::LastRecordFromBuffer(Bytes::from_static(b"de")));
    assert_eq!(deserializer.next_record().unwrap(), DeserializationResult::PartialRecord);
}

#[test]
fn spec_6_08_buffers_are_given_back_when_consumed_and_when_cleared() {
    let records = [Bytes::from_static(&[7; 20])];
    let mut deserializer = SpanningDeserializer::new(LIMIT);
    // With buffers of 3 bytes, the length prefix spans two.
    for buffer in cut(&records, 10).into_iter().chain(cut(&records, 3)) {
        assert!(buffer.is_unique());
        deserializer.set_next_buffer(buffer.clone()).unwrap();
        assert!(!buffer.is_unique());
        let result = deserializer.next_record().unwrap();
        assert!(result.is_buffer_consumed());
        assert!(buffer.is_unique());
    }
    let buffer = Bytes::from(vec![0; 5]);
    deserializer.set_next_buffer(buffer.clone()).unwrap();
    deserializer.clear();
    assert!(buffer.is_unique());
    assert!(!deserializer.has_unconsumed());
    assert_eq!(read(&mut deserializer, &cut(&records, 10)), records);
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    let mut deserializer = SpanningDeserializer::new(100);
    deserializer.set_next_buffer(Bytes::from_static(b"\0\0\0\x65")).unwrap();
    let too_large = SpanningError::RecordTooLarge { length: 101, limit: 100 };
    assert_eq!(deserializer.next_record(), Err(too_large.into()));
    assert_eq!(deserializer.next_record(), Err(too_large.into()));
    deserializer.clear();
    deserializer.set_next_buffer(Bytes::from_static(b"\xff\xff\xff\xfe")).unwrap();
    let negative = SpanningError::NegativeLength { length: -2 };
    assert_eq!(deserializer.next_record(), Err(negative.into()));

    let mut serializer = SpanningSerializer::new(100);
    serializer.set_record(Bytes::from(vec![0; 100])).unwrap();
    let busy = SpanningError::RecordNotWritten { bytes: 104 };
    assert_eq!(serializer.set_record(Bytes::new()), Err(busy));
    serializer.clear();
    assert_eq!(serializer.set_record(Bytes::from(vec![0; 101])), Err(too_large));
    assert!(!serializer.has_data());
}

#[test]
fn an_unconsumed_buffer_is_not_replaced() {
    let mut deserializer = SpanningDeserializer::new(LIMIT);
    deserializer.set_next_buffer(Bytes::from_static(b"\0\0\0\0\0\0\0\0")).unwrap();
    assert!(!deserializer.next_record().unwrap().is_buffer_consumed());
    let error = deserializer.set_next_buffer(Bytes::from_static(b"x")).unwrap_err();
    assert_eq!(error, SpanningError::BufferNotConsumed { bytes: 4 });
    let last = deserializer.next_record().unwrap();
    assert_eq!(last, DeserializationResult::LastRecordFromBuffer(Bytes::new()));
}

/// Splits a stream after each byte: the unconsumed bytes and the rest give the same records.
fn cut_everywhere<S>(make: impl Fn() -> SpanningDeserializer<S>)
where
    S: SpillStore<Error: std::error::Error>,
{
    let lengths = [0, 1, 70, 0, 3, 128, 5, 31, 27, 2];
    let records: Vec<Bytes> =
        (1u8..).zip(lengths).map(|(i, length)| Bytes::from(vec![i; length])).collect();
    let stream = cut(&records, 1).concat();
    for size in [1, 16, 31, 64, 127, 32_768] {
        for cut in 0..=stream.len() {
            let (before, after) = stream.split_at(cut);
            let before: Vec<_> = before.chunks(size).map(Bytes::copy_from_slice).collect();
            let mut deserializer = make();
            let mut got = read(&mut deserializer, &before);
            let returned: usize = got.iter().map(|record| 4 + record.len()).sum();
            let rest = unconsumed(&deserializer);
            assert_eq!(rest, stream[returned..cut], "size {size}, cut {cut}");
            drop(deserializer);
            let rest = [rest.into(), Bytes::copy_from_slice(after)];
            got.extend(read(&mut make(), &rest));
            assert_eq!(got, records, "size {size}, cut {cut}");
        }
    }
}

#[test]
fn spec_6_04_unconsumed_bytes_and_the_rest_give_the_same_records_at_each_cut() {
    cut_everywhere(|| SpanningDeserializer::new(LIMIT));
    let store = Store::default();
    cut_everywhere(|| SpanningDeserializer::spilling(LIMIT, 30, &store));
    assert!(store.created() > 1000);
    assert_eq!(store.open(), 0);
}

#[test]
fn spec_6_04_a_buffer_that_is_read_in_part_is_unconsumed_from_there_on() {
    let records: Vec<Bytes> = (1..5).map(|i| Bytes::from(vec![i; 9])).collect();
    let buffer = cut(&records, 1000).remove(0);
    let mut deserializer = SpanningDeserializer::new(LIMIT);
    deserializer.set_next_buffer(buffer.clone()).unwrap();
    for returned in 0..4 {
        assert_eq!(unconsumed(&deserializer), buffer[13 * returned..]);
        assert!(deserializer.next_record().unwrap().is_full_record());
    }
    assert!(!deserializer.has_unconsumed());
}

proptest! {
    #[test]
    fn any_records_survive_any_buffer_sizes_and_thresholds(
        lengths in prop::collection::vec(0usize..80, 1..12),
        sizes in prop::collection::vec(1usize..50, 1..8),
        threshold in 0usize..90,
    ) {
        let records: Vec<Bytes> =
            (0u8..).zip(&lengths).map(|(i, &length)| Bytes::from(vec![i; length])).collect();
        let mut rest = Bytes::from(cut(&records, 1).concat());
        let mut buffers = Vec::new();
        for &size in sizes.iter().cycle() {
            buffers.push(rest.split_to(size.min(rest.len())));
            if rest.is_empty() {
                break;
            }
        }
        let store = Store::default();
        let mut deserializer = SpanningDeserializer::spilling(LIMIT, threshold, &store);
        prop_assert_eq!(read(&mut deserializer, &buffers), records);
        prop_assert_eq!(store.open(), 0);
        let large = lengths.iter().filter(|&&length| length > threshold).count();
        prop_assert!(store.created() <= large);
    }

    #[test]
    fn any_bytes_are_records_or_an_error(
        buffers in prop::collection::vec(prop::collection::vec(0u8..4, 0..30), 0..10),
    ) {
        let mut deserializer = SpanningDeserializer::new(70_000);
        'stream: for buffer in buffers {
            deserializer.set_next_buffer(buffer.into()).unwrap();
            loop {
                match deserializer.next_record() {
                    Err(DeserializeError::Record(SpanningError::RecordTooLarge { length, limit })) => {
                        prop_assert!(length > limit);
                        break 'stream;
                    }
                    Err(error) => prop_assert!(false, "{error}"),
                    Ok(result) if result.is_buffer_consumed() => break,
                    Ok(_) => {}
                }
            }
        }
    }
}
