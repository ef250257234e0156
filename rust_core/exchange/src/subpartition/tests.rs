//! The checks of spec 4 on a single subpartition, without channels.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use headgate_memory::{BufferBuilder, GlobalPool, LocalPool};
use headgate_protocol::DataType::{
    AlignedCheckpointBarrier as BARRIER, EventBuffer as EVENT, PrioritizedEventBuffer as PRIORITY,
};
use headgate_record::{PageSchema, Selector};

use super::*;
use crate::config::Config;
use crate::environment::ShuffleEnvironment;
use crate::partition::{PartitionOptions, ResultPartition};
use crate::view::{ReadablePartition, SubpartitionView};
use crate::writer::{ArrowWriter, BufferTimeout, BytesWriter};

thread_local! {
    /// Times that this thread took the lock of a subpartition.
    pub(super) static LOCKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Default)]
struct Notified(AtomicUsize);

impl DataListener for Notified {
    fn data_available(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A subpartition with a reader, and a pool to which all segments must return.
struct Fixture {
    subpartition: Subpartition,
    notified: Arc<Notified>,
    local: LocalPool,
    pool: GlobalPool,
}

impl Fixture {
    fn new() -> Self {
        let pool = GlobalPool::new(8, 4096);
        let local = pool.create_local_pool(0, 8).expect("nothing is promised");
        let (subpartition, notified) = (Subpartition::default(), Arc::new(Notified::default()));
        subpartition.attach(Arc::<Notified>::clone(&notified)).expect("the first reader");
        Self { subpartition, notified, local, pool }
    }

    fn notified(&self) -> usize {
        self.notified.0.load(Ordering::Relaxed)
    }

    /// Adds an unfinished buffer of this many bytes.
    fn add_open(&self, bytes: usize) -> BufferBuilder {
        let segment = self.local.try_request().expect("the pool is open").expect("eight are free");
        let mut builder = BufferBuilder::new(segment);
        builder.append(&vec![7; bytes]);
        builder.commit();
        self.subpartition.add_growing(builder.consumer().expect("a new builder has it"));
        builder
    }

    fn add_finished(&self, bytes: usize) {
        let segment = self.local.try_request().expect("the pool is open").expect("eight are free");
        let mut builder = BufferBuilder::new(segment);
        builder.append(&vec![7; bytes]);
        builder.finish();
        self.subpartition.add_growing(builder.consumer().expect("a new builder has it"));
    }

    fn add_event(&self, data_type: DataType) {
        self.subpartition.add_event(Bytes::from_static(b"event"), data_type);
    }

    /// Polls: size of the buffer, backlog behind it, and true if another poll would return
    /// something.
    fn poll(&self) -> Option<(usize, u32, bool)> {
        let polled = self.subpartition.poll().expect("it does not fail")?;
        Some((polled.buffer.len(), polled.backlog, polled.next != Next::None))
    }

    fn types(&self) -> Vec<(DataType, u32)> {
        let next = || self.subpartition.poll().expect("it does not fail");
        std::iter::from_fn(next).map(|it| (it.data_type, it.sequence.0)).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.subpartition.release();
        if !std::thread::panicking() {
            assert_eq!(self.pool.stats().held, 0, "every segment is returned");
        }
    }
}

#[test]
fn spec_4_01_the_last_unfinished_buffer_is_not_promised() {
    let it = Fixture::new();
    it.add_finished(1025);
    let open = it.add_open(1024);
    assert_eq!(it.subpartition.backlog(), 1);
    assert_eq!(it.poll(), Some((1025, 0, false)));
    assert_eq!(it.poll(), Some((1024, 0, false)));
    assert_eq!(it.poll(), None);
    drop(open);
}

#[test]
fn spec_4_01_a_flush_promises_it() {
    let it = Fixture::new();
    it.add_finished(1025);
    let open = it.add_open(1024);
    let notified = it.notified();
    it.subpartition.flush();
    assert_eq!((it.subpartition.backlog(), it.notified()), (2, notified));
    assert_eq!(it.poll(), Some((1025, 1, true)));
    assert_eq!(it.poll().map(|polled| polled.0), Some(1024));
    drop(open);
}

#[test]
fn spec_4_02_a_flush_notifies_once_and_only_of_bytes() {
    let it = Fixture::new();
    it.subpartition.flush();
    assert_eq!(it.notified(), 0);
    it.add_finished(10);
    let open = it.add_open(10);
    assert_eq!(it.poll(), Some((10, 0, false)));
    let notified = it.notified();
    it.subpartition.flush();
    assert_eq!(it.notified(), notified + 1);
    it.subpartition.flush();
    assert_eq!(it.notified(), notified + 1);
    drop(open);
}

#[test]
fn spec_4_04_an_empty_unfinished_buffer_is_not_polled() {
    let it = Fixture::new();
    let first = it.add_open(0);
    assert_eq!((it.notified(), it.poll()), (0, None));
    drop(first);
    let second = it.add_open(0);
    assert_eq!((it.notified(), it.poll()), (1, None));
    assert_eq!(it.subpartition.backlog(), 0);
    drop(second);
}

#[test]
fn spec_4_05_empty_finished_buffers_are_skipped() {
    let it = Fixture::new();
    for _ in 0..3 {
        it.add_finished(0);
    }
    it.add_finished(1024);
    assert_eq!(it.notified(), 1);
    assert_eq!(it.poll(), Some((1024, 0, false)));
    assert_eq!(it.poll(), None);
}

#[test]
fn spec_4_05_a_reader_without_segments_of_its_own_gets_empty_buffers_too() {
    let it = Fixture::new();
    it.subpartition.give_empty_buffers();
    it.add_finished(0);
    let open = it.add_open(0);
    assert_eq!(it.poll(), Some((0, 0, false)));
    assert_eq!(it.poll(), None, "an unfinished empty buffer is not polled");
    drop(open);
}

#[test]
fn spec_4_07_the_backlog_is_what_can_be_polled() {
    let it = Fixture::new();
    for _ in 0..4 {
        it.add_finished(9);
    }
    let open = it.add_open(9);
    assert_eq!(it.subpartition.backlog(), 4);
    it.subpartition.flush();
    assert_eq!(it.subpartition.backlog(), 5);
    drop(open);
    it.subpartition.finish();
    assert_eq!(it.subpartition.backlog(), 5, "the end is not a data buffer");
    let polled = std::iter::from_fn(|| it.poll()).count();
    assert_eq!(polled, 6);
}

#[test]
fn spec_4_07_the_backlog_ends_at_the_next_barrier() {
    let it = Fixture::new();
    let add = |buffers: usize| (0..buffers).for_each(|_| it.add_finished(9));
    add(2);
    it.add_event(BARRIER);
    add(3);
    it.add_event(BARRIER);
    add(1);
    let read = || std::iter::from_fn(|| it.poll()).count();
    for reachable in [2, 3] {
        assert_eq!(it.subpartition.backlog(), reachable);
        assert_eq!(read(), reachable as usize + 1);
        assert_eq!(it.subpartition.backlog(), 0);
        it.subpartition.resume().expect("it is blocked");
    }
    assert_eq!((it.subpartition.backlog(), read()), (1, 1));
}

#[test]
fn spec_4_08_a_polled_barrier_stops_everything() {
    let it = Fixture::new();
    it.add_event(BARRIER);
    assert_eq!(it.types(), [(BARRIER, 0)]);
    let notified = it.notified();
    it.add_event(EVENT);
    it.add_event(PRIORITY);
    it.add_finished(5);
    it.subpartition.flush();
    assert_eq!((it.notified(), it.poll()), (notified, None));
    assert_eq!(it.subpartition.backlog(), 0);
    assert_eq!(it.subpartition.look(true).next_and_backlog().0, Next::None);
    it.subpartition.resume().expect("it is blocked");
    assert_eq!(it.notified(), notified, "a resume notifies nobody: its caller looks again");
    assert_eq!(it.subpartition.look(true).next_and_backlog().0, Next::Event);
    assert_eq!(it.subpartition.backlog(), 1);
    let types: Vec<_> = it.types().iter().map(|(data_type, _)| *data_type).collect();
    assert_eq!(types, [PRIORITY, EVENT, DataType::DataBuffer]);
    assert!(it.subpartition.resume().is_err(), "it was resumed");
}

#[test]
fn spec_4_08_availability_after_a_resume() {
    let blocked = || {
        let it = Fixture::new();
        it.add_event(BARRIER);
        it.poll();
        it
    };
    let resumed = |it: &Fixture| {
        it.subpartition.resume().expect("it is blocked");
        it.subpartition.look(true).next_and_backlog().0
    };
    let it = blocked();
    assert_eq!(resumed(&it), Next::None, "it is empty");
    let it = blocked();
    let open = it.add_open(1);
    assert_eq!(resumed(&it), Next::None, "one unflushed buffer");
    drop(open);
    let it = blocked();
    let open = it.add_open(1);
    it.subpartition.flush();
    assert_eq!(resumed(&it), Next::Data, "one flushed buffer");
    drop(open);
    let it = blocked();
    it.add_finished(1);
    let open = it.add_open(1);
    assert_eq!(resumed(&it), Next::Data, "two buffers");
    drop(open);
    let it = blocked();
    assert_eq!(resumed(&it), Next::None);
    let notified = it.notified();
    it.add_finished(1);
    assert_eq!(it.notified(), notified + 1, "a buffer after the resume is notified");
}

#[test]
fn spec_4_08_the_end_and_a_failure_pass_a_barrier() {
    let it = Fixture::new();
    it.add_event(BARRIER);
    it.poll();
    let notified = it.notified();
    it.subpartition.fail(&ExchangeError::Aborted("why".to_owned()));
    assert_eq!(it.notified(), notified + 1);
    assert!(it.subpartition.poll().is_err());
}

#[test]
fn spec_4_10_buffers_added_after_the_end_are_dropped() {
    let it = Fixture::new();
    it.subpartition.finish();
    let notified = it.notified();
    it.add_finished(3);
    it.add_event(EVENT);
    assert_eq!((it.notified(), it.pool.stats().held), (notified, 0));
    assert_eq!(it.types().len(), 1);
    let it = Fixture::new();
    it.subpartition.release();
    let notified = it.notified();
    it.add_finished(3);
    assert_eq!((it.notified(), it.pool.stats().held, it.poll()), (notified, 0, None));
}

#[test]
fn spec_4_10_the_size_of_buffers_is_a_hint_for_new_ones() {
    let it = Fixture::new();
    assert_eq!(it.subpartition.buffer_size(), usize::MAX);
    it.subpartition.set_buffer_size(42);
    assert_eq!(it.subpartition.buffer_size(), 42);
}

#[test]
fn a_priority_event_notifies_a_reader_that_waits_for_credit() {
    let it = Fixture::new();
    it.add_finished(1);
    it.add_finished(1);
    let notified = it.notified();
    assert_eq!(it.subpartition.look(true).next_and_backlog().0, Next::Data);
    it.add_event(PRIORITY);
    assert_eq!(it.notified(), notified + 1);
    let expected = [(PRIORITY, 0), (DataType::DataBuffer, 1), (DataType::DataBuffer, 2)];
    assert_eq!(it.types(), expected, "numbered as they are polled");
}

#[test]
fn an_unread_buffer_is_taken_back() {
    let it = Fixture::new();
    assert!(it.subpartition.take_back().is_none());
    it.add_finished(3);
    let open = it.add_open(5);
    let taken = it.subpartition.take_back().expect("it is unread");
    assert_eq!(it.subpartition.queued(), 1);
    drop(open);
    let (segment, len) = taken.into_segment().expect("no other reference is left");
    assert_eq!(&segment[..len], [7; 5]);
    it.subpartition.add_data(Buffer::freeze(segment, len), DataType::DataBuffer, 0);
    assert_eq!([it.poll(), it.poll(), it.poll()], [Some((3, 1, true)), Some((5, 0, false)), None]);
    let open = it.add_open(5);
    it.subpartition.flush();
    assert_eq!(it.poll(), Some((5, 0, false)));
    assert!(it.subpartition.take_back().is_none(), "its first part is read");
    drop(open);
    it.add_event(EVENT);
    assert!(it.subpartition.take_back().is_none());
}

/// A partition of one subpartition, with a reader that serves a connection.
fn remote_reader() -> (ShuffleEnvironment, Arc<ResultPartition>, Arc<dyn SubpartitionView>) {
    let env = ShuffleEnvironment::new(Config::of_segments(16, 4096)).expect("it opens nothing");
    let partition = env.create_result_partition(&PartitionOptions::all(1)).expect("16 segments");
    let view = partition.create_view(0, Arc::<Notified>::default()).expect("the first reader");
    assert_eq!(view.availability(), Next::None);
    (env, partition, view)
}

/// Locks of one write and of the wake-up after it: the reader looks, and polls.
fn locks_of(write: impl FnOnce(), view: &dyn SubpartitionView) -> usize {
    let before = LOCKS.get();
    write();
    let (next, backlog) = view.look().next_and_backlog();
    assert_eq!((next, backlog), (Next::Data, 1));
    let polled = view.poll().expect("it does not fail").expect("a buffer was written");
    assert_eq!(polled.next, Next::None);
    LOCKS.get() - before
}

#[test]
fn a_record_and_its_wake_up_take_three_locks() {
    let (env, partition, view) = remote_reader();
    let selector = Selector::RoundRobin { next: 0, group: None, by_rows: false };
    let writer = BytesWriter::new(partition, selector, 4096).expect("bytes need no columns");
    let every = BufferTimeout::EveryRecord;
    let mut writer = writer.with_buffer_timeout(every, &env).expect("it needs no thread");
    let record = Bytes::from_static(b"record");
    let mut emit = || writer.emit(&record, &|| Ok(())).expect("a segment is free");
    // The first record opens a buffer, which takes one more.
    assert_eq!(locks_of(&mut emit, &*view), 4);
    assert_eq!(locks_of(&mut emit, &*view), 3);
}

#[test]
fn a_page_and_its_wake_up_take_three_locks() {
    let (env, partition, view) = remote_reader();
    let field = Field::new("n", arrow_schema::DataType::Int64, false);
    let numbers = Arc::new(Int64Array::from_iter_values(0..9));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![numbers]);
    let batch = batch.expect("one column of its type");
    let schema = Arc::new(PageSchema::try_new(batch.schema()).expect("a type that pages hold"));
    let selector = Selector::Hash { columns: vec![0.into()] };
    let writer = ArrowWriter::new(partition, schema, selector, 4096).expect("its first schema");
    let every = BufferTimeout::EveryRecord;
    let mut writer = writer.with_buffer_timeout(every, &env).expect("it needs no thread");
    let emit = || writer.emit(&batch, &|| Ok(())).expect("a segment is free");
    assert_eq!(locks_of(emit, &*view), 3);
}
