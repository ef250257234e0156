//! Events that only this crate's producers can send: those with a data type of their own, and those
//! with priority.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod announcement;

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use headgate_memory::{Buffer, GlobalPool};
use headgate_net::{Channel, CreditSink, UpstreamMessage};
use headgate_protocol::{
    ChannelId, DataType, Generation, PartitionId, ReceiveChannel, ReceiveLedger, Sequence,
};
use headgate_record::{Event, StopMode};

use super::*;
use crate::config::BufferOptions;
use crate::partition::{PartitionOptions, ResultPartition, Shared};
use crate::spill::SpillManager;
use crate::spill_dirs::SpillDirectories;

pub(super) struct NoSink;

impl CreditSink for NoSink {
    fn credit_available(&self, _channel: Arc<dyn Channel>) {}

    fn cancel(&self, _channel: Arc<dyn Channel>) {}

    fn resume(&self, _channel: Arc<dyn Channel>) {}

    fn tell(&self, _channel: Arc<dyn Channel>, _message: UpstreamMessage) {}
}

pub(crate) fn pool() -> GlobalPool {
    GlobalPool::new(64, 4096)
}

pub(crate) fn gate(pool: &GlobalPool) -> Arc<InputGate> {
    let of_gate = GatePool::new(pool, &BufferOptions::default()).unwrap();
    Arc::new(InputGate::new(of_gate, Arc::default()))
}

/// Creates a partition of one subpartition and adds it to the gate.
pub(crate) fn local(pool: &GlobalPool, gate: &InputGate, number: u8) -> Arc<ResultPartition> {
    let (partition, channel) = unattached(pool, gate, number);
    channel.attach(&*partition).unwrap();
    partition
}

/// Creates a partition of one subpartition, and its channel, which is not attached yet.
fn unattached(
    pool: &GlobalPool,
    gate: &InputGate,
    number: u8,
) -> (Arc<ResultPartition>, Arc<LocalChannel>) {
    let options = PartitionOptions::all(1);
    let id = PartitionId([number; 16]);
    let buffers = BufferOptions::default();
    let disk =
        Arc::new(SpillManager::new(Arc::new(SpillDirectories::new(Vec::new())), Arc::default()));
    let shared = Shared::default();
    let partition = ResultPartition::new(id, &options, &buffers, pool, &disk, shared).unwrap();
    let make = |index| Ok(Arc::new(LocalChannel::new(id, 0, [0; 32], gate.queue(), index)));
    let (_, channel) = gate.place_channel(Place::New, make).unwrap().unwrap();
    (partition, channel)
}

fn remote(gate: &InputGate) -> Arc<RemoteChannel> {
    let receive = ReceiveChannel::new(ChannelId(0), Generation(0), ReceiveLedger::new(0));
    let make = |index| {
        let name = "a channel".to_owned();
        let (queue, pool) = (gate.queue(), gate.pool());
        Ok(RemoteChannel::new(receive, index, name, Vec::new(), queue, pool, Arc::new(NoSink)))
    };
    gate.place_channel(Place::New, make).unwrap().unwrap().1
}

fn data(text: &'static str) -> Buffer {
    Buffer::from(Bytes::from_static(text.as_bytes()))
}

pub(crate) fn add(partition: &ResultPartition, text: &'static str) {
    partition.subpartitions()[0].add_data(data(text), DataType::DataBuffer, 1);
}

pub(crate) fn event(partition: &ResultPartition, event: &Event, data_type: DataType) {
    partition.subpartitions()[0].add_event(event.encode().unwrap(), data_type);
}

pub(crate) fn custom(name: &str) -> Event {
    Event::Custom { name: name.to_owned(), body: Bytes::new() }
}

pub(crate) fn poll(gate: &dyn DataInput) -> Option<Received> {
    match gate.poll_next().unwrap() {
        Poll::Ready(received) => received,
        Poll::Pending => None,
    }
}

pub(crate) fn text(received: &Received) -> String {
    if received.data_type.is_buffer() {
        return String::from_utf8(received.buffer.as_slice().to_vec()).unwrap();
    }
    match Event::decode(received.buffer.as_slice()).unwrap() {
        Event::Custom { name, .. } => name,
        other => format!("{other:?}"),
    }
}

/// Reads all that is available, as channel and text.
pub(crate) fn drain(gate: &dyn DataInput) -> Vec<(usize, String)> {
    std::iter::from_fn(|| poll(gate)).map(|received| (received.channel, text(&received))).collect()
}

pub(crate) fn pairs(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
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
fn spec_section_8_3_a_priority_event_that_was_there_before_the_channel_comes_first() {
    let pool = pool();
    let gate = gate(&pool);
    let first = local(&pool, &gate, 1);
    let (second, channel) = unattached(&pool, &gate, 2);
    add(&first, "a0");
    add(&second, "b0");
    event(&second, &custom("early"), DataType::PrioritizedEventBuffer);
    assert!(!gate.has_priority_event());
    channel.attach(&*second).unwrap();
    assert!(gate.has_priority_event(), "a reader that takes nothing else must see it");
    assert_eq!(drain(&*gate), pairs(&[(1, "early"), (0, "a0"), (1, "b0")]));
}

#[test]
fn spec_section_8_3_a_priority_event_behind_a_barrier_comes_first_once_that_is_over() {
    let pool = pool();
    let gate = gate(&pool);
    let (first, second) = (local(&pool, &gate, 1), local(&pool, &gate, 2));
    event(&second, &custom("barrier"), DataType::AlignedCheckpointBarrier);
    assert_eq!(drain(&*gate), pairs(&[(1, "barrier")]));
    add(&first, "a0");
    add(&second, "b0");
    event(&second, &custom("urgent"), DataType::PrioritizedEventBuffer);
    assert!(!gate.has_priority_event());
    gate.resume_consumption(1).unwrap();
    assert!(gate.has_priority_event());
    assert_eq!(drain(&*gate), pairs(&[(1, "urgent"), (0, "a0"), (1, "b0")]));
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
    assert!(gate.is_available(), "a poll finds the end");
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
