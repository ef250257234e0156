//! Gates with a clock that the test sets.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType as Type, Field, Schema};
use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_net::{Channel, Target};
use headgate_protocol::{
    BufferHeader, ChannelId, DataType, Generation, ReceiveChannel, ReceiveLedger, Sequence,
};
use headgate_record::{PageSchema, Selector, read_page};

use super::*;
use crate::UnionInputGate;
use crate::address::Address;
use crate::config::Config;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Result};
use crate::gate::tests::NoSink;
use crate::gate::{DataInput, InputGate, Place, RemoteChannel};
use crate::partition::{PartitionOptions, ResultPartition};
use crate::writer::ArrowWriter;

const SEGMENT: usize = 16 << 10;

const OPTIONS: BufferDebloatOptions = BufferDebloatOptions {
    target: Duration::from_secs(1),
    period: Duration::from_millis(200),
    samples: 3,
    threshold_percentages: 25,
    min_segment_size: 256,
    starting_segment_size: SEGMENT,
};

/// A clock that only the test advances.
#[derive(Clone, Default)]
struct ByHand(Arc<AtomicU64>);

impl ByHand {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let now = Arc::clone(&self.0);
        Box::new(move || Duration::from_nanos(now.load(Ordering::Relaxed)))
    }
}

fn environment() -> ShuffleEnvironment {
    ShuffleEnvironment::new(Config::of_segments(64, SEGMENT)).unwrap()
}

fn debloat_stats(gate: &InputGate) -> DebloatStats {
    gate.stats().debloating.unwrap()
}

fn nothing() -> Result<()> {
    Ok(())
}

fn schema() -> Arc<PageSchema> {
    let fields = vec![Field::new("n", Type::Int64, false)];
    Arc::new(PageSchema::try_new(Arc::new(Schema::new(fields))).unwrap())
}

fn add(
    producer: &ShuffleEnvironment,
    partition: &ResultPartition,
    consumer: &ShuffleEnvironment,
    gate: &InputGate,
) {
    let place = producer.address().unwrap();
    let address = Address {
        host: place.ip().to_string(),
        port: place.port(),
        process: producer.process(),
        partition: partition.id(),
        subpartition: 0,
    };
    consumer.add_channel(gate, &address, [0; 32]).unwrap();
    gate.seal();
}

/// Writes numbers until `stop` is set. Returns how many.
fn write(partition: &Arc<ResultPartition>, stop: &AtomicBool) -> i64 {
    let selector = Selector::One(0);
    let mut writer = ArrowWriter::new(Arc::clone(partition), schema(), selector, 1 << 20).unwrap();
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let numbers = Int64Array::from_iter_values(next..next + 1_000);
        let columns = vec![Arc::new(numbers) as _];
        let batch = RecordBatch::try_new(Arc::clone(schema().schema()), columns).unwrap();
        writer.emit(&batch, &nothing).unwrap();
        next += 1_000;
    }
    writer.finish().unwrap();
    next
}

/// A reader with a chosen speed.
struct Reader {
    gate: Arc<InputGate>,
    time: ByHand,
    rows: i64,
}

impl Reader {
    /// Reads the next page at `speed` bytes per second. Returns its length; 0 for an event.
    fn next(&mut self, speed: u64) -> Option<usize> {
        let received = self.gate.next(&nothing).unwrap()?;
        let len = received.buffer.len();
        self.time.advance(Duration::from_nanos(len as u64 * 1_000_000_000 / speed));
        if !received.data_type.is_buffer() {
            return Some(0);
        }
        let batch = read_page(&schema(), received.buffer.into_bytes()).unwrap();
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        let expected: Vec<_> = (self.rows..self.rows + numbers.len() as i64).collect();
        assert_eq!(numbers.values(), expected.as_slice(), "the rows in their order");
        self.rows += numbers.len() as i64;
        Some(len)
    }
}

#[test]
fn a_slow_reader_gets_small_pages_and_a_fast_one_large_ones_again() {
    for local in [true, false] {
        let (producer, other) = (environment(), environment());
        let consumer = if local { &producer } else { &other };
        let partition = producer.create_result_partition(&PartitionOptions::all(1)).unwrap();
        let time = ByHand::default();
        let gate = consumer.create_debloated_gate(&OPTIONS, time.clock()).unwrap();
        add(&producer, &partition, consumer, &gate);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| write(&partition, &stop));
            let mut reader = Reader { gate: Arc::clone(&gate), time, rows: 0 };
            // More pages than needed: a wrong size fails the test, instead of a loop without end.
            let slow = (0..10_000).find(|_| reader.next(2_000).unwrap() <= 4_096);
            assert!(slow.is_some_and(|pages| pages > 0), "it began with a large page: {slow:?}");
            let stats = debloat_stats(&gate);
            assert!(stats.buffer_size <= 4_096 + 64, "{stats:?}");
            let fast = (0..10_000).find(|_| reader.next(1 << 20).unwrap() > SEGMENT - 1_024);
            assert!(fast.is_some(), "{:?}", debloat_stats(&gate));
            assert!(debloat_stats(&gate).time_to_consume < OPTIONS.target);
            stop.store(true, Ordering::Relaxed);
            while reader.next(1 << 20).is_some() {}
            assert_eq!(reader.rows, writing.join().unwrap());
        });
        gate.close();
        producer.close();
        other.close();
        for environment in [&producer, &other] {
            let pool = environment.stats().pool;
            assert_eq!((pool.held, pool.pinned), (0, 0), "every segment is free");
        }
    }
}

