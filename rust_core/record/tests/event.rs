//! Events: golden bytes, sizes, round trips, and invalid input.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use bytes::Bytes;
use headgate_protocol::{Alignment, CheckpointId, CheckpointOptions};
use headgate_record::event::{Barrier, Event, EventError, StopMode};

const ALIGNMENTS: [Alignment; 4] = [
    Alignment::Aligned,
    Alignment::AtLeastOnce,
    Alignment::Timeoutable { timeout: 30_000 },
    Alignment::Unaligned,
];

fn barrier(alignment: Alignment, snapshot: &'static [u8]) -> Event {
    let options = CheckpointOptions { alignment, snapshot: Bytes::from_static(snapshot) };
    Event::CheckpointBarrier(Barrier { id: CheckpointId(1), timestamp: 2, options })
}

/// Every event, with its size in the table of the module.
fn events() -> Vec<(Event, usize)> {
    let custom = Event::Custom { name: "späße".to_owned(), body: Bytes::from_static(b"body") };
    let mut events = vec![
        (Event::EndOfPartition, 4),
        (barrier(Alignment::Aligned, b"file:/x"), 41),
        (Event::EndOfSuperstep, 4),
        (custom, 10 + 7 + 4),
        (Event::CancelCheckpointMarker { checkpoint_id: 5 }, 12),
        (Event::EndOfChannelState, 4),
        (Event::SubtaskConnectionDescriptor { input_subtask: 3, output_subtask: -4 }, 12),
        (Event::EndOfData(StopMode::Drain), 5),
        (Event::EndOfData(StopMode::NoDrain), 5),
        (Event::EndOfSegment, 4),
        (Event::RecoveryMetadata { final_buffer_index: 9 }, 8),
    ];
    events.extend(ALIGNMENTS.map(|alignment| (barrier(alignment, b""), 34)));
    let announced: Vec<_> = events
        .iter()
        .map(|(event, size)| {
            let announced = Box::new(event.clone());
            (Event::EventAnnouncement { sequence_number: 44, announced }, size + 8)
        })
        .collect();
    events.extend(announced);
    events
}

#[test]
fn spec_7_01_each_event_has_its_size_and_comes_back_also_with_padding() {
    for (event, size) in events() {
        let bytes = event.encode().unwrap();
        assert_eq!(bytes.len(), size, "{event:?}");
        assert_eq!(Event::decode(&bytes).unwrap(), event);
        let padded = [&bytes[..], &[0; 24]].concat();
        assert_eq!(Event::decode(&padded).unwrap(), event);
        for end in 0..size {
            let error = Event::decode(&bytes[..end]).unwrap_err();
            assert!(matches!(error, EventError::Incomplete { .. }), "{event:?} cut at {end}");
        }
    }
}

