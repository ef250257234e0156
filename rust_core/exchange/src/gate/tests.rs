//! What only a producer inside this crate can send: events with a type of their own, and priority.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod announcement;

use bytes::Bytes;
use headgate_memory::{Buffer, GlobalPool};
use headgate_protocol::{
    ChannelId, Generation, PartitionId, ReceiveChannel, ReceiveLedger, Sequence,
};
use headgate_record::StopMode;

use super::*;
use crate::config::BufferOptions;
use crate::partition::{PartitionOptions, ResultPartition, Shared};
use crate::spill::SpillManager;
use crate::spill_dirs::SpillDirectories;

pub(super) struct NoSink;

impl CreditSink for NoSink {
    fn credit_available(&self, _channel: Arc<RemoteChannel>) {}

    fn cancel(&self, _channel: Arc<RemoteChannel>) {}

    fn resume(&self, _channel: Arc<RemoteChannel>) {}

    fn tell(&self, _channel: Arc<RemoteChannel>, _message: UpstreamMessage) {}
}

fn pool() -> GlobalPool {
    GlobalPool::new(64, 4096)
}

fn gate(pool: &GlobalPool) -> Arc<InputGate> {
    let of_gate = GatePool::new(pool, &BufferOptions::default()).unwrap();
    Arc::new(InputGate::new(of_gate, Arc::default()))
}

/// A partition of one subpartition that the gate reads as its next channel.
fn local(pool: &GlobalPool, gate: &InputGate, number: u8) -> Arc<ResultPartition> {
    let options = PartitionOptions::all(1);
    let id = PartitionId([number; 16]);
    let buffers = BufferOptions::default();
    let disk = Arc::new(SpillManager::new(Arc::new(SpillDirectories::new(Vec::new()))));
    let shared = Shared::default();
    let partition = ResultPartition::new(id, &options, &buffers, pool, &disk, shared).unwrap();
    let make = |index| {
        let local = LocalChannel::new(id, 0, [0; 32], gate.queue(), index);
        Ok(Channel::Local(Box::new(local)))
    };
    let (_, in_gate) = gate.place_channel(Place::New, make).unwrap().unwrap();
    let Channel::Local(channel) = &*in_gate else { panic!("made local") };
    channel.attach(&partition, &in_gate).unwrap();
    partition
}

fn remote(gate: &InputGate) -> Arc<RemoteChannel> {
    let receive = ReceiveChannel::new(ChannelId(0), Generation(0), ReceiveLedger::new(0));
    let make = |index| {
        let name = "a channel".to_owned();
        let (queue, pool) = (gate.queue(), gate.pool());
        let channel =
            RemoteChannel::new(receive, index, name, Vec::new(), queue, pool, Arc::new(NoSink));
        Ok(Channel::Remote(channel))
    };
    let (_, channel) = gate.place_channel(Place::New, make).unwrap().unwrap();
    let Channel::Remote(channel) = &*channel else { panic!("made remote") };
    Arc::clone(channel)
}

fn data(text: &'static str) -> Buffer {
    Buffer::from(Bytes::from_static(text.as_bytes()))
}

fn add(partition: &ResultPartition, text: &'static str) {
    partition.subpartitions()[0].add_data(data(text), DataType::DataBuffer, 1);
}

fn event(partition: &ResultPartition, event: &Event, data_type: DataType) {
    partition.subpartitions()[0].add_event(event.encode().unwrap(), data_type);
}

fn custom(name: &str) -> Event {
    Event::Custom { name: name.to_owned(), body: Bytes::new() }
}

fn poll(gate: &dyn DataInput) -> Option<Received> {
    match gate.poll_next().unwrap() {
        Poll::Ready(received) => received,
        Poll::Pending => None,
    }
}

fn text(received: &Received) -> String {
    if received.data_type.is_buffer() {
        return String::from_utf8(received.buffer.as_slice().to_vec()).unwrap();
    }
    match Event::decode(received.buffer.as_slice()).unwrap() {
        Event::Custom { name, .. } => name,
        other => format!("{other:?}"),
    }
}

/// Everything that is there, as channel and text.
fn drain(gate: &dyn DataInput) -> Vec<(usize, String)> {
    std::iter::from_fn(|| poll(gate)).map(|received| (received.channel, text(&received))).collect()
}

fn pairs(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
    expected.iter().map(|(channel, text)| (*channel, (*text).to_owned())).collect()
}