#[test]
fn spec_12_04_a_reader_that_does_nothing_with_its_time_gets_the_least() {
    let environment = environment();
    let partition = environment.create_result_partition(&PartitionOptions::all(1)).unwrap();
    let time = ByHand::default();
    let gate = environment.create_debloated_gate(&OPTIONS, time.clock()).unwrap();
    add(&environment, &partition, &environment, &gate);
    for _ in 0..20 {
        data(&partition, 1);
        data(&partition, 1);
        assert!(poll(&*gate) && poll(&*gate));
        time.advance(Duration::from_secs(60));
    }
    let stats = debloat_stats(&gate);
    assert_eq!(stats.buffer_size, 256);
    gate.close();
    environment.close();
}

/// Adds a buffer of `bytes` bytes to the only subpartition.
fn data(partition: &ResultPartition, bytes: usize) {
    let buffer = Buffer::from(Bytes::from(vec![0; bytes]));
    partition.subpartitions()[0].add_data(buffer, DataType::DataBuffer, 1);
}

fn poll(gate: &dyn DataInput) -> bool {
    matches!(gate.poll_next().unwrap(), Poll::Ready(Some(_)))
}

#[test]
fn a_pause_is_no_slowness() {
    let environment = environment();
    let options = BufferDebloatOptions { samples: 1, ..OPTIONS };
    let time = ByHand::default();
    let [one, two] = [(), ()].map(|()| {
        let partition = environment.create_result_partition(&PartitionOptions::all(1)).unwrap();
        let gate = environment.create_debloated_gate(&options, time.clock()).unwrap();
        add(&environment, &partition, &environment, &gate);
        (partition, gate)
    });
    let union = UnionInputGate::new(vec![Arc::clone(&one.1), Arc::clone(&two.1)]).unwrap();
    let buffer_size = |gate: &InputGate| debloat_stats(gate).buffer_size;
    for (input, has_two) in [(&*one.1 as &dyn DataInput, false), (&union, true)] {
        // 2000 bytes in 100 ms, and a minute without any, most of it spent with the other gate.
        data(&one.0, 2_000);
        assert!(poll(input));
        time.advance(Duration::from_millis(100));
        data(&two.0, 2_000);
        assert_eq!(poll(input), has_two);
        time.advance(Duration::from_secs(60));
        data(&one.0, 2_000);
        assert!(poll(input));
        assert_eq!(buffer_size(&one.1) as usize, SEGMENT, "20,000 bytes in a second");
        while poll(&union) {}
    }
    // The same two buffers, and a minute for the first one.
    data(&one.0, 2_000);
    data(&one.0, 2_000);
    assert!(poll(&union));
    time.advance(Duration::from_secs(60));
    assert!(poll(&union));
    assert_eq!(buffer_size(&one.1), 256);
    while poll(&union) {}
    for gate in [&one.1, &two.1] {
        gate.close();
    }
    environment.close();
}

#[test]
fn spec_8_14_buffers_in_use_wait_here_or_at_the_producer() {
    let environment = environment();
    let gate = environment.create_input_gate().unwrap();
    let (exclusive, free) = gate.pool().admit().unwrap();
    assert_eq!(free.len(), exclusive);
    let (id, generation) = (ChannelId(0), Generation(0));
    let ledger = ReceiveLedger::new(u32::try_from(exclusive).unwrap());
    let receive = ReceiveChannel::new(id, generation, ledger);
    let (_, channel) = gate
        .place_channel(Place::New, |index| {
            let name = "a channel".to_owned();
            let (queue, pool, sink) = (gate.queue(), gate.pool(), Arc::new(NoSink));
            Ok(RemoteChannel::new(receive, index, name, free, queue, pool, sink))
        })
        .unwrap()
        .unwrap();
    let arrive = |number, backlog| {
        let (sequence, data_type) = (Sequence(number), DataType::DataBuffer);
        let header = BufferHeader {
            channel: id,
            generation,
            sequence,
            backlog,
            data_type,
            size: 1,
            crc: 0,
            compressed: false,
        };
        let Ok(Target::Segment(segment)) = channel.begin(&header) else { panic!("has credit") };
        channel.deliver(Buffer::freeze(segment, 1), data_type, sequence).unwrap();
        gate.buffers_in_use()
    };
    assert_eq!(gate.buffers_in_use(), 0, "what it always has is not in use");
    assert_eq!([arrive(0, 1), arrive(1, 3)], [2, 5]);
    let read = || {
        let _ = gate.poll_next().unwrap();
        gate.buffers_in_use()
    };
    assert_eq!([read(), read(), read()], [4, 3, 3]);
    gate.close();
    assert_eq!(gate.buffers_in_use(), 0);
    environment.close();
}

#[test]
fn without_debloating_there_is_nothing_to_measure() {
    let environment = environment();
    let gate = environment.create_input_gate().unwrap();
    assert_eq!(environment.stats().gates[0].debloating, None);
    let polled = gate.poll_next();
    assert!(matches!(polled, Ok(Poll::Pending)), "{polled:?}");
    gate.close();
    assert!(matches!(gate.poll_next(), Err(ExchangeError::Closed(_))));
    environment.close();
}
