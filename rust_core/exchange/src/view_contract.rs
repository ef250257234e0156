//! The contract of [`SubpartitionView`]: each test checks one promise for every kind of view.
//!
//! A link reads a partition only through this trait. `tests/kinds.rs` reads every kind over every link.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headgate_memory::lock;
use headgate_net::Polled;
use headgate_protocol::{DataType, Next};
use headgate_record::{Event, Selector};

use crate::config::Config;
use crate::environment::ShuffleEnvironment;
use crate::error::{ExchangeError, Result};
use crate::partition::{PartitionKind, PartitionOptions, ResultPartition};
use crate::view::{DataListener, ReadablePartition, SubpartitionView};
use crate::writer::BytesWriter;

const SEGMENT: usize = 4096;
/// Bytes of a record.
const RECORD: usize = 1000;
/// Records that fill 15 segments: more than a subpartition queues.
const RECORDS: u8 = 60;
/// Records that fill 5 segments, which every subpartition queues.
const FEW: u8 = 20;
/// Time after which a missing notification counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of partition, and its data's place when it is read.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: PartitionKind,
    segments: usize,
    /// True if the writer finishes before the view is made.
    is_written_first: bool,
}

/// Data in memory, on disk, and on disk with a tail in memory.
const CASES: [Case; 5] = [
    Case { kind: PartitionKind::Pipelined, segments: 24, is_written_first: false },
    Case { kind: PartitionKind::PipelinedBounded, segments: 24, is_written_first: false },
    Case { kind: PartitionKind::Blocking, segments: 24, is_written_first: true },
    Case { kind: PartitionKind::Hybrid, segments: 64, is_written_first: false },
    Case { kind: PartitionKind::Hybrid, segments: 8, is_written_first: true },
];

#[derive(Default)]
struct Notifications {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Notifications {
    fn count(&self) -> usize {
        *lock(&self.count)
    }

    /// Waits until there are more than `seen`.
    fn wait_beyond(&self, seen: usize, case: Case) {
        let guard = lock(&self.count);
        let (_guard, waited) = self
            .changed
            .wait_timeout_while(guard, PATIENCE, |count| *count <= seen)
            .expect("no listener panics");
        assert!(!waited.timed_out(), "{case:?}: no notification after an empty poll");
    }
}

impl DataListener for Notifications {
    fn data_available(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }
}

/// A partition of one subpartition.
struct Fixture {
    case: Case,
    env: ShuffleEnvironment,
    partition: Arc<ResultPartition>,
}

impl Fixture {
    fn new(case: Case) -> Self {
        let env = ShuffleEnvironment::new(Config::of_segments(case.segments, SEGMENT));
        let env = env.expect("the configuration is valid");
        let options = PartitionOptions::all(1).of_kind(case.kind);
        let partition = env.create_result_partition(&options).expect("the pool is large enough");
        Self { case, env, partition }
    }

    fn writer(&self) -> BytesWriter {
        let limit = self.env.config().max_record_size;
        let writer = BytesWriter::new(Arc::clone(&self.partition), Selector::One(0), limit);
        writer.expect("the partition has no other writer")
    }

    /// Writes records, with an event after every tenth.
    fn write(&self, records: u8) {
        Self::finish(self.writer(), records);
    }

    /// Writes records, with an event after every tenth, and the end.
    fn finish(mut writer: BytesWriter, records: u8) {
        for number in 0..records {
            let record = Bytes::from(vec![number; RECORD]);
            writer.emit(&record, &|| Ok(())).expect("nothing fails");
            if number % 10 == 9 {
                writer.broadcast_event(&mark()).expect("nothing fails");
            }
        }
        writer.finish().expect("the disk has room");
    }

    /// Writes as many records as fit without a reader.
    fn write_ahead(&self) {
        self.write(if self.case.is_written_first { RECORDS } else { FEW });
    }

    /// Calls `read` while, or after, the records are written.
    fn written<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        if self.case.is_written_first {
            self.write(RECORDS);
            return read(self);
        }
        thread::scope(|scope| {
            scope.spawn(|| self.write(RECORDS));
            read(self)
        })
    }