#[test]
fn spec_8_04_the_gate_is_drained_or_stopped_once_all_producers_said_so() {
    for (second, status) in
        [(StopMode::Drain, EndOfDataStatus::Drained), (StopMode::NoDrain, EndOfDataStatus::Stopped)]
    {
        let pool = pool();
        let gate = gate(&pool);
        let (a, b) = (local(&pool, &gate, 1), local(&pool, &gate, 2));
        gate.seal();
        event(&a, &Event::EndOfData(StopMode::Drain), DataType::EndOfData);
        assert_eq!(drain(&*gate).len(), 1);
        assert_eq!(gate.end_of_data_status(), EndOfDataStatus::NotEndOfData);
        event(&b, &Event::EndOfData(second), DataType::EndOfData);
        assert_eq!(drain(&*gate).len(), 1);
        assert_eq!(gate.end_of_data_status(), status);
        assert!(!gate.is_finished(), "the partitions go on until their ends");
    }
}

#[test]
fn spec_section_8_3_a_priority_event_comes_first_of_all_channels() {
    let pool = pool();
    let gate = gate(&pool);
    let (a, b) = (local(&pool, &gate, 1), local(&pool, &gate, 2));
    add(&a, "a0");
    add(&a, "a1");
    add(&b, "b0");
    event(&b, &custom("first"), DataType::PrioritizedEventBuffer);
    event(&b, &custom("second"), DataType::PrioritizedEventBuffer);
    event(&b, &custom("ordinary"), DataType::EventBuffer);
    let first = poll(&*gate).unwrap();
    assert_eq!((first.channel, text(&first)), (1, "first".to_owned()));
    assert!(first.more_available && first.more_priority_events);
    let second = poll(&*gate).unwrap();
    assert_eq!((second.channel, text(&second)), (1, "second".to_owned()));
    assert!(second.more_available && !second.more_priority_events);
    assert_eq!((first.sequence, second.sequence), (Sequence(0), Sequence(1)));
    assert_eq!(drain(&*gate), pairs(&[(0, "a0"), (1, "b0"), (0, "a1"), (1, "ordinary")]));
}

#[test]
fn spec_section_8_3_priority_events_of_a_remote_channel_overtake_what_arrived_before() {
    let pool = pool();
    let gate = gate(&pool);
    let other = local(&pool, &gate, 1);
    add(&other, "other");
    let channel = remote(&gate);
    for (number, text) in (0..).zip(["r0", "r1"]) {
        channel.deliver(data(text), DataType::DataBuffer, Sequence(number)).unwrap();
    }
    let urgent = Buffer::from(custom("urgent").encode().unwrap());
    channel.deliver(urgent, DataType::PrioritizedEventBuffer, Sequence(2)).unwrap();
    gate.queue().notify_priority_event(1, Sequence(1));
    assert_eq!(drain(&*gate), pairs(&[(1, "urgent"), (0, "other"), (1, "r0"), (1, "r1")]));
    gate.close();
}

#[test]
fn spec_section_8_3_the_last_end_of_a_partition_has_nothing_behind_it() {
    let pool = pool();
    let gate = gate(&pool);
    let partitions = [local(&pool, &gate, 1), local(&pool, &gate, 2)];
    gate.seal();
    for partition in &partitions {
        partition.subpartitions()[0].finish();
    }
    let first = poll(&*gate).unwrap();
    assert!(first.more_available && !gate.is_finished());
    let last = poll(&*gate).unwrap();
    assert_eq!(last.data_type, DataType::EndOfPartition);
    assert!(!last.more_available && gate.is_finished());
    assert!(gate.is_available(), "for good: a poll finds the end");
    assert!(matches!(gate.poll_next(), Ok(Poll::Ready(None))));
    assert!(partitions.iter().all(|partition| partition.is_released()));
}

#[test]
fn spec_section_8_3_an_empty_channel_is_skipped() {
    let pool = pool();
    let gate = gate(&pool);
    let (_a, b) = (local(&pool, &gate, 1), local(&pool, &gate, 2));
    gate.queue().notify_non_empty(0);
    add(&b, "b0");
    let received = poll(&*gate).unwrap();
    assert_eq!((received.channel, received.more_available), (1, false));
    assert!(matches!(gate.poll_next(), Ok(Poll::Pending)));
}

#[test]
fn spec_section_8_5_a_union_counts_channels_over_its_gates_and_serves_the_gates_in_turn() {
    let pool = pool();
    let (one, two) = (gate(&pool), gate(&pool));
    let a = local(&pool, &one, 1);
    let (b, c) = (local(&pool, &two, 2), local(&pool, &two, 3));
    one.seal();
    two.seal();
    let union = UnionInputGate::new(vec![one, two]).unwrap();
    assert_eq!(union.num_channels(), 3);
    for texts in [["a0", "b0", "c0"], ["a1", "b1", "c1"]] {
        for (partition, text) in [&a, &b, &c].into_iter().zip(texts) {
            add(partition, text);
        }
    }
    let expected = [(0, "a0"), (1, "b0"), (0, "a1"), (2, "c0"), (1, "b1"), (2, "c1")];
    assert_eq!(drain(&union), pairs(&expected));
    assert!(!union.is_available() && !union.is_finished());
    assert!(union.channel_name(2).starts_with("local channel 0303"), "{}", union.channel_name(2));
    for partition in [&a, &b, &c] {
        partition.subpartitions()[0].finish();
    }
    assert_eq!(drain(&union).len(), 3, "the end of each gate is an ordinary event");
    assert!(union.is_finished() && matches!(union.poll_next(), Ok(Poll::Ready(None))));
}

