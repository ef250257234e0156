//! Gates over both kinds of channel, from the reader's view (spec 8).

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::{Env, batch, keys, nothing, page_schema, wait_until, writer};
use headgate_exchange::{
    Address, ArrowWriter, DataInput, DataType, ExchangeError, InputGate, Record, RecordReader,
    ResultPartition, UnionInputGate,
};

/// The environments of producers and consumer: the same one, or two that are connected.
struct Link {
    producer: Env,
    remote: Option<Env>,
}

impl Link {
    fn both() -> [Self; 2] {
        let env = || Env::new(128, 4096);
        [Self { producer: env(), remote: None }, Self { producer: env(), remote: Some(env()) }]
    }

    fn consumer(&self) -> &Env {
        self.remote.as_ref().unwrap_or(&self.producer)
    }

    /// Creates partitions of one subpartition. Returns them and their addresses.
    fn partitions(&self, count: usize) -> (Vec<Arc<ResultPartition>>, Vec<Address>) {
        let all: Vec<_> = (0..count).map(|_| self.producer.partition(1)).collect();
        let addresses = all.iter().map(|one| self.producer.address(one, 0)).collect();
        (all, addresses)
    }

    /// Waits until each of these channels of the consumer's only gate has a buffer to read.
    fn wait_for(&self, channels: &[usize], queued: usize) {
        if self.remote.is_some() {
            wait_until("pages arrived", || {
                let gates = self.consumer().0.stats().gates;
                channels.iter().all(|channel| gates[0].channels[*channel].queue.buffers >= queued)
            });
        }
    }
}

/// Writes and flushes pages of one row each; the row is the page's number.
fn write_pages(writer: &mut ArrowWriter, count: i64) {
    for row in 0..count {
        writer.emit(&batch(row, row + 1, 0), &nothing).unwrap();
        writer.flush().unwrap();
    }
}

fn channel_of_next(gate: &dyn DataInput) -> usize {
    gate.next(&nothing).unwrap().expect("not the end").channel
}

#[test]
fn spec_8_01_two_channels_with_two_buffers_each_are_read_in_turn() {
    for link in Link::both() {
        let (partitions, addresses) = link.partitions(2);
        let gate = link.consumer().gate(&addresses);
        for partition in &partitions {
            write_pages(&mut writer(partition), 2);
        }
        link.wait_for(&[0, 1], 2);
        let order: Vec<_> = (0..4).map(|_| channel_of_next(&*gate)).collect();
        let (first, second) = (order[0], 1 - order[0]);
        assert_eq!(order, [first, second, first, second]);
        gate.close();
    }
}

#[test]
fn spec_8_02_no_channel_is_served_more_than_one_buffer_ahead() {
    const CHANNELS: usize = 5;
    for link in Link::both() {
        let (partitions, addresses) = link.partitions(CHANNELS);
        let gate = link.consumer().gate(&addresses);
        let mut writers: Vec<_> = partitions.iter().map(writer).collect();
        let mut served = [0_i64; CHANNELS];
        for round in 0..20 {
            // Written in another order each time. The initial credit is enough for two pages.
            for turn in 0..CHANNELS {
                write_pages(&mut writers[(turn * 2 + round) % CHANNELS], 2);
            }
            // The second page arrives after the gate was notified of the first one.
            link.wait_for(&[0, 1, 2, 3, 4], 2);
            for _ in 0..2 * CHANNELS {
                served[channel_of_next(&*gate)] += 1;
                let ahead = served.iter().max().unwrap() - served.iter().min().unwrap();
                assert!(ahead <= 1, "{served:?} in round {round}");
            }
        }
        gate.close();
    }
}

