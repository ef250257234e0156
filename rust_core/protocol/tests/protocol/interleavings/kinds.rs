//! Every kind of buffer with every other, and every class of kinds in every place.

use headgate_protocol::DataType::{
    self, AlignedCheckpointBarrier, DataBuffer, DataBufferWithClearEnd, EndOfData,
    EndOfPartition as END, EndOfSegment, EventBuffer, PrioritizedEventBuffer, RecoveryCompletion,
    RecoveryMetadata, TimeoutableAlignedCheckpointBarrier,
};

use super::setup::Setup;
use super::world::Seen;
use super::{NONE_OF_THEIR_OWN, ONE_EACH};

/// Every kind but the end of the partition, which closes each script.
const KINDS: [DataType; 10] = [
    DataBuffer,
    DataBufferWithClearEnd,
    EventBuffer,
    EndOfSegment,
    EndOfData,
    RecoveryMetadata,
    PrioritizedEventBuffer,
    AlignedCheckpointBarrier,
    TimeoutableAlignedCheckpointBarrier,
    RecoveryCompletion,
];

/// One kind of each class that flow control treats differently.
const CLASSES: [DataType; 4] =
    [DataBuffer, EventBuffer, PrioritizedEventBuffer, AlignedCheckpointBarrier];

fn class(kind: DataType) -> DataType {
    match (kind.is_buffer(), kind.has_priority(), kind.blocks_upstream()) {
        (true, false, false) => DataBuffer,
        (false, false, false) => EventBuffer,
        (false, true, false) => PrioritizedEventBuffer,
        (false, false, true) => AlignedCheckpointBarrier,
        flags => panic!("{kind:?} is of no class: {flags:?}"),
    }
}

/// Searches with one exclusive segment per channel, and with one segment that both share.
fn search(first: &[DataType], second: &[DataType]) -> Seen {
    let scripts = [first, second];
    let mut seen = Setup { scripts, threads: false, ..ONE_EACH }.search();
    seen += Setup { scripts, threads: false, ..NONE_OF_THEIR_OWN }.search();
    seen
}

/// Every script of three buffers, with one buffer of any class in each place.
fn scripts_of_three() -> Vec<[DataType; 4]> {
    let mut scripts = Vec::new();
    for first in CLASSES {
        for second in CLASSES {
            scripts.extend(CLASSES.map(|third| [first, second, third, END]));
        }
    }
    scripts
}

fn assert_all_seen(seen: &Seen) {
    assert!(seen.waits > 0 && seen.refusals > 0 && seen.announcements > 0, "{seen:?}");
    assert!(seen.resumes > 0 && seen.priority_behind_barriers > 0, "{seen:?}");
    assert!(seen.overtakes_at_producer > 0 && seen.overtakes_at_consumer > 0, "{seen:?}");
    assert!(seen.events_without_credit > 0 && seen.stops_without_credit > 0, "{seen:?}");
}

#[test]
fn every_kind_is_of_one_class() {
    for value in 1..=u8::MAX {
        match DataType::try_from(value) {
            Ok(END) => assert_eq!(class(END), EventBuffer),
            Ok(kind) => assert!(KINDS.contains(&kind) && CLASSES.contains(&class(kind))),
            Err(_) => assert!(value > 11),
        }
    }
}

#[test]
fn every_kind_beside_every_other() {
    let mut seen = Seen::default();
    for first in KINDS {
        for second in KINDS {
            seen += search(&[DataBuffer, first, END], &[second, DataBuffer, END]);
        }
    }
    assert!(seen.resumes > 0 && seen.stops_without_credit > 0, "{seen:?}");
    assert!(seen.overtakes_at_producer > 0 && seen.overtakes_at_consumer > 0, "{seen:?}");
}

#[test]
fn every_class_in_every_place_beside_data() {
    let mut seen = Seen::default();
    for script in scripts_of_three() {
        seen += search(&script, &[DataBuffer, END]);
    }
    assert_all_seen(&seen);
}

/// Searches two channels with three buffers each. A pair of scripts and the swapped pair are mirror
/// images, so only one of them is searched.
fn search_half(half: usize) {
    let scripts = scripts_of_three();
    let mut seen = Seen::default();
    for (at, first) in scripts.iter().enumerate().filter(|(at, _)| at % 2 == half) {
        for second in &scripts[at..] {
            seen += search(first, second);
        }
    }
    println!("{} states, {} ends", seen.size.states, seen.size.ends);
    assert_all_seen(&seen);
}

#[test]
#[ignore = "minutes; make schedules runs it"]
fn every_class_in_every_place_of_both_channels_even() {
    search_half(0);
}

#[test]
#[ignore = "minutes; make schedules runs it"]
fn every_class_in_every_place_of_both_channels_odd() {
    search_half(1);
}
