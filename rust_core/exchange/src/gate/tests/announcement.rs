//! Barriers that are announced, and overtake when the reader converts them (spec 8.7).

use super::*;

/// Creates a channel with two buffers, a barrier that may overtake them, and one more buffer.
fn announced(gate: &InputGate) -> Arc<RemoteChannel> {
    let channel = remote(gate);
    for (number, text) in (0..).zip(["r0", "r1"]) {
        channel.deliver(data(text), DataType::DataBuffer, Sequence(number)).unwrap();
    }
    let barrier = Buffer::from(custom("barrier").encode().unwrap());
    let data_type = DataType::TimeoutableAlignedCheckpointBarrier;
    channel.deliver(barrier, data_type, Sequence(2)).unwrap();
    channel.deliver(data("r3"), DataType::DataBuffer, Sequence(3)).unwrap();
    channel
}

/// Reads all that is available, as sequence number, type and text.
fn numbered(gate: &InputGate) -> Vec<(u32, DataType, String)> {
    let read = |received: Received| (received.sequence.0, received.data_type, text(&received));
    std::iter::from_fn(|| poll(gate)).map(read).collect()
}

fn announcement() -> (u32, DataType, String) {
    let event =
        Event::EventAnnouncement { sequence_number: 2, announced: Box::new(custom("barrier")) };
    (2, DataType::PrioritizedEventBuffer, format!("{event:?}"))
}

#[test]
fn spec_8_13_a_timeoutable_barrier_is_announced_and_read_in_its_place() {
    let pool = pool();
    let gate = gate(&pool);
    announced(&gate);
    let barrier = DataType::TimeoutableAlignedCheckpointBarrier;
    let expected = [
        announcement(),
        (0, DataType::DataBuffer, "r0".to_owned()),
        (1, DataType::DataBuffer, "r1".to_owned()),
        (2, barrier, "barrier".to_owned()),
        (3, DataType::DataBuffer, "r3".to_owned()),
    ];
    assert_eq!(numbered(&gate), expected);
    assert!(!gate.convert_to_priority(0, Sequence(2)).unwrap(), "it was read");
    gate.resume_consumption(0).unwrap();
    gate.close();
}

#[test]
fn spec_8_13_a_converted_barrier_overtakes_what_arrived_before_it() {
    let pool = pool();
    let gate = gate(&pool);
    announced(&gate);
    let other = local(&pool, &gate, 1);
    add(&other, "other");
    let first = poll(&*gate).unwrap();
    assert_eq!((first.sequence.0, first.data_type, text(&first)), announcement());
    assert!(first.more_available && !first.more_priority_events);
    assert!(gate.resume_consumption(0).is_err(), "the announcement blocks nothing");
    for number in [0, 1, 3, 4] {
        assert!(!gate.convert_to_priority(0, Sequence(number)).unwrap(), "{number} is no barrier");
    }
    assert!(
        !gate.convert_to_priority(1, Sequence(0)).unwrap(),
        "a local channel announces nothing"
    );
    assert!(gate.convert_to_priority(0, Sequence(2)).unwrap());
    assert!(gate.has_priority_event(), "notified, although its number was seen");
    assert!(!gate.convert_to_priority(0, Sequence(2)).unwrap(), "once");
    let expected = [
        (2, DataType::PrioritizedEventBuffer, "barrier".to_owned()),
        (0, DataType::DataBuffer, "other".to_owned()),
        (0, DataType::DataBuffer, "r0".to_owned()),
        (1, DataType::DataBuffer, "r1".to_owned()),
        (3, DataType::DataBuffer, "r3".to_owned()),
    ];
    assert_eq!(numbered(&gate), expected);
    gate.resume_consumption(0).unwrap();
    assert!(gate.resume_consumption(0).is_err(), "once");
    gate.close();
}

#[test]
fn spec_8_13_a_converted_barrier_comes_before_other_channels_behind_an_older_priority_event() {
    let pool = pool();
    let gate = gate(&pool);
    let channel = announced(&gate);
    let other = local(&pool, &gate, 1);
    add(&other, "other");
    poll(&*gate).unwrap();
    let urgent = Buffer::from(custom("urgent").encode().unwrap());
    channel.deliver(urgent, DataType::PrioritizedEventBuffer, Sequence(4)).unwrap();
    assert!(gate.convert_to_priority(0, Sequence(2)).unwrap());
    let texts: Vec<_> = numbered(&gate).into_iter().map(|(.., text)| text).collect();
    assert_eq!(texts, ["urgent", "barrier", "other", "r0", "r1", "r3"]);
    gate.close();
}