#[test]
fn spec_section_8_5_a_gate_with_a_priority_event_comes_first_unless_it_was_polled_meanwhile() {
    let pool = pool();
    let (one, two) = (gate(&pool), gate(&pool));
    let (a, b) = (local(&pool, &one, 1), local(&pool, &two, 2));
    one.seal();
    two.seal();
    let union = UnionInputGate::new(vec![one, Arc::clone(&two)]).unwrap();
    add(&a, "a0");
    add(&b, "b0");
    event(&b, &custom("urgent"), DataType::PrioritizedEventBuffer);
    let first = poll(&union).unwrap();
    assert_eq!((first.channel, text(&first)), (1, "urgent".to_owned()));
    assert!(first.more_available && !first.more_priority_events);
    assert_eq!(drain(&union), pairs(&[(0, "a0"), (1, "b0")]));
    // What was promoted and read by then must not push data to the front.
    event(&b, &custom("gone"), DataType::PrioritizedEventBuffer);
    assert_eq!(text(&poll(&*two).unwrap()), "gone");
    add(&a, "a1");
    add(&b, "b1");
    assert_eq!(drain(&union).iter().map(|(_, text)| &text[1..]).collect::<String>(), "11");
}

#[test]
fn spec_section_8_5_a_union_needs_two_sealed_gates_and_closes_none_of_them() {
    let pool = pool();
    let gates = [gate(&pool), gate(&pool)];
    let both = || gates.iter().map(Arc::clone).collect::<Vec<_>>();
    assert!(UnionInputGate::new(both()).is_err(), "not sealed");
    let partition = local(&pool, &gates[0], 1);
    gates.iter().for_each(|gate| gate.seal());
    assert!(UnionInputGate::new(vec![Arc::clone(&gates[0])]).is_err(), "one gate");
    let twice = vec![Arc::clone(&gates[0]), Arc::clone(&gates[0])];
    assert!(UnionInputGate::new(twice).is_err(), "one gate twice");
    let union = UnionInputGate::new(both()).unwrap();
    union.close();
    assert!(matches!(union.poll_next(), Err(ExchangeError::Closed(_))));
    add(&partition, "still read");
    assert_eq!(drain(&*gates[0]), pairs(&[(0, "still read")]));
}

#[test]
fn supersteps_end_when_all_channels_that_go_on_have_reached_the_end() {
    let pool = pool();
    let (one, two) = (gate(&pool), gate(&pool));
    let (a, b) = (local(&pool, &one, 1), local(&pool, &one, 2));
    let c = local(&pool, &two, 3);
    one.seal();
    two.seal();
    let union = UnionInputGate::new(vec![one, two]).unwrap();
    assert!(union.start_next_superstep().is_err());
    for step in ["0", "1", "2"] {
        for partition in [&a, &b, &c] {
            add(partition, step);
            event(partition, &Event::EndOfSuperstep, DataType::EventBuffer);
        }
    }
    for step in ["0", "1", "2"] {
        let mut read = Vec::new();
        while let Some(received) = poll(&union) {
            match text(&received).as_str() {
                "EndOfSuperstep" => union.end_superstep(received.channel),
                other => read.push((received.channel, other.to_owned())),
            }
        }
        read.sort_unstable();
        assert_eq!(read, pairs(&[(0, step), (1, step), (2, step)]));
        assert!(union.has_reached_end_of_superstep() && union.is_available());
        assert!(!union.is_finished());
        assert!(matches!(union.poll_next(), Ok(Poll::Ready(None))));
        union.start_next_superstep().unwrap();
        assert!(!union.has_reached_end_of_superstep());
    }
    assert!(matches!(union.poll_next(), Ok(Poll::Pending)));
    // An ended channel is not waited for.
    a.subpartitions()[0].finish();
    c.subpartitions()[0].finish();
    event(&b, &Event::EndOfSuperstep, DataType::EventBuffer);
    let channels: Vec<_> = std::iter::from_fn(|| poll(&union))
        .inspect(|received| {
            if text(received) == "EndOfSuperstep" {
                union.end_superstep(received.channel);
            }
        })
        .map(|received| received.channel)
        .collect();
    assert_eq!(channels.len(), 3);
    assert!(union.has_reached_end_of_superstep() && !union.is_finished());
}