#[test]
fn spec_7_01_spec_7_02_golden_bytes() {
    let hex = |event: &Event| {
        let bytes = event.encode().unwrap();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(hex(&Event::EndOfPartition), "00000000");
    assert_eq!(
        hex(&Event::CancelCheckpointMarker { checkpoint_id: 5 }),
        "000000040000000000000005"
    );
    assert_eq!(
        hex(&barrier(Alignment::Aligned, b"")),
        "00000001000000000000000100000000000000020\
         0ffffffff017fffffffffffffff"
    );
    assert_eq!(
        hex(&barrier(Alignment::Timeoutable { timeout: 30_000 }, b"ab")),
        "00000001000000000000000100000000000000020\
         000000002616201\
         0000000000007530"
    );
    let descriptor = Event::SubtaskConnectionDescriptor { input_subtask: 3, output_subtask: -4 };
    assert_eq!(hex(&descriptor), "0000000700000003fffffffc");
    assert_eq!(hex(&Event::EndOfData(StopMode::NoDrain)), "0000000801");
    let custom = Event::Custom { name: "n".to_owned(), body: Bytes::from_static(b"\xff") };
    assert_eq!(hex(&custom), "0000000300016e00000001ff");
    let announced = Box::new(Event::EndOfSegment);
    let announcement = Event::EventAnnouncement { sequence_number: 258, announced };
    assert_eq!(hex(&announcement), "000000060000010200000009");
    assert_eq!(hex(&Event::RecoveryMetadata { final_buffer_index: 9 }), "0000000a00000009");
    assert_eq!(hex(&Event::EndOfSuperstep), "00000002");
    assert_eq!(hex(&Event::EndOfChannelState), "00000005");
}

#[test]
fn spec_7_04_what_means_nothing_is_refused() {
    let unknown = |field, code| Err(EventError::UnknownCode { field, code });
    assert_eq!(Event::decode(&[0, 0, 0, 99]), unknown("event", 99));
    assert_eq!(Event::decode(&[0xff; 4]), unknown("event", -1));
    assert_eq!(Event::decode(&[0, 0, 0, 8, 2]), unknown("stop mode", 2));
    let incomplete = EventError::Incomplete { at: 0, needed: 1, got: 3 };
    assert_eq!(Event::decode(&[0; 3]), Err(incomplete));
    assert_eq!(Event::decode(&[0, 0, 0, 3, 0, 1, 0xff, 0, 0, 0, 0]), Err(EventError::InvalidName));
    let nested = [0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(Event::decode(&nested), Err(EventError::NestedAnnouncement));

    let good = barrier(Alignment::Aligned, b"").encode().unwrap();
    for (at, value, field) in [(20, 1, "snapshot type"), (25, 3, "alignment type")] {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        assert_eq!(Event::decode(&bytes), unknown(field, value.into()));
    }
    let with_length = |length: i32| {
        let mut bytes = good.to_vec();
        bytes[21..25].copy_from_slice(&length.to_be_bytes());
        Event::decode(&bytes)
    };
    for length in [-2, 0] {
        let field = "description of a snapshot";
        assert_eq!(
            with_length(length),
            Err(EventError::InvalidLength { field, length: length.into() })
        );
    }
    assert!(matches!(with_length(i32::MAX), Err(EventError::Incomplete { at: 25, .. })));
}

#[test]
fn spec_section_7_2_only_an_aligned_barrier_has_a_timeout() {
    for timeout in [0, i64::MAX.unsigned_abs(), u64::MAX] {
        let error = barrier(Alignment::Timeoutable { timeout }, b"").encode().unwrap_err();
        assert!(matches!(error, EventError::Contradiction(_)), "{timeout}");
    }
    for (code, timeout) in [(0, 1), (1, 0), (1, -1), (2, 1), (2, 0)] {
        let mut bytes = barrier(Alignment::Aligned, b"").encode().unwrap().to_vec();
        bytes[25] = code;
        bytes[26..].copy_from_slice(&i64::to_be_bytes(timeout));
        let error = Event::decode(&bytes).unwrap_err();
        assert!(matches!(error, EventError::Contradiction(_)), "{code} {timeout}");
    }
}

/// The frame of an event has the checksum. Without it a flipped bit may make another event, but only the
/// one that the bytes stand for.
#[test]
fn each_flipped_bit_of_an_event_is_refused_or_makes_the_event_that_its_bytes_are() {
    let (mut refused, mut read) = (0, 0);
    for (event, size) in events() {
        let bytes = event.encode().unwrap();
        for bit in 0..8 * size {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match Event::decode(&flipped) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
                Ok(other) => {
                    assert_ne!(other, event, "bit {bit}");
                    // Bytes behind an event are ignored.
                    assert!(flipped.starts_with(&other.encode().unwrap()), "bit {bit}: {other:?}");
                    read += 1;
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} refused, {read} read");
}

#[test]
fn a_length_beyond_its_field_is_rejected() {
    let custom = |length| Event::Custom { name: "x".repeat(length), body: Bytes::new() };
    assert_eq!(custom(65_535).encode().unwrap().len(), 10 + 65_535);
    let error = custom(65_536).encode().unwrap_err();
    let field = "name of a custom event";
    assert_eq!(error, EventError::InvalidLength { field, length: 65_536 });
    let announce = |announced| Event::EventAnnouncement { sequence_number: 0, announced };
    let twice = announce(Box::new(announce(Box::new(Event::EndOfPartition))));
    assert_eq!(twice.encode(), Err(EventError::NestedAnnouncement));
}