#[test]
fn spec_8_16_a_channel_becomes_local_or_remote_once_its_producer_is_known() {
    for link in Link::both() {
        let consumer = link.consumer();
        let gate = consumer.0.create_input_gate().unwrap();
        assert_eq!([0, 1].map(|_| gate.add_unknown_channel().unwrap()), [0, 1]);
        gate.seal();
        assert!(gate.add_unknown_channel().is_err(), "the gate is sealed");
        let (partitions, addresses) = link.partitions(2);
        let update = |channel: usize, address: &Address| {
            let hash = page_schema().hash();
            consumer.0.update_channel(&gate, channel, address, hash)
        };
        assert!(matches!(update(2, &addresses[0]), Err(ExchangeError::State(_))));
        let released = consumer.partition(1);
        let lost = consumer.address(&released, 0);
        consumer.0.release_partition(released.id());
        let error = update(1, &lost).unwrap_err();
        assert!(matches!(error, ExchangeError::PartitionNotFound { .. }), "{error}");
        assert!(update(1, &addresses[1]).unwrap());
        for (channel, address) in [(1, &addresses[1]), (1, &addresses[0])] {
            assert!(!update(channel, address).unwrap(), "known already, so not requested again");
        }
        for partition in &partitions {
            let mut writer = writer(partition);
            write_pages(&mut writer, 1);
            writer.finish().unwrap();
        }
        let mut reader = consumer.reader(&gate);
        let Some(Record::Batch(first)) = reader.next(&nothing).unwrap() else { panic!("rows") };
        assert_eq!(keys(&first), [0]);
        drop(first);
        assert!(!partitions[0].is_released() && !gate.is_finished());
        // The end of the known channel is not the end of the gate.
        thread::scope(|scope| {
            let rest = scope.spawn(|| common::drain(&mut reader).unwrap());
            thread::sleep(Duration::from_millis(50));
            assert!(!rest.is_finished(), "it waits for the unknown channel");
            assert!(update(0, &addresses[0]).unwrap());
            assert_eq!(rest.join().unwrap(), [0]);
        });
        assert!(gate.is_finished());
        gate.close();
        assert!(!update(0, &addresses[0]).unwrap(), "ignored after close");
    }
}

#[test]
fn spec_8_16_many_updates_of_one_channel_at_once_request_it_once() {
    for link in Link::both() {
        let consumer = link.consumer();
        let (partitions, addresses) = link.partitions(1);
        let gate = consumer.0.create_input_gate().unwrap();
        let channel = gate.add_unknown_channel().unwrap();
        gate.seal();
        let made = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let hash = page_schema().hash();
                    let environment = &consumer.0;
                    let update = environment.update_channel(&gate, channel, &addresses[0], hash);
                    made.fetch_add(u64::from(update.unwrap()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        let mut writer = writer(&partitions[0]);
        write_pages(&mut writer, 3);
        writer.finish().unwrap();
        assert_eq!(common::drain(&mut consumer.reader(&gate)).unwrap(), [0, 1, 2]);
        gate.close();
    }
}

#[test]
fn spec_8_17_closing_ends_a_reader_that_waits() {
    for link in Link::both() {
        let consumer = link.consumer();
        let (_partitions, addresses) = link.partitions(3);
        let single = consumer.gate(&addresses[..1]);
        let gates: Vec<_> =
            addresses[1..].iter().map(|one| consumer.gate(std::slice::from_ref(one))).collect();
        let union = Arc::new(UnionInputGate::new(gates.clone()).unwrap());
        let inputs: [Arc<dyn DataInput>; 2] = [Arc::<InputGate>::clone(&single), union.clone()];
        let (single, child) = (&single, &gates[1]);
        let closes: [&(dyn Fn() + Sync); 2] = [&|| single.close(), &|| child.close()];
        for (input, close) in inputs.iter().zip(closes) {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| input.next(&nothing));
                thread::sleep(Duration::from_millis(30));
                assert!(!waiting.is_finished());
                close();
                let outcome = waiting.join().unwrap();
                assert!(matches!(outcome, Err(ExchangeError::Closed(_))), "{outcome:?}");
            });
            assert!(!input.is_finished() && input.is_available());
        }
        gates[0].close();
    }
}

#[test]
fn spec_8_17_closing_the_union_ends_its_reader() {
    let env = Env::new(32, 4096);
    let partitions = [env.partition(1), env.partition(1)];
    let gates = partitions.each_ref().map(|one| env.gate(&[env.address(one, 0)]));
    let union = UnionInputGate::new(gates.to_vec()).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| union.next(&nothing));
        thread::sleep(Duration::from_millis(30));
        union.close();
        assert!(matches!(waiting.join().unwrap(), Err(ExchangeError::Closed(_))));
    });
    gates.iter().for_each(|gate| gate.close());
}