    fn reader(&self) -> Reader {
        let listener = Arc::<Notifications>::default();
        let view = self.partition.create_view(0, Arc::<Notifications>::clone(&listener));
        Reader { case: self.case, view: view.expect("the partition can be read"), listener }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.env.close();
        if !thread::panicking() {
            assert_eq!(self.env.stats().pool.held, 0, "{:?} keeps segments", self.case);
        }
    }
}

struct Reader {
    case: Case,
    view: Arc<dyn SubpartitionView>,
    listener: Arc<Notifications>,
}

impl Reader {
    /// Reads to the end as a channel does: after `Next::None` it polls only when it is notified.
    fn drain(&self) -> Result<Vec<Polled>> {
        let mut got: Vec<Polled> = Vec::new();
        let mut seen = self.listener.count();
        let mut next = self.view.availability();
        while got.last().is_none_or(|last| last.data_type != DataType::EndOfPartition) {
            if next == Next::None {
                self.listener.wait_beyond(seen, self.case);
            }
            seen = self.listener.count();
            let polled = self.view.poll()?;
            next = polled.as_ref().map_or(Next::None, |polled| polled.next);
            // Copied, so that a reader that keeps everything cannot stop the writer.
            got.extend(polled.map(|polled| Polled {
                buffer: Bytes::copy_from_slice(polled.buffer.as_slice()).into(),
                ..polled
            }));
        }
        Ok(got)
    }
}

fn mark() -> Event {
    Event::Custom { name: "mark".to_owned(), body: Bytes::new() }
}

fn for_each_case(check: impl Fn(&Fixture)) {
    for case in CASES {
        check(&Fixture::new(case));
    }
}

/// The record bytes of data buffers, without the length that precedes each record.
fn records(got: &[Polled]) -> Vec<u8> {
    let data = got.iter().filter(|polled| polled.data_type.is_buffer());
    let bytes: Vec<u8> = data.flat_map(|polled| polled.buffer.as_slice().to_vec()).collect();
    let record = RECORD + size_of::<u32>();
    bytes.chunks(record).flat_map(|record| record[size_of::<u32>()..].to_vec()).collect()
}

#[test]
fn a_view_gives_everything_once_in_order_and_is_notified_after_each_empty_poll() {
    for_each_case(|it| {
        let got = it.written(|it| it.reader().drain()).expect("nothing fails");
        let expected: Vec<u8> = (0..RECORDS).flat_map(|number| vec![number; RECORD]).collect();
        assert_eq!(records(&got), expected, "{:?}", it.case);
        let events = got.iter().filter(|polled| polled.data_type == DataType::EventBuffer);
        assert_eq!(events.count(), usize::from(RECORDS) / 10, "{:?}", it.case);
        let sequences: Vec<u32> = got.iter().map(|polled| polled.sequence.0).collect();
        let all = u32::try_from(got.len()).expect("a few dozen");
        assert_eq!(sequences, Vec::from_iter(0..all), "{:?}", it.case);
    });
}

#[test]
fn the_backlog_is_never_more_than_the_data_that_follows() {
    for_each_case(|it| {
        it.write_ahead();
        let got = it.reader().drain().expect("nothing fails");
        for (index, polled) in got.iter().enumerate() {
            let follows = got[index + 1..].iter().filter(|later| later.data_type.is_buffer());
            assert!(polled.backlog as usize <= follows.count(), "{:?} at {index}", it.case);
        }
        assert!(got.iter().any(|polled| polled.backlog > 0), "{:?} reports none", it.case);
    });
}

