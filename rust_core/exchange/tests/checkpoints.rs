//! Barriers with a timeout at the writer: the output flusher lets them overtake.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use common::{Env, RECORD_LIMIT, nothing, wait_until};
use headgate_exchange::{
    Alignment, AvailabilityListener, Barrier, BytesWriter, ChannelRecord, CheckpointId,
    CheckpointNotice, CheckpointOptions, CheckpointedInput, DataInput, Record, RecordReader,
    decode_channel_state,
};
use headgate_record::Selector;

#[derive(Default)]
struct Told(AtomicUsize);

impl AvailabilityListener for Told {
    fn data_available(&self) {}

    fn priority_available(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn barrier(number: i64, timestamp: i64) -> Barrier {
    let alignment = Alignment::Timeoutable { timeout: 20 };
    let options = CheckpointOptions { alignment, snapshot: Bytes::from_static(b"where") };
    Barrier { id: CheckpointId(number), timestamp, options }
}

#[test]
fn a_barrier_whose_time_has_passed_overtakes_while_the_writer_does_nothing() {
    for local in [true, false] {
        let (producer, other) = (Env::new(64, 4096), Env::new(64, 4096));
        let consumer = if local { &producer } else { &other };
        let partition = producer.partition(1);
        let gate = consumer.gate(&[producer.address(&partition, 0)]);
        gate.enable_checkpointing(true).unwrap();
        let told = Arc::new(Told::default());
        let listener: Arc<dyn AvailabilityListener> = Arc::<Told>::clone(&told);
        gate.add_listener(Arc::downgrade(&listener) as Weak<dyn AvailabilityListener>);
        let selector = Selector::One(0);
        let mut writer = BytesWriter::new(Arc::clone(&partition), selector, RECORD_LIMIT).unwrap();
        // More than the consumer has credit for: the barrier waits at the producer.
        let record = Bytes::from(vec![7; 40_000]);
        writer.emit(&record, &nothing).unwrap();
        writer.broadcast_barrier(&barrier(1, 0), &producer.0).unwrap();
        wait_until("the barrier overtook", || told.0.load(Ordering::Relaxed) > 0);
        let states = writer.take_channel_state(CheckpointId(1)).unwrap().expect("it is decided");
        writer.finish().unwrap();
        let (spanning, copies) = (consumer.0.spanning_options(), Arc::clone(consumer.0.copies()));
        let mut reader = RecordReader::new(gate, None, spanning, copies);
        let Some(Record::Checkpoint(CheckpointNotice::Trigger(triggered))) =
            reader.next(&nothing).unwrap()
        else {
            panic!("the barrier comes first");
        };
        assert_eq!(triggered, barrier(1, 0).into_unaligned());
        reader.snapshot_taken(CheckpointId(1)).unwrap();
        let complete = reader.next(&nothing).unwrap();
        assert!(matches!(complete, Some(Record::Checkpoint(CheckpointNotice::Complete { .. }))));
        let inputs = reader.take_channel_state(CheckpointId(1)).unwrap();
        let parts: Vec<_> = [inputs, states].concat().into_iter().map(|(_, part)| part).collect();
        let kept = decode_channel_state(&parts.concat(), None).unwrap();
        assert!(matches!(&kept[..], [ChannelRecord::Bytes(bytes)] if *bytes == record));
        assert!(
            matches!(reader.next(&nothing).unwrap(), Some(Record::Bytes(bytes)) if bytes == record)
        );
        assert!(reader.next(&nothing).unwrap().is_none());
    }
}

#[test]
fn nothing_is_read_before_the_snapshot_is_taken() {
    let env = Env::new(64, 4096);
    let partition = env.partition(1);
    let gate = env.gate(&[env.address(&partition, 0)]);
    gate.enable_checkpointing(true).unwrap();
    let mut writer =
        BytesWriter::new(Arc::clone(&partition), Selector::One(0), RECORD_LIMIT).unwrap();
    writer.broadcast_barrier(&barrier(1, i64::MAX / 2), &env.0).unwrap();
    writer.finish().unwrap();
    let (spanning, copies) = (env.0.spanning_options(), Arc::clone(env.0.copies()));
    let mut reader = RecordReader::new(gate, None, spanning, copies);
    assert!(reader.snapshot_taken(CheckpointId(1)).is_err());
    assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Checkpoint(_))));
    assert!(reader.next(&nothing).is_err() && reader.poll_next().is_err());
    assert!(reader.snapshot_taken(CheckpointId(2)).is_err());
    reader.snapshot_taken(CheckpointId(1)).unwrap();
    assert!(matches!(reader.next(&nothing).unwrap(), Some(Record::Checkpoint(_))));
    assert!(!reader.is_finished() || reader.next(&nothing).unwrap().is_none());
}