#[test]
fn spec_8_18_buffers_recycling_and_release_raced_a_thousand_times_leak_nothing() {
    let [_, link] = Link::both();
    let consumer = link.consumer();
    let mut delivered = 0;
    for round in 0..1000_u64 {
        let (partitions, addresses) = link.partitions(2);
        let gate = consumer.gate(&addresses);
        thread::scope(|scope| {
            for partition in &partitions {
                scope.spawn(move || {
                    let mut writer = writer(partition);
                    for row in 0..12 {
                        if writer.emit(&batch(row, row + 1, 3000), &nothing).is_err() {
                            return;
                        }
                        writer.flush().unwrap();
                    }
                    writer.finish().unwrap();
                });
            }
            scope.spawn(|| {
                thread::sleep(Duration::from_micros(round % 50 * 40));
                gate.close();
            });
            let mut kept = Vec::new();
            while let Ok(Some(received)) = gate.next(&nothing) {
                delivered += u64::from(received.data_type.is_buffer());
                kept.push(received.buffer);
                if kept.len() > 3 {
                    kept.clear();
                }
            }
        });
        for partition in &partitions {
            link.producer.0.release_partition(partition.id());
        }
    }
    assert!(delivered > 0, "every round was closed before a buffer arrived");
    wait_until("all segments are home", || {
        [&link.producer, consumer].iter().all(|env| env.0.stats().pool.held == 0)
    });
}

/// Compares the rows of several producers, read in every way, with the written ones.
#[test]
fn polling_and_blocking_through_one_gate_and_a_union_read_the_same() {
    for link in Link::both() {
        for way in 0..4_u32 {
            let consumer = link.consumer();
            let (partitions, addresses) = link.partitions(4);
            let input: Arc<dyn DataInput> = if way % 2 == 0 {
                consumer.gate(&addresses)
            } else {
                let gates = addresses.chunks(2).map(|two| consumer.gate(two)).collect();
                Arc::new(UnionInputGate::new(gates).unwrap())
            };
            read_all(&link, input, &partitions, way);
        }
    }
}

fn read_all(link: &Link, input: Arc<dyn DataInput>, partitions: &[Arc<ResultPartition>], way: u32) {
    let consumer = link.consumer();
    thread::scope(|scope| {
        for (number, partition) in (0_i64..).zip(partitions) {
            scope.spawn(move || {
                let mut writer = writer(partition);
                for part in 0..10 {
                    let from = number * 1000 + part * 50;
                    writer.emit(&batch(from, from + 50, 20), &nothing).unwrap();
                }
                writer.finish().unwrap();
            });
        }
        let copies = Arc::clone(consumer.0.copies());
        let options = consumer.0.spanning_options();
        let mut reader = RecordReader::new(input, Some(page_schema()), options, copies);
        let mut seen: Vec<Vec<i64>> = vec![Vec::new(); partitions.len()];
        let (mut polls, mut blocked) = (0_u64, 0_u64);
        loop {
            let record = if way < 2 && polls.is_multiple_of(3) {
                blocked += 1;
                reader.next(&nothing).unwrap()
            } else {
                match reader.poll_next().unwrap() {
                    Poll::Ready(record) => record,
                    Poll::Pending => {
                        polls += 1;
                        assert!(!reader.gate().is_finished());
                        thread::yield_now();
                        continue;
                    }
                }
            };
            polls += 1;
            let Some(Record::Batch(batch)) = record else { break };
            for key in keys(&batch) {
                seen[usize::try_from(key / 1000).unwrap()].push(key);
            }
        }
        assert!(reader.gate().is_finished() && (way >= 2 || blocked > 0));
        for (number, keys) in (0_i64..).zip(seen) {
            let expected: Vec<_> = (number * 1000..number * 1000 + 500).collect();
            assert_eq!(keys, expected, "each producer's rows, in their order");
        }
    });
}

#[test]
fn a_buffer_has_its_type_and_number() {
    for link in Link::both() {
        let (partitions, addresses) = link.partitions(1);
        let gate = link.consumer().gate(&addresses);
        let mut writer = writer(&partitions[0]);
        write_pages(&mut writer, 2);
        writer.finish().unwrap();
        let kinds: Vec<_> = std::iter::from_fn(|| gate.next(&nothing).unwrap())
            .map(|received| (received.data_type, received.sequence.0))
            .collect();
        let page = DataType::DataBufferWithClearEnd;
        assert_eq!(kinds, [(page, 0), (page, 1), (DataType::EndOfPartition, 2)]);
        gate.close();
    }
}