#[test]
fn a_reader_without_segments_of_its_own_gets_as_many_buffers_as_the_backlog_promised() {
    for_each_case(|it| {
        if it.case.is_written_first {
            return;
        }
        let reader = it.reader();
        reader.view.give_empty_buffers();
        let mut writer = it.writer();
        writer.emit(&Bytes::from_static(b"flushed"), &|| Ok(())).expect("nothing fails");
        writer.flush().expect("nothing fails");
        assert!(reader.view.poll().expect("nothing fails").is_some(), "{:?}", it.case);
        // Ends a buffer whose bytes are all read.
        writer.broadcast_event(&mark()).expect("nothing fails");
        assert_eq!(reader.view.backlog(), 1, "{:?}", it.case);
        let is_stored = it.case.kind == PartitionKind::Hybrid;
        Fixture::finish(writer, if is_stored { RECORDS } else { FEW });
        let promised = reader.view.backlog() as usize;
        let got = reader.drain().expect("nothing fails");
        let data = got.iter().filter(|polled| polled.data_type.is_buffer());
        assert_eq!(data.count(), promised, "{:?}", it.case);
    });
}

#[test]
fn what_is_announced_as_next_is_what_the_next_poll_gives() {
    for_each_case(|it| {
        it.write_ahead();
        let got = it.reader().drain().expect("nothing fails");
        let mut announced = 0;
        for pair in got.windows(2) {
            match pair[0].next {
                Next::None => continue,
                Next::Data => assert!(pair[1].data_type.is_buffer(), "{:?}", it.case),
                Next::Event => assert!(pair[1].data_type.is_event(), "{:?}", it.case),
            }
            announced += 1;
        }
        assert!(announced > 0, "{:?} announces nothing", it.case);
    });
}

#[test]
fn a_view_is_empty_behind_its_end_and_released_once_it_is_consumed() {
    for_each_case(|it| {
        it.written(|it| {
            let reader = it.reader();
            reader.drain().expect("nothing fails");
            assert!(reader.view.poll().expect("nothing fails").is_none(), "{:?}", it.case);
            assert_eq!(reader.view.availability(), Next::None, "{:?}", it.case);
            assert_eq!(reader.view.backlog(), 0, "{:?}", it.case);
            reader.view.consumed();
            assert!(reader.view.is_released(), "{:?}", it.case);
        });
        let consumed = it.partition.wait_consumed(Some(PATIENCE), &|| Ok(()));
        assert!(consumed.expect("nothing fails"), "{:?}", it.case);
    });
}

#[test]
fn only_a_blocking_partition_has_another_view_after_the_first() {
    for_each_case(|it| {
        it.written(|it| {
            let reader = it.reader();
            reader.drain().expect("nothing fails");
            reader.view.consumed();
        });
        if it.case.kind == PartitionKind::Blocking {
            let again = it.reader().drain().expect("nothing fails");
            assert_eq!(records(&again).len(), usize::from(RECORDS) * RECORD);
        } else {
            let again = it.partition.create_view(0, Arc::<Notifications>::default());
            assert!(again.is_err(), "{:?}", it.case);
        }
    });
}

#[test]
fn a_failure_is_notified_and_raised_by_the_next_poll() {
    for_each_case(|it| {
        if it.case.is_written_first {
            it.write(RECORDS);
        }
        let reader = it.reader();
        let seen = reader.listener.count();
        it.partition.fail(&ExchangeError::Aborted("the disk burns".to_owned()));
        reader.listener.wait_beyond(seen, it.case);
        let error = reader.view.poll().expect_err("the partition failed").to_string();
        assert!(error.contains("the disk burns"), "{:?}: {error}", it.case);
    });
}

#[test]
fn a_lost_consumer_fails_the_writer_unless_another_one_may_come() {
    for_each_case(|it| {
        if it.case.is_written_first {
            it.write(RECORDS);
        }
        let reader = it.reader();
        reader.view.consumer_lost(&ExchangeError::Aborted("the consumer is gone".to_owned()));
        let checked = it.partition.check().map_err(|error| error.to_string());
        if it.case.kind == PartitionKind::Blocking {
            assert_eq!(checked, Ok(()));
        } else {
            let error = checked.expect_err("the partition fails");
            assert!(error.contains("the consumer is gone"), "{:?}: {error}", it.case);
        }
    });
}
